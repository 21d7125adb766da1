//! Long names of functions, made shorter by what they are made of: parameters say least, then the
//! arguments of templates, then namespaces; the function's own name with its class is kept longest.
//!
//! A name is data of the target. What cannot be taken apart is cut in its middle.

mod pieces;

use std::borrow::Cow;

use self::pieces::{Kind, Piece, pieces};
use super::widths;

/// Stands for what was left out.
const GAP: &str = "...";

/// Depth of template arguments up to which they are left out one by one.
const DEEPEST: usize = 8;

/// Marks that stand behind a name and are no part of it.
const MARKS: [&str; 2] = [" (sampled)", " (inlined)"];

/// Ends of names that say which piece of a function it is, and of its body which closure.
const NO_NAMES: [&str; 8] =
    ["cold", "constprop", "isra", "localalias", "lto_priv", "operator()", "part", "vtable.shim"];

/// What strings are called in full.
const STRINGS: [(&str, &str); 6] = [
    (
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
        "std::string",
    ),
    ("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
    (
        "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char> >",
        "std::string",
    ),
    ("std::basic_string_view<char, std::char_traits<char> >", "std::string_view"),
    ("std::__cxx11::", "std::"),
    ("std::__1::", "std::"),
];

/// The name in at most `width` columns.
pub(super) fn name(text: &str, width: usize) -> String {
    if let Some(whole) = path(text, width) {
        return whole;
    }
    let (text, mark) = without_mark(text);
    let with_strings = strings(text);
    let Some(Shape { components, .. }) = Shape::of(&with_strings) else {
        return widths::shorten(&format!("{text}{mark}"), width);
    };
    let components = without_namespaces(components);
    let fits = |text: &String| widths::of(text) <= width;
    let joined = |from: usize, gap: &str| {
        let components = components.get(from..).unwrap_or_default();
        let separator = components.first().map_or("", |first| first.before);
        let gap = match separator {
            _ if gap.is_empty() => String::new(),
            "." => gap.to_owned(),
            separator => format!("{gap}{separator}"),
        };
        format!("{gap}{}{mark}", join(components))
    };
    let own = components.iter().rposition(|component| !component.is_no_name()).unwrap_or(0);
    // From the function's name outwards, so that a name of many parts costs no more than one of few.
    let cuts = (0..=own).rev().map_while(|from| {
        let forms = match from {
            0 => [Some(joined(0, "")), of_class(&components).map(|name| name + mark)],
            // A function with its class says what it is, and needs no sign that more was there.
            _ => [Some(joined(from, GAP)), (own <= from + 1).then(|| joined(from, ""))],
        };
        forms.into_iter().flatten().find(fits)
    });
    let own = join(components.get(own..).unwrap_or_default());
    cuts.last().unwrap_or_else(|| widths::shorten(&own, width))
}

/// The name in at most `width` columns with the whole of its path, if there is such a form.
pub(super) fn path(text: &str, width: usize) -> Option<String> {
    let fits = |text: &String| widths::of(text) <= width;
    if widths::of(text) <= width {
        return Some(text.to_owned());
    }
    let (text, mark) = without_mark(text);
    let with_strings = strings(text);
    if let Some(text) = Some(format!("{with_strings}{mark}")).filter(fits) {
        return Some(text);
    }
    let Shape { components, depth } = Shape::of(&with_strings)?;
    let with_arguments = |depth| {
        let each = components.iter().map(|component| Component {
            text: pieces::elided(&component.text, depth).into(),
            ..*component
        });
        join(&each.collect::<Vec<_>>()) + mark
    };
    (1..=depth.min(DEEPEST) + 1).rev().map(with_arguments).find(fits)
}

fn without_mark(text: &str) -> (&str, &'static str) {
    let mark = MARKS.into_iter().find(|mark| text.ends_with(mark));
    mark.map_or((text, ""), |mark| (&text[..text.len() - mark.len()], mark))
}

fn strings(text: &str) -> Cow<'_, str> {
    STRINGS.iter().fold(Cow::Borrowed(text), |text, (long, short)| match text.contains(long) {
        true => Cow::Owned(text.replace(long, short)),
        false => text,
    })
}

/// A name without what it takes and gives back.
struct Shape<'a> {
    components: Vec<Component<'a>>,
    /// How deep its template arguments are nested.
    depth: usize,
}

/// What stands between the separators of a path.
#[derive(Clone, Debug)]
struct Component<'a> {
    /// The separator before it.
    before: &'a str,
    text: Cow<'a, str>,
}

impl<'a> Shape<'a> {
    /// `None` when the brackets do not fit together, and for a place in an object.
    fn of(text: &'a str) -> Option<Self> {
        if text.rsplit_once("+0x").is_some_and(|(_, place)| is_hex(place)) {
            return None;
        }
        let pieces = without_types(pieces(text)?);
        let mut components = vec![Component { before: "", text: Cow::Borrowed("") }];
        for piece in &pieces {
            let piece_text = &text[piece.start..piece.end];
            let is_separator = piece.kind == Kind::Separator;
            match components.last_mut() {
                Some(last) if !is_separator => last.text.to_mut().push_str(&closure(piece, text)),
                Some(_) | None => {
                    components.push(Component { before: piece_text, text: Cow::Borrowed("") });
                }
            }
        }
        let is_name = components.last().is_some_and(|last| !last.text.trim().is_empty());
        is_name.then(|| Self { depth: pieces::depth(text), components })
    }
}

impl Component<'_> {
    fn is_no_name(&self) -> bool {
        let text = &*self.text;
        let is_numbered = |head: &str| {
            let number = text.strip_prefix(head);
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        NO_NAMES.contains(&text)
            || text.starts_with('{')
            || ["", "func", "gowrap", "deferwrap", "$_"].into_iter().any(is_numbered)
    }
}

/// Rust's `<T as Trait>::f` as `T::f`.
fn of_class(components: &[Component<'_>]) -> Option<String> {
    let (first, rest) = components.split_first()?;
    let inner = first.text.strip_prefix('<')?.strip_suffix('>')?;
    let class = inner.split_once(" as ").map_or(inner, |(class, _)| class);
    (!rest.is_empty()).then(|| format!("{class}::{}", join(rest)))
}

/// The components with all arguments left out, and Rust's `<a::T as b::Trait>` as `<T as Trait>`.
fn without_namespaces(mut components: Vec<Component<'_>>) -> Vec<Component<'_>> {
    let short = |text: &str| {
        let text = pieces::elided(text, 1);
        match text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) {
            Some(inner) => {
                let parts: Vec<_> = inner.split(" as ").map(last).collect();
                format!("<{}>", parts.join(" as "))
            }
            None => text,
        }
    };
    for component in &mut components {
        component.text = short(&component.text).into();
    }
    components
}

/// The last component of a path.
fn last(path: &str) -> String {
    let pieces = pieces(path).unwrap_or_default();
    let last = pieces.iter().rfind(|piece| piece.kind == Kind::Separator);
    last.map_or(path, |separator| &path[separator.end..]).to_owned()
}

fn join(components: &[Component<'_>]) -> String {
    let mut joined = String::new();
    for (place, component) in components.iter().enumerate() {
        if 0 < place {
            joined.push_str(component.before);
        }
        joined.push_str(&component.text);
    }
    joined
}

/// Without lists of parameters, what stands behind them, and the type before the name.
fn without_types(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut left: Vec<Piece> = Vec::new();
    let mut is_behind = false;
    let mut had_parameters = false;
    for piece in pieces {
        let follows_name = left
            .last()
            .is_some_and(|last| matches!(last.kind, Kind::Word | Kind::Angles | Kind::Square));
        match piece.kind {
            Kind::Separator => is_behind = false,
            Kind::Parens if follows_name => (is_behind, had_parameters) = (true, true),
            _ => {}
        }
        if !is_behind {
            left.push(piece);
        }
    }
    // Names without parameters have spaces for other reasons.
    let space = left.iter().rposition(|piece| piece.kind == Kind::Space);
    if let Some(space) = space.filter(|space| had_parameters && space + 1 < left.len()) {
        left.drain(..=space);
    }
    left
}

/// The piece, a closure's without its parameters.
fn closure<'a>(piece: &Piece, text: &'a str) -> Cow<'a, str> {
    let piece_text = &text[piece.start..piece.end];
    match (piece.kind, piece_text.find('('), piece_text.rfind(')')) {
        (Kind::Braces, Some(open), Some(close)) if open + 1 < close => {
            format!("{}{}", &piece_text[..=open], &piece_text[close..]).into()
        }
        _ => piece_text.into(),
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
