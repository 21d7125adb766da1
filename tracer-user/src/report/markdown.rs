//! `summary.md`: the result for a pull request.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::model::{Frame, Kind, Session, Verdict};
use super::{GroupBy, Options, apart, escape, group, memory, names, processes, shorten, widths};
use crate::units::{human_bytes, human_bytes_f64, human_change};

/// Columns of a name in a table; longer ones are shortened.
const NAME_WIDTH: usize = 100;

/// Batches in the table; of more, the last ones.
const MOST_BATCHES: usize = 24;

/// The summary.
pub fn render(session: &Session, options: &Options) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write(&mut out, session, options);
    out
}

fn write(out: &mut String, session: &Session, options: &Options) -> fmt::Result {
    let verdict = match session.verdict {
        Verdict::Pass => "pass",
        Verdict::Growth => "**growth over budget**",
        Verdict::Inconclusive => "**inconclusive**",
        Verdict::Error => "**error**",
    };
    writeln!(out, "## outlive: {verdict}\n")?;
    for reason in &session.reasons {
        writeln!(out, "- {}", escape::markdown(reason))?;
    }
    for notice in &session.notices {
        writeln!(out, "- note: {}", escape::markdown(&notice.text))?;
    }
    total(out, session)?;
    stacks(out, session, options)?;
    mappings(out, session, options.top)?;
    memory(out, session)?;
    tree(out, session, options.top)?;
    batches(out, session)?;
    losses(out, session)?;
    origin(out, session)
}

fn total(out: &mut String, session: &Session) -> fmt::Result {
    let growth = &session.growth;
    let interval = growth.interval.map_or_else(
        || "none".to_owned(),
        |[low, high]| format!("{} to {}", human_bytes_f64(low), human_bytes_f64(high)),
    );
    writeln!(
        out,
        "\n| growth | per batch | interval | budget per batch | blocks | grown | shrunk |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|---:|---:|")?;
    writeln!(
        out,
        "| {} | {} | {interval} | {} | {} | {} | {} |",
        human_change(growth.heap_bytes),
        human_bytes_f64(growth.heap_bytes_per_batch),
        human_bytes(session.budget.heap_bytes_per_batch),
        growth.heap_blocks,
        human_bytes(growth.grown_bytes),
        human_bytes(growth.shrunk_bytes),
    )
}

fn stacks(out: &mut String, session: &Session, options: &Options) -> fmt::Result {
    let grown = group::grown(&session.stacks, options.group_by);
    if grown.is_empty() {
        return writeln!(out, "\nNo stack grew after the warm-up.");
    }
    let noun = options.group_by.noun();
    writeln!(out, "\n| {noun} | bytes | blocks | source |\n|---|---:|---:|---|")?;
    let shown = || grown.iter().take(options.top);
    let names: Vec<_> =
        shown().map(|row| (short(&row.name), source(row.file, row.line), row.frames)).collect();
    for ((name, source), row) in told_apart(&names, options.group_by).into_iter().zip(shown()) {
        writeln!(out, "| {name} | {} | {} | {source} |", row.bytes, row.blocks)?;
    }
    match grown.len().saturating_sub(options.top) {
        0 => Ok(()),
        more => writeln!(out, "\n{more} more in `session.json`."),
    }
}

/// A name as it is shown, not escaped for Markdown.
fn short(name: &str) -> String {
    shorten::name(&escape::terminal(name), NAME_WIDTH)
}

/// Cells of names and sources; of rows that would be the same, with what tells them apart.
fn told_apart(rows: &[(String, String, &[Arc<Frame>])], by: GroupBy) -> Vec<(String, String)> {
    let texts: Vec<_> = rows.iter().map(|(name, source, _)| format!("{name} {source}")).collect();
    let frames = rows.iter().map(|(.., frames)| *frames);
    let marks = apart::marks(&texts.iter().map(String::as_str).zip(frames).collect::<Vec<_>>(), by);
    let each = rows.iter().zip(marks).map(|((name, source, _), marks)| {
        let name = match apart::line(&marks, NAME_WIDTH) {
            marks if marks.is_empty() => escape::markdown_cell(name),
            marks => escape::markdown_cell(&format!("{name} {marks}")),
        };
        (name, source.clone())
    });
    each.collect()
}

/// Where a function is, for a cell.
fn source(file: Option<&str>, line: Option<u32>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => escape::markdown_cell(&format!("{file}:{line}")),
        (Some(file), None) => escape::markdown_cell(file),
        (None, _) => String::new(),
    }
}

fn mappings(out: &mut String, session: &Session, top: usize) -> fmt::Result {
    let grown: Vec<_> = session.mappings.iter().filter(|mapping| 0 < mapping.bytes).collect();
    if grown.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| mapped by | kind | bytes | count | source |\n|---|---|---:|---:|---|")?;
    let shown = || grown.iter().take(top);
    let named = |frames| {
        let best = names::best(frames);
        let file = best.and_then(|frame| frame.file.as_deref());
        let source = source(file, best.and_then(|frame| frame.line));
        (short(&names::of_stack(frames)), source, frames)
    };
    let names: Vec<_> = shown().map(|mapping| named(&*mapping.frames)).collect();
    for ((name, source), mapping) in told_apart(&names, GroupBy::Stack).into_iter().zip(shown()) {
        let kind = escape::markdown_cell(&mapping.kind);
        writeln!(out, "| {name} | {kind} | {} | {} | {source} |", mapping.bytes, mapping.blocks)?;
    }
    match grown.len().saturating_sub(top) {
        0 => Ok(()),
        more => writeln!(out, "\n{more} more in `session.json`."),
    }
}

fn memory(out: &mut String, session: &Session) -> fmt::Result {
    let parts = memory::parts(session);
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| memory | at the end | added |\n|---|---:|---:|")?;
    for part in parts {
        let now = part.now.map_or_else(|| "unknown".to_owned(), human_bytes);
        let added = part.added.map_or_else(|| "unknown".to_owned(), human_change);
        writeln!(out, "| {} | {now} | {added} |", part.name)?;
    }
    Ok(())
}

fn tree(out: &mut String, session: &Session, top: usize) -> fmt::Result {
    let lines = processes::lines(session);
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| process | bytes | made by |\n|---|---:|---|")?;
    for line in lines.iter().take(top) {
        let name = format!("{} {}", line.who, widths::shorten(&line.exe, NAME_WIDTH));
        let name = escape::markdown_cell(&name);
        let maker = line.made_by.as_deref().unwrap_or_default();
        let maker = escape::markdown_cell(&shorten::name(maker, NAME_WIDTH));
        let indent = "&nbsp;&nbsp;".repeat(line.depth.min(8));
        writeln!(out, "| {indent}{name} | {} | {maker} |", line.bytes)?;
    }
    match lines.len().saturating_sub(top) {
        0 => Ok(()),
        more => writeln!(out, "\n{more} more lines of processes in `session.json`."),
    }
}

fn batches(out: &mut String, session: &Session) -> fmt::Result {
    writeln!(out, "\n| batch | | outstanding | blocks | allocated | freed blocks | resident |")?;
    writeln!(out, "|---:|---|---:|---:|---:|---:|---:|")?;
    let n_left_out = session.batches.len().saturating_sub(MOST_BATCHES);
    for batch in session.batches.iter().skip(n_left_out) {
        let kind = match batch.kind {
            Kind::Warmup => "warm-up",
            Kind::Measured => "",
        };
        let resident = batch.rss_bytes.map_or_else(|| "unknown".to_owned(), human_bytes);
        let label = escape::markdown_cell(&batch.label);
        let name = format!("{kind} {label}");
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {resident} |",
            batch.index,
            name.trim(),
            human_bytes(batch.heap_bytes),
            batch.heap_blocks,
            human_bytes(batch.allocated_bytes),
            batch.freed_blocks,
        )?;
    }
    match n_left_out {
        0 => Ok(()),
        earlier => writeln!(out, "\n{earlier} earlier batches in `session.json`."),
    }
}

fn losses(out: &mut String, session: &Session) -> fmt::Result {
    let lost: Vec<String> = session
        .losses
        .iter()
        .filter(|(_, count)| 0 < **count)
        .map(|(key, count)| format!("{} {count}", escape::markdown_code(key)))
        .collect();
    match lost.as_slice() {
        [] => writeln!(out, "\nLost: nothing."),
        lost => writeln!(out, "\n**Lost: {}.**", lost.join(", ")),
    }
}

fn origin(out: &mut String, session: &Session) -> fmt::Result {
    let words: Vec<String> = session.command.iter().map(|word| shell_word(word)).collect();
    let command = escape::markdown_code(&words.join(" "));
    writeln!(out, "\nCommand: {command}\n")?;
    writeln!(
        out,
        "Target: {}, pid {}, Linux {}. {} {}, started {}, {:.1} s.",
        escape::markdown_code(&session.target.exe),
        session.target.pid,
        escape::markdown(&session.target.kernel),
        escape::markdown(&session.tool.name),
        escape::markdown(&session.tool.version),
        escape::markdown(&session.started),
        session.duration_s,
    )
}

/// The word as a shell would need it.
fn shell_word(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:,+@%".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests;
