//! Packages of Debian's suites, without a change to the system's own package lists.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd::command;

/// apt with lists of its own.
pub(crate) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Keeps its lists in `dir`.
    pub(crate) fn new(dir: &Path, suite: &str) -> Result<Self> {
        let lists = dir.join("lists");
        fs::create_dir_all(lists.join("partial")).with_context(|| lists.display().to_string())?;
        let sources = dir.join("sources.list");
        fs::write(&sources, format!("deb http://deb.debian.org/debian {suite} main\n"))
            .with_context(|| sources.display().to_string())?;
        let options = [
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", lists.display()),
            // The caches belong to the system's lists.
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
            // Fetched by root into a folder of this user's.
            "APT::Sandbox::User=root".to_owned(),
        ];
        Ok(Self {
            options: options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect(),
        })
    }

    /// A call of one of its programs.
    pub(crate) fn call(&self, program: &str) -> Command {
        let mut apt = command(program);
        apt.args(&self.options);
        apt
    }
}
