//! One request and one reply, each a line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bytes of a request at the most.
pub(super) const MAX_LINE: usize = 64 << 10;
/// Bytes of a label at the most.
pub const MAX_LABEL: usize = 200;
/// Units of one mark at the most.
const MAX_UNITS: usize = 100;

/// Ends a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkRequest {
    /// Name of the batch that ends.
    pub label: String,
    /// Work that was done in it.
    #[serde(default)]
    pub units: BTreeMap<String, f64>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkReply {
    /// The batch is closed: everything that the target did before the mark is in it.
    Closed {
        /// Its place in the sequence, from zero.
        index: u32,
        /// Outstanding bytes at its end.
        heap_bytes: u64,
        /// Outstanding blocks at its end.
        heap_blocks: u64,
    },
    /// Nothing was done.
    Refused {
        /// Why.
        reason: String,
    },
}

/// Reads a request.
///
/// # Errors
/// A sentence for whoever sent it.
pub(crate) fn parse(line: &[u8]) -> Result<MarkRequest, String> {
    let request: MarkRequest =
        serde_json::from_slice(line).map_err(|error| format!("not a mark: {error}"))?;
    if request.label.len() > MAX_LABEL {
        return Err(format!("the label is longer than {MAX_LABEL} bytes"));
    }
    if request.units.len() > MAX_UNITS {
        return Err(format!("more than {MAX_UNITS} units"));
    }
    Ok(request)
}

/// Reads what came of one.
///
/// # Errors
/// When it is none.
pub(crate) fn parse_reply(answer: &[u8]) -> serde_json::Result<MarkReply> {
    serde_json::from_slice(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_read_and_limits_hold() {
        let request = parse(br#"{"label":"batch-7","units":{"sessions":12}}"#).expect("a mark");
        assert_eq!((request.label.as_str(), request.units["sessions"]), ("batch-7", 12.0));
        assert!(parse(br#"{"units":{}}"#).is_err());
        assert!(parse(br#"{"label":"a","extra":1}"#).is_err());
        let long = format!(r#"{{"label":"{}"}}"#, "x".repeat(MAX_LABEL + 1));
        assert!(parse(long.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }
    }
}
