//! Flamegraphs of what grew and of what shrank: a frame is as wide as the bytes that its
//! callees gained, the thread's start at the bottom. Two pictures, because a width cannot be
//! negative and a sum of both would hide either.

use std::collections::BTreeMap;
use std::io;

use inferno::flamegraph::{Options, from_lines};

use super::model::{Kind, Session};
use super::{escape, folded};

/// What grew. A session without growth gives a picture that says so.
///
/// # Errors
/// When the drawing fails; the lines and the memory that is written to do not make it.
pub fn growth(session: &Session) -> io::Result<Vec<u8>> {
    draw(&folded::grown(session), &title("Growth", session), "growth", Dressing::Interactive)
}

/// What shrank; `None` when nothing did.
///
/// # Errors
/// As [`growth`].
pub fn shrink(session: &Session) -> io::Result<Option<Vec<u8>>> {
    let lines = folded::shrunk(session);
    if lines.is_empty() {
        return Ok(None);
    }
    draw(&lines, &title("Shrinkage", session), "shrinkage", Dressing::Interactive).map(Some)
}

/// Is the picture to be clicked at, or to be compared line by line?
#[derive(Clone, Copy)]
enum Dressing {
    Interactive,
    #[cfg(test)]
    Plain,
}

fn title(what: &str, session: &Session) -> String {
    let last_of = |kind| session.batches.iter().rev().find(|batch| batch.kind == kind);
    let from = last_of(Kind::Warmup)
        .map_or_else(|| "start".to_owned(), |batch| format!("batch {}", batch.index));
    match last_of(Kind::Measured) {
        Some(batch) => format!("{what} of outstanding bytes, {from} → {}", batch.index),
        None => format!("{what} of outstanding bytes, no measured batch"),
    }
}

fn draw(
    lines: &BTreeMap<String, u64>,
    title: &str,
    what: &str,
    dressing: Dressing,
) -> io::Result<Vec<u8>> {
    if lines.is_empty() {
        return Ok(empty(title, what));
    }
    // The drawing adds up in 64 bits: figures beyond are divided, and multiplied for display.
    let sum: u128 = lines.values().map(|bytes| u128::from(*bytes)).sum();
    let shift = (u128::BITS - sum.leading_zeros()).saturating_sub(63);
    let lines: Vec<String> = lines
        .iter()
        .map(|(path, bytes)| (path, bytes >> shift))
        .filter(|(_, bytes)| 0 < *bytes)
        .map(|(path, bytes)| format!("{path} {bytes}"))
        .collect();
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    options.deterministic = true;
    options.factor = 2_f64.powi(shift.cast_signed());
    match dressing {
        Dressing::Interactive => {}
        #[cfg(test)]
        Dressing::Plain => {
            options.no_javascript = true;
            options.pretty_xml = true;
        }
    }
    let mut svg = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    Ok(svg)
}

/// A picture that says that there is nothing to see, which the drawing takes for an error.
fn empty(title: &str, what: &str) -> Vec<u8> {
    let title = escape::xml(title);
    format!(
        r##"<?xml version="1.0" standalone="no"?>
<svg version="1.1" width="1200" height="90" viewBox="0 0 1200 90" xmlns="http://www.w3.org/2000/svg">
<rect x="0" y="0" width="100%" height="100%" fill="#eeeeee"/>
<text x="50%" y="30" text-anchor="middle" font-family="monospace" font-size="17">{title}</text>
<text x="50%" y="62" text-anchor="middle" font-family="monospace" font-size="12">no {what}: no stack has more outstanding than before</text>
</svg>
"##
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{golden, sample};

    fn plain(session: &Session) -> String {
        let svg =
            draw(&folded::grown(session), &title("Growth", session), "growth", Dressing::Plain);
        String::from_utf8(svg.expect("a picture")).expect("UTF-8")
    }

    /// Is it XML that a reader takes: allowed characters, closed tags, no stray `&`?
    fn check_xml(svg: &[u8]) {
        let mut rest = std::str::from_utf8(svg).expect("UTF-8");
        assert!(!rest.contains(|char: char| {
            matches!(char, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}')
        }));
        let mut open = Vec::new();
        while let Some(at) = rest.find(['<', '&']) {
            rest = &rest[at..];
            let (end, skip) = if rest.starts_with("<![CDATA[") {
                (rest.find("]]>"), 3)
            } else if rest.starts_with("<!--") {
                (rest.find("-->"), 3)
            } else if rest.starts_with('&') {
                (rest.find(';'), 1)
            } else {
                (rest.find('>'), 1)
            };
            let end = end.expect("an end") + skip;
            let token = &rest[..end];
            rest = &rest[end..];
            if token.starts_with('&') {
                assert!(
                    token.starts_with("&#")
                        || ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;"].contains(&token),
                    "{token}"
                );
            } else if let Some(name) = token.strip_prefix("</") {
                assert_eq!(open.pop(), Some(name.trim_end_matches('>')));
            } else if !token.starts_with("<!") && !token.starts_with("<?") && !token.ends_with("/>")
            {
                let name =
                    token[1..].split(|char: char| char.is_whitespace() || char == '>').next();
                open.push(name.expect("a name"));
            }
        }
        assert!(open.is_empty(), "{open:?} left open");
    }

    #[test]
    fn growth_is_drawn_in_bytes() {
        golden::check("svg/growth.svg", &plain(&sample::leaking()));
    }

    #[test]
    fn every_picture_is_xml() {
        for session in [sample::leaking(), sample::clean(), sample::nasty(), sample::huge()] {
            check_xml(&growth(&session).expect("a picture"));
            if let Some(svg) = shrink(&session).expect("a picture") {
                check_xml(&svg);
            }
        }
    }

    #[test]
    fn no_growth_is_a_picture_that_says_so() {
        let svg = plain(&sample::clean());
        assert!(svg.contains("no growth"), "{svg}");
        assert!(svg.contains("Growth of outstanding bytes, batch 0 → 4"));
    }

    #[test]
    fn what_shrank_is_a_picture_of_its_own() {
        let session = sample::session(&[
            (200, &["c", "main"]),
            (100, &["a", "main"]),
            (-150, &["b", "main"]),
        ]);
        let grown = plain(&session);
        assert!(grown.contains("all (300 bytes, 100%)"), "{grown}");
        let shrunk = shrink(&session).expect("a picture").expect("something shrank");
        let shrunk = String::from_utf8(shrunk).expect("UTF-8");
        assert!(shrunk.contains("all (150 bytes, 100%)") && shrunk.contains("Shrinkage of"));
        assert_eq!(shrink(&sample::clean()).expect("no error"), None);
    }

    #[test]
    fn inner_frames_hold_the_sum_of_their_callees() {
        let svg = plain(&sample::session(&[(20, &["a", "p"]), (20, &["b", "p"])]));
        for words in ["p (40 bytes, 100.00%)", "a (20 bytes, 50.00%)", "b (20 bytes, 50.00%)"] {
            assert!(svg.contains(words), "{words} in {svg}");
        }
    }

    #[test]
    fn names_stay_readable_and_whole() {
        let svg = plain(&sample::nasty());
        for words in ["ns:leak here_42 (6,400 bytes", "a\\x1bb:&lt;x&gt;&amp;", "c\\x00d|e`f`"] {
            assert!(svg.contains(words), "{words} in {svg}");
        }
    }

    #[test]
    fn figures_beyond_64_bits_do_not_panic() {
        let svg = plain(&sample::session(&[
            (i64::MAX, &["a", "main"]),
            (i64::MAX, &["b", "main"]),
            (i64::MAX, &["c", "main"]),
        ]));
        assert!(svg.contains("a (9,223,372,036,854,775,"), "{svg}");
        assert!(svg.contains("33.33%"));
    }

    #[test]
    fn the_same_session_is_the_same_picture() {
        assert_eq!(growth(&sample::leaking()).ok(), growth(&sample::leaking()).ok());
    }
}
