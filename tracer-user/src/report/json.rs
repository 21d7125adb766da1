//! `session.json`: the whole model, written and read back.

use std::io::{self, BufReader, Read, Seek, Write};

use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

use super::frames;
use super::model::{SCHEMA, Session};

/// Why bytes are no session.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No JSON, or JSON of something else.
    #[error("not a session file: {0}; give the folder that an outlive run wrote with -o")]
    Json(#[from] serde_json::Error),
    /// A session of another version.
    #[error(
        "session file of schema `{found}`, this version reads `{SCHEMA}`; \
         use the version of outlive that wrote it"
    )]
    Schema {
        /// What the file says of itself.
        found: String,
    },
}

/// The model as JSON, one field a line, one frame a line.
///
/// # Errors
/// When it cannot be written. A model of this version can always be made JSON: its keys are strings.
pub fn write(session: &Session, mut out: impl Write) -> io::Result<()> {
    let lines = Lines { pretty: PrettyFormatter::new(), depth: 0 };
    session.serialize(&mut Serializer::with_formatter(&mut out, lines))?;
    out.write_all(b"\n")
}

/// The model as JSON, in memory.
///
/// # Errors
/// Never for a model of this version; the serializer's type says less.
pub fn render(session: &Session) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(session, &mut bytes)?;
    Ok(bytes)
}

/// How deep a frame lies: in a list of frames, of a stack, of the stacks, of the session.
const FRAME: usize = 5;

/// One field a line, but of what lies as deep as a frame all fields on one: a large session has
/// millions of them.
struct Lines {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.pretty.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.pretty.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.depth < FRAME { self.pretty.begin_object(out) } else { out.write_all(b"{") }
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth + 1 < FRAME { self.pretty.end_object(out) } else { out.write_all(b"}") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match (self.depth < FRAME, first) {
            (true, _) => self.pretty.begin_object_key(out, first),
            (false, true) => Ok(()),
            (false, false) => out.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        // What it notes only matters to the object's end, which is of the same kind.
        if self.depth < FRAME { self.pretty.end_object_value(out) } else { Ok(()) }
    }
}

/// Reads what [`write()`] wrote, which may be longer than what it holds takes in memory: it is read
/// as a stream. Fields that this version does not know are ignored.
///
/// # Errors
/// When it is no JSON, when fields are missing, or when it is of another schema.
pub fn read(mut from: impl Read + Seek) -> Result<Session, ReadError> {
    /// What every version has.
    #[derive(serde::Deserialize)]
    struct Head {
        schema: String,
    }
    let session: Result<Session, _> = serde_json::from_reader(BufReader::new(&mut from));
    frames::forget();
    let found = match &session {
        Ok(session) => Some(session.schema.clone()),
        // Another version may lack what this one needs, and should be told so.
        Err(_) => {
            from.rewind().map_err(serde_json::Error::io)?;
            serde_json::from_reader(BufReader::new(from)).ok().map(|Head { schema }| schema)
        }
    };
    match found {
        Some(found) if found != SCHEMA => Err(ReadError::Schema { found }),
        Some(_) | None => Ok(session?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::report::sample;

    fn read_bytes(bytes: &[u8]) -> Result<Session, ReadError> {
        read(io::Cursor::new(bytes))
    }

    #[test]
    fn what_is_written_is_read_back() {
        for session in [sample::leaking(), sample::clean(), sample::nasty(), sample::huge()] {
            let bytes = render(&session).expect("plain data");
            assert_eq!(read_bytes(&bytes).expect("a session"), session);
        }
    }

    #[test]
    fn frames_are_a_line_each_and_shared() {
        let mut session = sample::leaking();
        let frames = session.stacks[0].frames.clone();
        session.stacks[1].frames = frames.iter().map(|frame| Arc::new((**frame).clone())).collect();
        let bytes = render(&session).expect("plain data");
        let text = std::str::from_utf8(&bytes).expect("UTF-8");
        let lines = text.lines().filter(|line| line.contains("\"address\": \"0x"));
        let of_stacks = session.stacks.iter().map(|stack| stack.frames.len());
        let of_mappings = session.mappings.iter().map(|mapping| mapping.frames.len());
        let n_frames: usize = of_stacks.chain(of_mappings).sum();
        assert_eq!(
            lines.filter(|line| line.trim().starts_with("{\"function\": ")).count(),
            n_frames
        );
        let read = read_bytes(&bytes).expect("a session");
        for (one, other) in read.stacks[0].frames.iter().zip(&read.stacks[1].frames) {
            assert!(Arc::ptr_eq(one, other));
        }
    }

    #[test]
    fn another_schema_is_refused_in_words() {
        let mut session = sample::clean();
        session.schema = "outlive.session/2".to_owned();
        let err = read_bytes(&render(&session).expect("plain data")).expect_err("another schema");
        assert_eq!(
            err.to_string(),
            "session file of schema `outlive.session/2`, this version reads `outlive.session/1`; \
             use the version of outlive that wrote it"
        );
        assert!(
            read_bytes(b"{\"schema\": \"outlive.session/2\"}")
                .is_err_and(|err| matches!(err, ReadError::Schema { .. }))
        );
    }

    #[test]
    fn what_is_no_session_is_refused_in_words() {
        for bytes in [&b""[..], b"{}", b"[1]", b"{\"schema\": \"outlive.session/1\"}", b"\xff"] {
            let err = read_bytes(bytes).expect_err("no session").to_string();
            assert!(err.starts_with("not a session file: "), "{err}");
        }
    }

    #[test]
    fn a_file_from_before_there_were_mappings_and_processes_is_read() {
        let bytes = render(&sample::leaking()).expect("plain data");
        let mut old: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        let remove = |object: &mut serde_json::Value, names: &[&str]| {
            let object = object.as_object_mut().expect("an object");
            for name in names {
                object.remove(*name).expect("a field");
            }
        };
        remove(&mut old, &["mappings"]);
        remove(&mut old["growth"], &["mapped_bytes", "ended_bytes", "ended_blocks"]);
        remove(&mut old, &["processes", "processes_omitted", "holds", "pauses", "stack_quality"]);
        for stack in old["stacks"].as_array_mut().expect("a list") {
            remove(stack, &["end"]);
        }
        for batch in old["batches"].as_array_mut().expect("a list") {
            let sizes = ["pss", "anonymous", "swap", "mapped", "arena", "shared", "file"];
            let names: Vec<_> = sizes.iter().map(|size| format!("{size}_bytes")).collect();
            remove(batch, &names.iter().map(String::as_str).collect::<Vec<_>>());
            remove(
                batch,
                &["thread_stack_bytes", "reserved_bytes", "retained_bytes", "inherited_frees"],
            );
        }
        let session = read_bytes(old.to_string().as_bytes()).expect("a session");
        assert_eq!((session.mappings.len(), session.batches[0].retained_bytes), (0, None));
    }

    #[test]
    fn fields_keep_their_names() {
        let value: serde_json::Value =
            serde_json::from_slice(&render(&sample::leaking()).expect("plain data")).expect("JSON");
        let keys = |value: &serde_json::Value| {
            let mut keys: Vec<String> =
                value.as_object().expect("an object").keys().cloned().collect();
            keys.sort();
            keys.join(" ")
        };
        assert_eq!(
            keys(&value),
            "batches budget command duration_s exit_code growth holds losses mappings measured \
             notices pauses processes processes_omitted reasons schema stack_quality stacks started target \
             tool verdict \
             warmup"
        );
        assert_eq!(
            keys(&value["batches"][0]),
            "allocated_blocks allocated_bytes anonymous_bytes arena_bytes duration_s file_bytes \
             freed_blocks heap_blocks heap_bytes index inherited_frees kind label mapped_bytes pss_bytes \
             reserved_bytes retained_bytes rss_bytes shared_bytes swap_bytes thread_stack_bytes \
             units unmatched_frees"
        );
        assert_eq!(
            keys(&value["growth"]),
            "ended_blocks ended_bytes grown_bytes heap_blocks heap_bytes heap_bytes_per_batch \
             interval mapped_bytes shrunk_bytes"
        );
        assert_eq!(
            keys(&value["processes"][0]),
            "discarded_bytes ended exe growth held_s made_by pid ppid started"
        );
        assert_eq!(keys(&value["processes"][0]["growth"]), "heap_blocks heap_bytes mapped_bytes");
        assert_eq!(keys(&value["stacks"][0]), "blocks bytes end family frames per_batch");
        assert_eq!(keys(&value["stack_quality"]), "broken broken_in depth_limit whole");
        assert_eq!(keys(&value["stack_quality"]["whole"]), "bytes stacks");
        assert_eq!(value["stacks"][0]["end"], "whole");
        assert_eq!(
            keys(&value["stacks"][0]["frames"][0]),
            "address file function inlined line object offset"
        );
        assert_eq!(
            (&value["verdict"], &value["batches"][0]["kind"]),
            (&"growth".into(), &"warmup".into())
        );
    }
}
