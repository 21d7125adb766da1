//! Names from the target are data. One function for each place they go to; each takes any
//! text and gives text that its reader cannot take for something else.
//!
//! Characters that cannot be seen or that move what is seen (control characters, marks that
//! turn the direction of writing, what XML forbids) become `\x1b` or `\u{202e}` everywhere.

use std::borrow::Cow;
use std::fmt::Write as _;

/// For a terminal: nothing that a terminal obeys.
pub fn terminal(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match char {
            _ if !is_hidden(char) => shown.push(char),
            '\0'..='\u{ff}' => {
                // Writing to a `String` cannot fail.
                let _ = write!(shown, "\\x{:02x}", u32::from(char));
            }
            _ => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(char));
            }
        }
    }
    Cow::Owned(shown)
}

/// For a frame of a folded stack, where `;` ends a frame, a space precedes the count, and a
/// line that starts with `#` is a comment. `;` becomes `:`. A space stays, except that it
/// becomes `_` at either end of a name and before a number that ends the name, because
/// readers take that for a count of their own; `#` becomes `_` at the start.
pub fn folded(name: &str) -> String {
    let mut name = terminal(name).replace(';', ":");
    let is_edge = |char: char| char.is_whitespace() || char == '#';
    let body = name.trim_start_matches(is_edge).len();
    let start = name.len() - body;
    let end = start + name[start..].trim_end_matches(char::is_whitespace).len();
    let (before, after) = (name[..start].chars().count(), name[end..].chars().count());
    name = format!("{}{}{}", "_".repeat(before), &name[start..end], "_".repeat(after));
    if let Some(space) = name.rfind(char::is_whitespace) {
        let space_len = name[space..].chars().next().map_or(0, char::len_utf8);
        let last = &name[space + space_len..];
        if last.chars().all(|char| char.is_ascii_digit() || char == '.') {
            name.replace_range(space..space + space_len, "_");
        }
    }
    name
}

/// For text and attributes of XML.
pub fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for char in terminal(text).chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            _ => escaped.push(char),
        }
    }
    escaped
}

/// For prose in Markdown: no mark-up, no HTML.
pub fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for char in terminal(text).chars() {
        if "\\`*_[]<>|~#&".contains(char) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

/// For a cell of a Markdown table, as code; there a `|` ends the cell even in code.
pub fn markdown_cell(text: &str) -> String {
    markdown_code(text).replace('|', "\\|")
}

/// For Markdown outside of tables, as code: what is code is neither mark-up nor HTML, names
/// nobody with `@` and no issue with `#`.
pub fn markdown_code(text: &str) -> String {
    let text = terminal(text);
    if text.trim().is_empty() {
        return String::new();
    }
    let longest_run = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest_run + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Is this a character that is not seen, or that changes how others are seen?
const fn is_hidden(char: char) -> bool {
    matches!(char,
        '\0'..='\x1f'
        | '\x7f'..='\u{9f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{fffe}'..='\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Control characters, markup, separators, and what is left of bytes that are no UTF-8.
    fn nasty() -> String {
        String::from_utf8_lossy(b"a\x1b[31m<x>&\"y\"'; |`z`\0\n\xff 42").into_owned()
    }

    #[test]
    fn each_place_gets_its_own() {
        assert_eq!(terminal(&nasty()), "a\\x1b[31m<x>&\"y\"'; |`z`\\x00\\x0a\u{fffd} 42");
        assert_eq!(folded(&nasty()), "a\\x1b[31m<x>&\"y\"': |`z`\\x00\\x0a\u{fffd}_42");
        assert_eq!(
            xml(&nasty()),
            "a\\x1b[31m&lt;x&gt;&amp;&quot;y&quot;&apos;; |`z`\\x00\\x0a\u{fffd} 42"
        );
        assert_eq!(
            markdown(&nasty()),
            "a\\\\x1b\\[31m\\<x\\>\\&\"y\"'; \\|\\`z\\`\\\\x00\\\\x0a\u{fffd} 42"
        );
        assert_eq!(
            markdown_cell(&nasty()),
            "``a\\x1b[31m<x>&\"y\"'; \\|`z`\\x00\\x0a\u{fffd} 42``"
        );
    }

    #[test]
    fn names_that_are_plain_stay_as_they_are() {
        for name in [
            "main",
            "operator new(unsigned long)",
            "<T as U>::f",
            "函数",
            "exec<void (*)()>(void (*)())",
        ] {
            assert_eq!(terminal(name), name);
            assert_eq!(folded(name), name);
        }
    }

    #[test]
    fn a_folded_name_is_never_taken_for_a_count_or_a_comment() {
        assert_eq!(folded("ns;leak here 42"), "ns:leak here_42");
        assert_eq!(folded("leak 4.2"), "leak_4.2");
        assert_eq!(folded("42"), "42");
        assert_eq!(folded(" x "), "_x_");
        assert_eq!(folded("# x"), "__x");
        assert_eq!(folded("   "), "___");
    }

    #[test]
    fn writing_direction_cannot_be_turned() {
        assert_eq!(terminal("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
    }

    #[test]
    fn code_that_holds_backticks_is_fenced_by_more() {
        assert_eq!(markdown_code("a`b"), "``a`b``");
        assert_eq!(markdown_code("`b`"), "`` `b` ``");
        assert_eq!(markdown_code("@team #1"), "`@team #1`");
        assert_eq!(markdown_code(" "), "");
    }

    proptest! {
           #[test]
           fn no_name_breaks_a_folded_line(name in "\\PC{0,20}|[ -~\\x00-\\x20;#]{1,20}", bytes in any::<u64>()) {
               let name = folded(&name);
               let line = format!("root;{name} {bytes}");
               prop_assert_eq!(line.lines().count(), 1);
               let (stack, count) = line.rsplit_once(' ').expect("a count");
               prop_assert_eq!(count.parse(), Ok(bytes));
               prop_assert_eq!(stack.split(';').count(), 2);
               let last = stack.rsplit_once(' ').map_or("", |(_, last)| last);
               prop_assert!(last.is_empty() || last.parse::<f64>().is_err() || !last.starts_with(|c: char| c.is_ascii_digit()));
           }

           #[test]
           fn no_text_puts_a_control_character_anywhere(text in any::<String>()) {
               for escaped in [terminal(&text).into_owned(), folded(&text), xml(&text), markdown(&text), markdown_code(&text),
    markdown_cell(&text)] {
                   prop_assert!(!escaped.contains(is_hidden));
               }
           }
       }
}
