//! memleak of libbpf-tools, the tool to compare with: the system's, or Debian's package
//! unpacked beside the C library that it was linked with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd::{CommandExt as _, command};

/// The first Debian release that builds it.
const SUITE: &str = "trixie";
const PACKAGES: &[&str] = &["libbpf-tools", "libc6", "libelf1t64", "zlib1g", "libzstd1"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How memleak is started here.
pub(super) enum Memleak {
    Installed(&'static str),
    Unpacked { root: PathBuf },
}

impl Memleak {
    /// Has it watch a process until it is told to end.
    pub(super) fn attach(&self, pid: u32) -> Command {
        let mut attach = self.command();
        attach.args(["-p", &pid.to_string(), "3600"]);
        attach
    }

    fn command(&self) -> Command {
        match self {
            Self::Installed(name) => command(name),
            Self::Unpacked { root } => {
                let libraries = root.join("usr/lib/x86_64-linux-gnu");
                let mut loader = command(libraries.join("ld-linux-x86-64.so.2"));
                loader.arg("--library-path").arg(&libraries).arg(program(root));
                loader
            }
        }
    }
}

/// The system's, or one fetched into `dir`; `None`, with the reason said, when there is none.
pub(super) fn find(dir: &Path) -> Result<Option<Memleak>> {
    for name in ["memleak-libbpf", "memleak"] {
        if command(name).arg("--version").works() {
            return Ok(Some(Memleak::Installed(name)));
        }
    }
    let root = dir.join("memleak");
    if !program(&root).is_file()
        && let Err(why) = fetch(dir, &root)
    {
        eprintln!("memleak cannot be fetched: {why:#}");
        return Ok(None);
    }
    Ok(Some(Memleak::Unpacked { root }))
}

fn program(root: &Path) -> PathBuf {
    root.join("usr/sbin/memleak-libbpf")
}

/// With a source list and list folder of its own: the system's stay as they are.
fn fetch(dir: &Path, root: &Path) -> Result<()> {
    let apt_dir = dir.join("apt");
    fs::create_dir_all(apt_dir.join("lists/partial")).context("apt's folder")?;
    let list = apt_dir.join("sources.list");
    let line = format!("deb [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE} main\n");
    fs::write(&list, line).context("apt's list")?;
    let apt = |args: &[&str]| {
        let mut apt = command("apt-get");
        let option = |key: &str, path: &Path| format!("-o{key}={}", path.display());
        apt.args([
            option("Dir::Etc::sourcelist", &list),
            option("Dir::Etc::sourceparts", Path::new("/dev/null")),
            option("Dir::State::lists", &apt_dir.join("lists")),
            option("Dir::Cache", &apt_dir),
        ]);
        apt.arg("-qq").args(args).current_dir(&apt_dir);
        apt
    };
    println!("Fetching memleak from Debian {SUITE}");
    apt(&["update"]).text()?;
    apt(&["download"]).args(PACKAGES).text()?;
    for entry in fs::read_dir(&apt_dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            command("dpkg").arg("-x").arg(&path).arg(root).run()?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
