//! What a test needs of the machine. A need that is missing shows as an ignored test with its
//! reason, or fails the test where `OUTLIVE_TESTS_REQUIRE_ALL=1` is set, as on a build server,
//! unless nobody could install it there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root, and a kernel that describes its types: probes can be loaded.
    Bpf,
    /// A C compiler.
    C,
    /// A C++ compiler.
    Cpp,
    /// `rustc`.
    Rust,
    /// `musl-gcc`, of the package musl-tools.
    Musl,
    /// jemalloc, with its static library (libjemalloc-dev).
    Jemalloc,
    /// tcmalloc (libtcmalloc-minimal4).
    Tcmalloc,
    /// mimalloc (libmimalloc-dev).
    Mimalloc,
    /// SQLite's library (libsqlite3-dev).
    Sqlite,
    /// SQLite's shell (sqlite3).
    SqliteShell,
    /// OpenSSL's library (libssl-dev).
    Openssl,
    /// The lld linker, for programs that another linker laid out.
    Lld,
    /// `llvm-dwp`, which packs debug information (llvm).
    LlvmDwp,
    /// A compiler that makes 32-bit programs, and a kernel that runs them.
    Bits32,
    /// `python3` with the headers for extensions.
    PythonHeaders,
    /// `python3` of the system.
    Python,
    /// `python3.12`, which Debian 12 does not have.
    Python312,
    /// Python 3.13 of Debian 13, unpacked by `cargo xtask setup --test`.
    Python313,
    /// Python 3.14 of Debian's next release, unpacked likewise.
    Python314,
    /// `node` and `npm`.
    Node,
    /// `go`.
    Go,
    /// `java` and `javac` of one JDK (openjdk-17-jdk-headless).
    Java,
    /// `redis-server`.
    Redis,
    /// `nginx` (nginx-light).
    Nginx,
    /// `gunicorn`.
    Gunicorn,
    /// The programs of a PostgreSQL server (postgresql).
    Postgres,
    /// `make`.
    Make,
    /// `setpriv`, `unshare`, `mount`: to be less than root, or elsewhere.
    Namespaces,
    /// `setcap`, of the package libcap2-bin.
    Capabilities,
    /// `gdb`, with Python in it.
    Gdb,
    /// `strace`.
    Strace,
    /// A C library with the C23 deallocators.
    SizedFree,
    /// More than 6 GiB of memory, so that the kernel promises 5 GiB.
    LargeMemory,
}

impl Need {
    /// Can it be had on any machine that traces at all? What comes with a newer system or more
    /// memory cannot.
    pub const fn can_be_installed(self) -> bool {
        !matches!(self, Self::SizedFree | Self::LargeMemory | Self::Python312)
    }

    /// Is it there?
    ///
    /// # Errors
    /// What is missing, and what to install.
    pub fn check(self) -> Result<(), String> {
        match self {
            Self::Bpf => root_and_types(),
            Self::C => runs("cc", &["--version"], "install gcc"),
            Self::Cpp => runs("c++", &["--version"], "install g++"),
            Self::Rust => runs("rustc", &["--version"], "install Rust"),
            Self::Musl => runs("musl-gcc", &["--version"], "install musl-tools"),
            Self::Jemalloc => links(&["-l:libjemalloc.a", "-ljemalloc"], "libjemalloc-dev"),
            Self::Tcmalloc => links(&["-l:libtcmalloc_minimal.so.4"], "libtcmalloc-minimal4"),
            Self::Mimalloc => links(&["-lmimalloc"], "libmimalloc-dev"),
            Self::Sqlite => links(&["-lsqlite3"], "libsqlite3-dev"),
            Self::SqliteShell => runs("/usr/bin/sqlite3", &["-version"], "install sqlite3"),
            Self::Openssl => links(&["-lcrypto"], "libssl-dev"),
            Self::Lld => runs("ld.lld", &["--version"], "install lld"),
            Self::LlvmDwp => runs("llvm-dwp", &["--version"], "install llvm"),
            Self::Bits32 => crate::build::Build::c("bare32.c")
                .only_flags(BITS32)
                .try_build()
                .map(drop)
                .map_err(|_| "no compiler for 32-bit programs".to_owned()),
            Self::PythonHeaders => runs(
                "python3",
                &["-c", "import sysconfig,os;open(sysconfig.get_path('include')+'/Python.h')"],
                "install python3-dev",
            ),
            Self::Python => runs("/usr/bin/python3", &["--version"], "install python3"),
            Self::Python312 => python_3_12().map(drop),
            Self::Python313 => in_root("3.13"),
            Self::Python314 => in_root("3.14"),
            Self::Node => runs("node", &["--version"], "install nodejs")
                .and_then(|()| runs("npm", &["--version"], "install npm")),
            Self::Java => runs("javac", &["--version"], "install openjdk-17-jdk-headless")
                .and_then(|()| runs("java", &["--version"], "install openjdk-17-jdk-headless")),
            Self::Go => runs("go", &["version"], "install golang-go"),
            Self::Redis => runs("redis-server", &["--version"], "install redis-server"),
            Self::Nginx => runs("/usr/sbin/nginx", &["-v"], "install nginx-light"),
            Self::Gunicorn => runs("gunicorn", &["--version"], "install gunicorn"),
            Self::Postgres => postgres().map(drop),
            Self::Make => runs("make", &["--version"], "install make"),
            Self::Namespaces => runs("unshare", &["-m", "true"], "needs root and util-linux")
                .and_then(|()| runs("setpriv", &["--version"], "install util-linux")),
            Self::Capabilities => runs("capsh", &["--print"], "install libcap2-bin"),
            Self::Gdb => runs("gdb", &["-nx", "-batch", "-ex", "python 0"], "install gdb"),
            Self::Strace => runs("strace", &["--version"], "install strace"),
            Self::SizedFree => has_sized_free(),
            Self::LargeMemory => large_memory(),
        }
    }
}

/// The root folder of a Python that `cargo xtask setup --test` has unpacked.
pub fn python_root(version: &str) -> PathBuf {
    crate::scratch::target_folder().join("pythons").join(version).join("root")
}

fn in_root(version: &str) -> Result<(), String> {
    let path = python_root(version).join(format!("usr/bin/python{version}"));
    match path.is_file() {
        true => Ok(()),
        false => Err(format!("no {}; run `cargo xtask setup --test`", path.display())),
    }
}

/// The path of a Python 3.12.
///
/// # Errors
/// There is none.
pub fn python_3_12() -> Result<String, String> {
    let missing = || "no python3.12".to_owned();
    let ask = Command::new("python3.12").args(["-c", "import sys;print(sys.executable)"]).output();
    let output = ask.ok().filter(|output| output.status.success());
    let found = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // pyenv keeps versions that it does not put on the path.
    let pyenv = || {
        let home = std::env::var_os("PYENV_ROOT")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")))?;
        let versions = std::fs::read_dir(home.join("versions")).ok()?;
        let names = versions.filter_map(|entry| Some(entry.ok()?.path()));
        let is_it = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("3.12."))
        };
        let python = names.filter(is_it).map(|path| path.join("bin/python3.12"));
        python.filter(|path| path.is_file()).max().map(|path| path.display().to_string())
    };
    found.or_else(pyenv).ok_or_else(missing)
}

/// Flags for a program of 32 bits that needs no 32-bit library.
pub const BITS32: &[&str] = &["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie", "-O1"];

fn runs(program: &str, args: &[&str], advice: &str) -> Result<(), String> {
    let status =
        Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} {}: {status}; {advice}", args.join(" "))),
        Err(err) => Err(format!("{program}: {err}; {advice}")),
    }
}

/// Does the linker find these libraries?
fn links(libraries: &[&str], package: &str) -> Result<(), String> {
    let flags = ["-shared", "-o", "/dev/null"];
    runs("cc", &[&flags, libraries].concat(), &format!("install {package}"))
}

/// The folder of PostgreSQL's programs, which Debian names after the version.
///
/// # Errors
/// What to install.
pub fn postgres() -> Result<PathBuf, String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    folders
        .filter(|folder| folder.join("postgres").is_file() && folder.join("psql").is_file())
        .max()
        .ok_or_else(|| "no server of PostgreSQL; install postgresql".to_owned())
}

fn root_and_types() -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("not root".to_owned());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err("the kernel has no /sys/kernel/btf/vmlinux".to_owned());
    }
    Ok(())
}

fn has_sized_free() -> Result<(), String> {
    let program = crate::build::Build::c("sized_free.c").try_build()?;
    let status = Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err("the C library has no free_sized".to_owned()),
    }
}

fn large_memory() -> Result<(), String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|err| err.to_string())?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    match kib {
        Some(kib) if kib > 6 << 20 => Ok(()),
        other => Err(format!("memory of the machine in KiB: {other:?}")),
    }
}
