//! Columns of a terminal: wide characters take two, and long text is shortened in the middle.
//! What names functions is shortened by `shorten`.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

const GAP: &str = "...";

/// Columns that the text takes. Text with control characters must be escaped before.
pub fn of(text: &str) -> usize {
    text.width()
}

/// The text in at most `width` columns, its middle replaced by `...` when it is longer.
pub fn shorten(text: &str, width: usize) -> String {
    if of(text) <= width {
        return text.to_owned();
    }
    // A sequence may be wider than its characters (an emoji with its variation selector), so
    // what was joined is measured again.
    let shortened = |room: usize| {
        let (gap, room) = room.checked_sub(GAP.len()).map_or(("", room), |room| (GAP, room));
        let tail_room = if gap.is_empty() { 0 } else { room / 2 };
        let mut tail = take(text.chars().rev(), tail_room);
        tail.reverse();
        take(text.chars(), room - tail_room).into_iter().chain(gap.chars()).chain(tail).collect()
    };
    let mut rooms = (0..=width).rev().map(shortened);
    rooms.find(|text: &String| of(text) <= width).unwrap_or_default()
}

/// The text, followed by spaces up to `width` columns.
pub fn pad_right(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(of(text))))
}

/// The text, preceded by spaces up to `width` columns.
pub fn pad_left(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(of(text))))
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> Vec<char> {
    let mut used = 0;
    chars
        .take_while(|char| {
            used += char.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_middle_goes_first() {
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("ns::Cache<std::string>::insert", 16), "ns::Cac...insert");
        assert_eq!(shorten("abcdef", 2), "ab");
        assert_eq!(shorten("abcdef", 0), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(of("函数"), 4);
        assert_eq!(shorten("函数函数函数", 9), "函...数");
        assert_eq!(pad_left("函", 4), "  函");
        assert_eq!(pad_right("函", 4), "函  ");
    }

    #[test]
    fn a_sequence_that_is_wider_than_its_characters_is_measured_whole() {
        assert_eq!(of("0\u{fe0f}"), 2);
        assert_eq!(shorten("0\u{fe0f}123", 1), "");
    }

    proptest! {
        #[test]
        fn never_wider_than_asked(text in "\\PC{0,60}", width in 0_usize..50) {
            prop_assert!(of(&shorten(&text, width)) <= width);
        }
    }
}
