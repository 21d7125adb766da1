//! A name taken apart at its brackets, separators and spaces.

use super::GAP;

/// What a piece of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters and what else stands for itself, operators of C++ included.
    Word,
    /// `<…>`.
    Angles,
    /// `(…)`.
    Parens,
    /// `{…}`.
    Braces,
    /// `[…]`.
    Square,
    /// `::`; where there is none, `.` and `/`, and of a path `/` alone.
    Separator,
    /// A space.
    Space,
}

/// A piece that is in no bracket, as bytes of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Signs that C++ writes behind `operator`; longer ones before what they begin with.
const OPERATORS: [&str; 13] =
    ["()", "[]", "<=>", "<<=", ">>=", "->*", "->", "<<", ">>", "<=", ">=", "<", ">"];

/// The pieces of the name; `None` when its brackets do not fit together.
pub(super) fn pieces(name: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut open = Vec::new();
    let mut begin = 0;
    for token in Tokens::of(name) {
        match token.sign {
            Sign::Open(bracket) => {
                if open.is_empty() {
                    begin = token.start;
                }
                open.push(bracket);
            }
            Sign::Close(bracket) => {
                close(&mut open, bracket)?;
                if open.is_empty() {
                    pieces.push(Piece { kind: bracket, start: begin, end: token.end });
                }
            }
            Sign::Other(kind) if open.is_empty() => {
                pieces.push(Piece { kind, start: token.start, end: token.end });
            }
            Sign::Other(_) => {}
        }
    }
    if !open.is_empty() {
        return None;
    }
    let has_colons = pieces.iter().any(|piece| &name[piece.start..piece.end] == "::");
    // Go's paths of packages have dots that separate nothing.
    let path = pieces.iter().rposition(|piece| &name[piece.start..piece.end] == "/");
    for (place, piece) in pieces.iter_mut().enumerate() {
        let is_separator = match &name[piece.start..piece.end] {
            "::" => true,
            "/" => !has_colons,
            "." => !has_colons && !name.starts_with('/') && path.is_none_or(|path| path < place),
            _ => continue,
        };
        if !is_separator {
            piece.kind = Kind::Word;
        }
    }
    Some(pieces)
}

/// How deep template arguments are nested in the name.
pub(super) fn depth(name: &str) -> usize {
    let mut depths = (0_usize, 0);
    for token in Tokens::of(name) {
        match token.sign {
            Sign::Open(Kind::Angles) => depths.0 += 1,
            Sign::Close(Kind::Angles) => depths.0 = depths.0.saturating_sub(1),
            _ => {}
        }
        depths.1 = depths.0.max(depths.1);
    }
    depths.1
}

/// The component of a path with `...` for template arguments at this depth, counted from 1. What
/// a component begins with is no argument: Rust's `<T as Trait>`.
pub(super) fn elided(component: &str, depth: usize) -> String {
    let is_self = component.starts_with('<');
    let depth = depth + usize::from(is_self);
    let mut out = String::new();
    let (mut at, mut kept) = (0, 0);
    for token in Tokens::of(component) {
        match token.sign {
            Sign::Open(Kind::Angles) => {
                at += 1;
                if at == depth {
                    out.push_str(&component[kept..token.end]);
                    kept = token.end;
                }
            }
            Sign::Close(Kind::Angles) => {
                if at == depth {
                    let content = &component[kept..token.start];
                    out.push_str(if GAP.len() < content.len() { GAP } else { content });
                    kept = token.start;
                }
                at = at.saturating_sub(1);
            }
            _ => {}
        }
    }
    out + &component[kept..]
}

/// Takes the bracket from those that are open. `<` and `>` inside of other brackets may be signs
/// of arithmetic.
fn close(open: &mut Vec<Kind>, bracket: Kind) -> Option<()> {
    if bracket != Kind::Angles {
        while open.last() == Some(&Kind::Angles) {
            open.pop();
        }
    }
    match open.last() {
        Some(last) if *last == bracket => {
            open.pop();
            Some(())
        }
        Some(_) if bracket == Kind::Angles => Some(()),
        Some(_) | None => None,
    }
}

#[derive(Clone, Copy)]
enum Sign {
    Open(Kind),
    Close(Kind),
    Other(Kind),
}

struct Token {
    sign: Sign,
    start: usize,
    end: usize,
}

/// The smallest parts of a name. Each begins and ends at ASCII, or at the name's ends.
struct Tokens<'a> {
    name: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    const fn of(name: &'a str) -> Self {
        Self { name, at: 0 }
    }

    /// Bytes of the word that begins here.
    fn word(&self) -> usize {
        let rest = &self.name[self.at..];
        let is_word = |char: char| !"<>(){}[]:./ ".contains(char);
        let len = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
        if &rest[..len] != "operator" {
            return len;
        }
        let behind = &rest[len..];
        if let Some(sign) = OPERATORS.into_iter().find(|sign| behind.starts_with(sign)) {
            // A space keeps `operator< <int>` from being another operator.
            let space = behind[sign.len()..].starts_with(" <");
            return len + sign.len() + usize::from(space);
        }
        // `operator new[]`, and a conversion to a type, whose path is no other.
        match behind.strip_prefix(' ') {
            Some(kind) => len + 1 + kind.find('(').unwrap_or(kind.len()),
            None => len,
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let rest = &self.name[self.at..];
        let start = self.at;
        let previous = start.checked_sub(1).map(|before| self.name.as_bytes()[before]);
        let (sign, len) = match rest.as_bytes().first()? {
            b'<' => (Sign::Open(Kind::Angles), 1),
            // Arrows close nothing.
            b'>' if matches!(previous, Some(b'-' | b'=')) => (Sign::Other(Kind::Word), 1),
            b'>' => (Sign::Close(Kind::Angles), 1),
            b'(' => (Sign::Open(Kind::Parens), 1),
            b')' => (Sign::Close(Kind::Parens), 1),
            b'{' => (Sign::Open(Kind::Braces), 1),
            b'}' => (Sign::Close(Kind::Braces), 1),
            b'[' => (Sign::Open(Kind::Square), 1),
            b']' => (Sign::Close(Kind::Square), 1),
            b' ' => (Sign::Other(Kind::Space), 1),
            b':' if rest.starts_with("::") => (Sign::Other(Kind::Separator), 2),
            b'.' | b'/' => (Sign::Other(Kind::Separator), 1),
            b':' => (Sign::Other(Kind::Word), 1),
            _ => (Sign::Other(Kind::Word), self.word()),
        };
        self.at += len;
        Some(Token { sign, start, end: self.at })
    }
}
