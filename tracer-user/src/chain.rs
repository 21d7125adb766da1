//! An error and its causes in one line.

use std::error::Error;

/// The error, then each cause that was not said yet: many messages name their cause already.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("no room").context("cannot write x: no room; free some");
        assert_eq!(chain(error.as_ref()), "cannot write x: no room; free some");
        let error = Err::<(), _>(anyhow!("no room")).context("cannot write x").unwrap_err();
        assert_eq!(chain(error.as_ref()), "cannot write x: no room");
    }
}
