//! How long processes are stopped until their probes are in place.

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::cmd::{CommandExt as _, Workspace, command, is_root};
use crate::setup;

/// Numbers of children, ten of which live at a time.
const CHILDREN: [&str; 2] = ["80", "200"];
/// What becomes of them, and the program's word for it.
const KINDS: [(&str, &[&str]); 2] =
    [("copies of their parent", &["forks"]), ("programs of their own", &[])];

/// Prints a table in Markdown.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    ensure!(is_root()?, "tracing needs root: `sudo -E env PATH=$PATH cargo xtask holds`");
    setup::run(workspace)?;
    workspace.cargo().args(["build", "--release", "--locked", "--package", "outlive"]).run()?;
    let dir = workspace.target_dir.join("bench");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let program = dir.join("storm");
    command("cc")
        .args(["-O1", "-fno-builtin", "-fno-omit-frame-pointer", "-o"])
        .args([&program, &workspace.root.join("tests/workloads/c/storm.c")])
        .run()?;
    println!(
        "| children | stops of each | stopped for, of one child (median) | longest stop | whole \
         program, traced | bare |"
    );
    println!("|---|---|---|---|---|---|");
    for (kind, words) in KINDS {
        for children in CHILDREN {
            row(workspace, &program, &dir, &format!("{children} {kind}"), &[&[children], words])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(
    workspace: &Workspace,
    program: &Path,
    dir: &Path,
    name: &str,
    words: &[&[&str]],
) -> Result<()> {
    let words = words.concat();
    let began = Instant::now();
    command(program).args(&words).run()?;
    let bare = began.elapsed();

    let session = dir.join("session-holds");
    // What an earlier run left, if it did.
    let _ = std::fs::remove_dir_all(&session);
    let mut run = command(workspace.target_dir.join("release/outlive"));
    run.args(["run", "-q", "-o"]).arg(&session).arg("--").arg(program).args(&words);
    run.stdout(Stdio::null()).run()?;
    let text = std::fs::read_to_string(session.join("session.json"))?;
    let session: serde_json::Value = serde_json::from_str(&text)?;
    let number = |value: &serde_json::Value| value.as_f64().context("a number of session.json");

    let lost: f64 = session["losses"]
        .as_object()
        .context("session.json lists losses")?
        .values()
        .filter_map(serde_json::Value::as_f64)
        .sum();
    ensure!(lost == 0.0, "{name}: {lost} losses, so the figures are not those of a whole trace");
    let processes = session["processes"].as_array().context("session.json lists processes")?;
    let children = processes.get(1..).unwrap_or_default();
    let mut each: Vec<f64> =
        children.iter().map(|child| number(&child["held_s"])).collect::<Result<_>>()?;
    each.sort_by(f64::total_cmp);
    let median = each.get(each.len() / 2).context("no child was traced")?;
    let stops = number(&session["holds"]["count"])? / children.len() as f64;
    println!(
        "| {name} | {stops:.0} | {:.2} ms | {:.1} ms | {:.2} s | {:.2} s |",
        median * 1e3,
        number(&session["holds"]["longest_s"])? * 1e3,
        number(&session["duration_s"])?,
        bare.as_secs_f64()
    );
    Ok(())
}
