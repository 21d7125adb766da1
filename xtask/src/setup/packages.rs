//! System packages that the end-to-end tests use: the one list, for people and for CI.

use anyhow::{Result, ensure};

use crate::cmd::{CommandExt as _, command, is_root};

/// Program or file that shows that the packages are there, and the Debian packages.
const NEEDS: &[(&str, &[&str])] = &[
    ("cc", &["gcc", "libc6-dev"]),
    ("c++", &["g++"]),
    ("ld.lld", &["lld"]),
    ("llvm-dwp", &["llvm"]),
    ("musl-gcc", &["musl-tools"]),
    ("/usr/bin/python3", &["python3"]),
    ("python3-config", &["python3-dev"]),
    ("node", &["nodejs"]),
    // Debian's own; NodeSource's nodejs brings it and conflicts with the package.
    ("npm", &["npm"]),
    ("go", &["golang-go"]),
    ("javac", &["openjdk-17-jdk-headless"]),
    ("redis-server", &["redis-server"]),
    // It comes with the server; a test calls it.
    ("redis-benchmark", &["redis-tools"]),
    ("/usr/bin/sqlite3", &["sqlite3"]),
    ("/usr/sbin/nginx", &["nginx-light"]),
    ("gunicorn", &["gunicorn"]),
    // Its programs are in a folder of their version; the wrappers of Debian are on the path.
    ("pg_ctlcluster", &["postgresql"]),
    ("make", &["make"]),
    ("setpriv", &["util-linux"]),
    ("setcap", &["libcap2-bin"]),
    ("gdb", &["gdb"]),
    ("strace", &["strace"]),
    // Other kernels are booted in it.
    ("qemu-system-x86_64", &["qemu-system-x86"]),
    // Allocators and libraries that programs of the tests are linked with: no program shows
    // that they are there, but a header does.
    ("/usr/include/jemalloc/jemalloc.h", &["libjemalloc-dev"]),
    ("/usr/include/gperftools/tcmalloc.h", &["libgoogle-perftools-dev"]),
    (MIMALLOC, &["libmimalloc-dev"]),
    ("/usr/include/sqlite3.h", &["libsqlite3-dev"]),
    ("/usr/include/openssl/crypto.h", &["libssl-dev"]),
];

/// mimalloc keeps its header in a folder named after its version.
const MIMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libmimalloc.so";

/// Installs what is missing.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&str> = NEEDS
        .iter()
        .filter(|(program, _)| !on_path(program))
        .flat_map(|(_, packages)| packages.iter().copied())
        .collect();
    if missing.is_empty() {
        println!("Packages for the tests: all there");
        return Ok(());
    }
    ensure!(is_root()?, "the tests need {}: install them, or run this as root", missing.join(" "));
    println!("Packages for the tests: installing {}", missing.join(" "));
    let install = || {
        let mut apt = command("apt-get");
        // A server that a package starts would be in the way of the tests' own.
        apt.args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    if install().text().is_ok() {
        return Ok(());
    }
    command("apt-get").args(["update", "-qq"]).run()?;
    install().text().map(drop)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
