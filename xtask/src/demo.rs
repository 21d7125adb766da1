//! A small service whose native library forgets the map tiles of a viewer that goes away
//! without a goodbye, and what outlive says about it.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::cmd::{CommandExt as _, Workspace, command, is_root, shown};
use crate::setup;

/// `outlive test` says with it that memory grows beyond the budget.
const GROWTH: i32 = 1;

/// Builds the tool and the service, tests the one with the other, shows where the picture is.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    ensure!(is_root()?, "tracing needs root: `sudo -E env PATH=$PATH cargo xtask demo`");
    setup::run(workspace)?;
    println!("Building outlive: two minutes the first time");
    workspace.cargo().args(["build", "--release", "--locked", "--package", "outlive"]).run()?;

    let dir = workspace.target_dir.join("demo");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let source = workspace.root.join("demo");
    let cc = |output: &str| {
        let mut cc = command("cc");
        cc.args(["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall"])
            .arg("-o")
            .arg(dir.join(output))
            .current_dir(&source);
        cc
    };
    cc("libroute.so").args(["-shared", "-fPIC", "libroute.c"]).run()?;
    cc("fleet").args(["fleet.c", "-Wl,-rpath,$ORIGIN", "-L"]).arg(&dir).arg("-lroute").run()?;
    cc("viewers").arg("viewers.c").run()?;

    let session = dir.join("session");
    if session.exists() {
        fs::remove_dir_all(&session).with_context(|| session.display().to_string())?;
    }
    // Short and without spaces, whatever the target directory is called: a Unix socket's
    // path has at most 107 bytes.
    let socket = std::env::temp_dir().join(format!("outlive-demo-{}", std::process::id()));
    let service = format!("./fleet {}", socket.display());
    let mut outlive = command(workspace.target_dir.join("release/outlive"));
    outlive
        .args(["test", "--service", &service, "--ready-line", "ready"])
        .args(["--warmup", "2", "--batches", "8", "-o", "session", "--", "./viewers"])
        .arg(&socket)
        .current_dir(&dir);
    println!("\n$ cd {}\n$ {}\n", dir.display(), shown(&outlive));
    let status = outlive.status().with_context(|| shown(&outlive))?;
    // The service may be gone with its socket already.
    let _ = fs::remove_file(&socket);
    ensure!(
        status.code() == Some(GROWTH),
        "the demo's leak was not found: outlive ended with {status}"
    );

    let picture = session.join("growth.svg");
    ensure!(picture.is_file(), "{}: not written", picture.display());
    println!("\nThe growth flamegraph: {}", picture.display());
    Ok(ExitCode::SUCCESS)
}
