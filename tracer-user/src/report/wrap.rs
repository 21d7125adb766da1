//! Text in lines of a terminal's width.

use super::widths;
use crate::units::HUMAN_UNITS;

/// The text broken at spaces, where it is too long. The first line has room for `width` columns without
/// the `used` ones that stand before it, every other line without an indent. A number and its unit
/// stay together, and so does a word that is longer than a line.
pub(crate) fn wrap(text: &str, width: usize, used: usize, indent: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = used;
    for (place, part) in unbroken(text).into_iter().enumerate() {
        let columns = widths::of(&part);
        match lines.last_mut() {
            Some(line) if place == 0 || used + columns < width => {
                if 0 < place {
                    line.push(' ');
                    used += 1;
                }
                line.push_str(&part);
                used += columns;
            }
            Some(_) | None => {
                lines.push(part);
                used = indent + columns;
            }
        }
    }
    lines
}

/// The words of a text, a number and its unit as one.
fn unbroken(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(' ') {
        match parts.last_mut() {
            Some(last) if HUMAN_UNITS.contains(&part.trim_end_matches([';', ','])) => {
                *last = format!("{last} {part}");
            }
            Some(_) | None => parts.push(part.to_owned()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_keep_their_units() {
        assert_eq!(wrap("it is 1 MiB, no more", 9, 0, 2), ["it is", "1 MiB,", "no more"]);
        assert_eq!(wrap("first later", 80, 79, 2), ["first", "later"]);
        assert_eq!(wrap("", 80, 0, 2), [""]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_lines_fit(
            text in "[a-z ]{0,60}", width in 1_usize..40, used in 0_usize..10, indent in 0_usize..4
        ) {
            let lines = wrap(&text, width, used, indent);
            prop_assert_eq!(lines.join(" "), text);
            for (place, line) in lines.iter().enumerate() {
                let before = if place == 0 { used } else { indent };
                prop_assert!(!line.contains(' ') || before + line.len() <= width, "{:?}", lines);
            }
        }
    }
}
