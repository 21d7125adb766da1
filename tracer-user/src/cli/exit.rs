//! Errors → exit codes, in one place.

use crate::{
    control::ClientError,
    exit::{ENVIRONMENT, TARGET, USAGE},
    probes::{ProbeError, rights::RightsError},
    report::folder::FolderError,
    session::DriveError,
    target::{Class, allocators::AllocatorError, launch::LaunchError, process::ProcessError},
};

/// The exit code of an error, by the innermost cause that has one.
pub(super) fn code_of(error: &anyhow::Error) -> u8 {
    error.chain().rev().find_map(code_of_cause).unwrap_or(ENVIRONMENT)
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let of_class = |class: Class| match class {
        Class::Usage => USAGE,
        Class::Environment => ENVIRONMENT,
        Class::Target => TARGET,
    };
    if let Some(error) = cause.downcast_ref::<ProcessError>() {
        return Some(of_class(error.class()));
    }
    if let Some(error) = cause.downcast_ref::<AllocatorError>() {
        return Some(of_class(error.class()));
    }
    if let Some(error) = cause.downcast_ref::<LaunchError>() {
        return Some(of_class(error.class()));
    }
    if let Some(error) = cause.downcast_ref::<FolderError>() {
        return Some(match error {
            FolderError::NotASession { .. }
            | FolderError::Read { .. }
            | FolderError::Parse { .. } => USAGE,
            FolderError::Create { .. }
            | FolderError::Full { .. }
            | FolderError::Write { .. }
            | FolderError::Render { .. } => ENVIRONMENT,
        });
    }
    if cause.is::<DriveError>() || cause.is::<ClientError>() {
        return Some(TARGET);
    }
    (cause.is::<ProbeError>() || cause.is::<RightsError>()).then_some(ENVIRONMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn each_kind_of_error_has_its_code() {
        let cases: [(anyhow::Error, u8); 5] = [
            (anyhow!(RightsError::NoBtf), ENVIRONMENT),
            (anyhow!(ProbeError::Absent { name: "mark" }), ENVIRONMENT),
            (anyhow!(DriveError::Silent { awaited: "DONE" }), TARGET),
            (anyhow!(ClientError::NotTraced { pid: 1 }), TARGET),
            (anyhow!(FolderError::NotASession { path: "x".into() }), USAGE),
        ];
        for (error, code) in cases {
            let text = error.to_string();
            assert_eq!(code_of(&error), code, "{text}");
            assert_eq!(code_of(&Err::<(), _>(error).context("while").unwrap_err()), code, "{text}");
        }
        assert_eq!(code_of(&anyhow!("nobody foresaw this")), ENVIRONMENT);
    }
}
