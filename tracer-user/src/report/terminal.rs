//! The result for a terminal: what grew, by how much, the verdict, and what to doubt.

mod named;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use self::named::Named;
use super::group::{self, GroupBy, Row};
use super::model::{Frame, Holds, Mapping, Session, StackQuality, Verdict};
use super::wrap::wrap;
use super::{Options, apart, escape, memory, names, processes, widths};
use crate::units::{human_bytes, human_bytes_f64, human_change, plural};

/// Columns below which the table would not fit.
const NARROWEST: usize = 50;

/// Deepest generation that is moved to the right.
const MOST_INDENTS: usize = 8;

/// Before the later lines of a text.
const INDENT: &str = "  ";

/// The result of a session whose files are in `folder`.
pub fn render(session: &Session, folder: &Path, options: &Options) -> String {
    let mut text =
        Text { out: String::new(), width: options.width.max(NARROWEST), color: options.color };
    text.table(session, options);
    text.mappings(session, options.top);
    text.total(session);
    text.memory(session);
    text.processes(session, options.top);
    text.verdict(session);
    text.losses(session);
    for notice in &session.notices {
        text.wrapped("note: ", Style::Dim, &notice.text);
    }
    text.line(&format!("files: {}", escape::terminal(&folder.to_string_lossy())));
    text.out
}

/// A stack of a running target, for the live form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// Requested bytes outstanding.
    pub bytes: u64,
    /// Blocks outstanding.
    pub blocks: u64,
    /// From the allocator's caller outwards; empty when the stack was lost.
    pub frames: Vec<Arc<Frame>>,
}

/// What is outstanding at `time` (`HH:MM:SS`), the stacks in the order that they are given.
pub fn live(time: &str, stacks: &[Outstanding], options: &Options) -> String {
    let mut text =
        Text { out: String::new(), width: options.width.max(NARROWEST), color: options.color };
    let shown = stacks.get(..options.top).unwrap_or(stacks);
    text.heading(&format!("[{time}] Top {} stacks with outstanding allocations:", shown.len()));
    for stack in shown {
        let Outstanding { bytes, blocks, frames } = stack;
        text.line(&format!("    {bytes} bytes in {blocks} allocations from stack"));
        if frames.is_empty() {
            text.line(&format!("        {}", names::LOST));
        }
        for frame in frames {
            let mut named = Named::new(&names::of(frame), frame.file.as_deref(), frame.line);
            if frame.inlined {
                named.name.push_str(" (inlined)");
            }
            let line = format!("        {}", named.within(text.width - 8));
            text.line(&line);
        }
    }
    text.out
}

#[derive(Clone, Copy)]
enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "1;31",
            Self::Green => "1;32",
            Self::Yellow => "1;33",
        }
    }
}

/// Figures, what they are of, and its frames.
type Line<'a> = ([String; 3], Named, &'a [Arc<Frame>]);

/// What a table is of.
struct Rows<'a> {
    lines: Vec<Line<'a>>,
    by: GroupBy,
    top: usize,
}

struct Text {
    out: String,
    width: usize,
    color: bool,
}

impl Text {
    fn table(&mut self, session: &Session, options: &Options) {
        let grown = group::grown(&session.stacks, options.group_by);
        if grown.is_empty() {
            self.heading("No stack grew after the warm-up.");
            return;
        }
        let title = format!("{} that grew most", options.group_by.heading());
        let named = |row: &Row<'_>| Named::new(&row.name, row.file, row.line);
        let lines = grown.iter().map(|row| (figures(row), named(row), row.frames)).collect();
        let noun = options.group_by.noun().to_uppercase();
        let rows = Rows { lines, by: options.group_by, top: options.top };
        self.rows(&title, ["BYTES", "BLOCKS", "PER BATCH", &noun], &rows);
    }

    fn mappings(&mut self, session: &Session, top: usize) {
        let grown = session.mappings.iter().filter(|mapping| 0 < mapping.bytes);
        let line =
            |mapping| (of_mapping(mapping), Named::of_stack(&mapping.frames), &*mapping.frames);
        let rows = Rows { lines: grown.map(line).collect(), by: GroupBy::Stack, top };
        if !rows.lines.is_empty() {
            self.rows("Mappings that grew most", ["BYTES", "COUNT", "KIND", "STACK"], &rows);
        }
    }

    /// A table of figures and what they are of.
    fn rows(&mut self, title: &str, heads: [&str; 4], rows: &Rows<'_>) {
        let Rows { lines, by, top } = rows;
        let shown = lines.get(..*top).unwrap_or(lines);
        self.heading(&match shown.len() < lines.len() {
            true => format!("{title} ({} of {}):", shown.len(), lines.len()),
            false => format!("{title}:"),
        });
        let [first, second, third, noun] = heads;
        let heads = [first, second, third].map(str::to_owned);
        let columns: [usize; 3] = std::array::from_fn(|column| {
            let cells = std::iter::once(&heads).chain(shown.iter().map(|(cells, ..)| cells));
            cells.map(|cells| widths::of(&cells[column])).max().unwrap_or(0)
        });
        let row = |cells: &[String; 3]| {
            let cells = cells.iter().zip(columns);
            cells.map(|(cell, width)| widths::pad_left(cell, width) + "  ").collect::<String>()
        };
        let figures_width = columns.iter().map(|width| width + 2).sum::<usize>() + 2;
        let head = format!("  {}{noun}", row(&heads));
        self.styled(Style::Dim, &head);
        let room = self.width.saturating_sub(figures_width);
        let names: Vec<_> = shown.iter().map(|(_, named, _)| named.within(room)).collect();
        let frames = shown.iter().map(|(.., frames)| *frames);
        let marks =
            apart::marks(&names.iter().map(String::as_str).zip(frames).collect::<Vec<_>>(), *by);
        for (((cells, ..), name), marks) in shown.iter().zip(names).zip(marks) {
            let line = format!("  {}{name}", row(cells));
            let beside = room.saturating_sub(widths::of(&name) + 1);
            match apart::line(&marks, room) {
                marks if marks.is_empty() => self.line(&line),
                marks if widths::of(&marks) <= beside => self.line(&format!("{line} {marks}")),
                _ => {
                    self.line(&line);
                    let indent = " ".repeat(figures_width + 2);
                    for marks in apart::lines(&marks, room.saturating_sub(2)) {
                        self.line(&format!("{indent}{marks}"));
                    }
                }
            }
        }
    }

    /// What the process's memory is made of.
    fn memory(&mut self, session: &Session) {
        let parts = memory::parts(session);
        if parts.is_empty() {
            return;
        }
        self.heading("Memory at the end, and what was added:");
        let unknown = || "unknown".to_owned();
        for part in parts {
            let now = part.now.map_or_else(unknown, human_bytes);
            let added = part.added.map_or_else(unknown, human_change);
            let (now, added) = (widths::pad_left(&now, 10), widths::pad_left(&added, 10));
            self.line(&format!("  {now}  {added}  {}", part.name));
        }
    }

    fn processes(&mut self, session: &Session, top: usize) {
        let lines = processes::lines(session);
        if lines.is_empty() {
            return;
        }
        let n_running = session.processes.iter().filter(|process| process.ended.is_none()).count();
        self.heading(&format!(
            "Processes ({n_running} of {} run; {} went with those that ended):",
            session.processes.len(),
            human_bytes(session.growth.ended_bytes)
        ));
        for line in lines.iter().take(top) {
            let grown = widths::pad_left(&human_change(line.bytes), 10);
            let maker = line.made_by.as_ref();
            let maker = maker.map_or_else(String::new, |maker| format!("  made by {maker}"));
            let name = format!("{} {}{maker}", line.who, line.exe);
            let indent = " ".repeat(2 * line.depth.min(MOST_INDENTS));
            let room = self.width.saturating_sub(14 + indent.len());
            let name = widths::shorten(&escape::terminal(&name), room);
            self.line(&format!("  {grown}  {indent}{name}"));
        }
        if top < lines.len() {
            self.line(&format!("  {} more lines in session.json", lines.len() - top));
        }
        let Holds { count, longest_s, total_s } = session.holds;
        if 0 < count {
            let (longest, total) = (longest_s * 1e3, total_s * 1e3);
            self.line(&format!(
                "  stopped for their probes {count} times, {longest:.1} ms at most, {total:.0} ms in \
                 all"
            ));
        }
    }

    fn total(&mut self, session: &Session) {
        let growth = &session.growth;
        let mut total = format!(
            "Total: {} bytes ({}) in {} {} over {} measured {}",
            growth.heap_bytes,
            human_change(growth.heap_bytes),
            growth.heap_blocks,
            plural(growth.heap_blocks.unsigned_abs(), "block", "blocks"),
            session.measured,
            plural(session.measured.into(), "batch", "batches"),
        );
        // Writing to a `String` cannot fail.
        let _ = write!(total, "; {} per batch", human_bytes_f64(growth.heap_bytes_per_batch));
        if let Some([low, high]) = growth.interval {
            let _ =
                write!(total, ", interval {} to {}", human_bytes_f64(low), human_bytes_f64(high));
        }
        self.wrapped("", Style::Bold, &total);
        let quality = &session.stack_quality;
        let StackQuality { whole, depth_limit, broken, .. } = quality;
        match (whole.stacks, depth_limit.stacks, broken.stacks) {
            (0, 0, 0) => {}
            (whole, 0, 0) => self.line(&format!("Stacks: {whole} distinct, all whole")),
            (whole, deep, broken) => self.line(&format!(
                "Stacks: {} distinct, {whole} whole, {deep} at the depth limit, {broken} broken",
                quality.n_stacks()
            )),
        }
        if 0 < growth.shrunk_bytes {
            self.line(&format!(
                "Grown {}, shrunk {}, net {}",
                human_bytes(growth.grown_bytes),
                human_bytes(growth.shrunk_bytes),
                human_change(growth.heap_bytes)
            ));
        }
    }

    fn verdict(&mut self, session: &Session) {
        let (word, style) = match session.verdict {
            Verdict::Pass => ("PASS: ", Style::Green),
            Verdict::Growth => ("GROWTH: ", Style::Red),
            Verdict::Inconclusive => ("INCONCLUSIVE: ", Style::Yellow),
            Verdict::Error => ("ERROR: ", Style::Red),
        };
        if session.reasons.is_empty() {
            self.wrapped(word, style, "no reason is given");
        }
        for reason in &session.reasons {
            self.wrapped(word, style, reason);
        }
    }

    fn losses(&mut self, session: &Session) {
        let lost: Vec<String> = session
            .losses
            .iter()
            .filter(|(_, count)| 0 < **count)
            .map(|(key, count)| format!("{} {count}", escape::terminal(key)))
            .collect();
        if !lost.is_empty() {
            self.wrapped("lost: ", Style::Yellow, &lost.join(", "));
        }
    }

    fn heading(&mut self, text: &str) {
        self.styled(Style::Bold, text);
    }

    fn styled(&mut self, style: Style, text: &str) {
        let text = self.paint(style, text);
        self.line(&text);
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// The text after a styled word, broken at spaces, later lines indented.
    fn wrapped(&mut self, word: &str, style: Style, text: &str) {
        let text = escape::terminal(text);
        let lines = wrap(&text, self.width, widths::of(word), INDENT.len());
        let word = self.paint(style, word);
        for (place, line) in lines.iter().enumerate() {
            self.line(&format!("{}{line}", if place == 0 { &word } else { INDENT }));
        }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        match self.color && !text.is_empty() {
            true => format!("\x1b[{}m{text}\x1b[0m", style.code()),
            false => text.to_owned(),
        }
    }
}

fn figures(row: &Row<'_>) -> [String; 3] {
    let n_batches = row.per_batch.len().max(1) as f64;
    [
        human_change(row.bytes),
        row.blocks.to_string(),
        human_bytes_f64((row.bytes as f64 / n_batches).round()),
    ]
}

fn of_mapping(mapping: &Mapping) -> [String; 3] {
    let kind = escape::terminal(&mapping.kind).into_owned();
    [human_change(mapping.bytes), mapping.blocks.to_string(), kind]
}

#[cfg(test)]
mod tests;
