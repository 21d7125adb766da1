//! Programs that are many processes, under load: servers, pools, a build.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use outlive_tests::build::{Build, node_addon, python, python_extension};
use outlive_tests::measure::{MEASURED, WARMUP, measure};
use outlive_tests::needs::postgres;
use outlive_tests::scratch::{Scratch, text, workloads};
use outlive_tests::session::Session;
use outlive_tests::tool::{NOBODY, Run, Tool};
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, script};

use crate::trees::expect_sum;

crate::tests![
    [Bpf, C, PythonHeaders] a_python_pool_is_exact,
    [Bpf, C, Node] a_node_cluster_is_exact,
    [Bpf, C, Python, Gunicorn] gunicorn_workers_are_exact,
    [Bpf, Python, Nginx] nginx_workers_are_seen_under_load,
    [Bpf, Postgres] postgresql_backends_are_seen_under_load,
    [Bpf, C, Make] every_process_of_a_parallel_build_is_seen,
];

/// Nothing is lost, the processes add up, and so many of them run a program of this name.
#[track_caller]
fn expect_processes(run: &Run, session: &Session, name: &str, at_least: usize) {
    assert_eq!(session.lost(), 0, "losses {:?}; {}", session.losses, run.story());
    expect_sum(session);
    let is_named = |exe: &str| Path::new(exe).file_name().is_some_and(|file| file == name);
    let named = session.processes.iter().filter(|process| is_named(&process.exe)).count();
    assert!(named >= at_least, "{named} processes of {name}: {:?}", session.processes);
}

#[track_caller]
fn exact(program: &Program, children: usize, name: &str) {
    let measured = measure(program);
    measured.expect_exact_sites();
    expect_processes(&measured.run, &measured.session, name, 1 + children);
}

fn a_python_pool_is_exact() {
    let python = python();
    let name = text(std::fs::canonicalize(&python).unwrap().file_name().unwrap());
    let program = Program::new(python)
        .arg(text(workloads().join("python/pool.py")))
        .arg(text(python_extension()));
    exact(&program, 4, &name);
}

fn a_node_cluster_is_exact() {
    let program =
        Program::new("node").arg(text(workloads().join("node/cluster.js"))).arg(text(node_addon()));
    exact(&program, 2, "node");
}

/// A port that was free a moment ago.
pub(crate) fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Tests a service whose batch is a command.
#[track_caller]
pub(crate) fn serve(
    tool: Tool,
    ready: [&str; 2],
    service: &str,
    batch: &[String],
) -> (Run, Session) {
    let counts = ["--warmup", &WARMUP.to_string(), "--batches", &MEASURED.to_string()];
    let tool = tool.with_folder().args(counts).args(ready).args(["--service", service]);
    let run = tool.args(["--"]).args(batch.iter()).run();
    let session = run.session();
    // Its own growth is its own business; but it was measured.
    assert!(matches!(session.exit_code, 0 | 1 | 3), "{}", run.story());
    assert_eq!(session.batches.len(), WARMUP + MEASURED, "{}", run.story());
    (run, session)
}

/// The words that ask this machine's server `n` times.
pub(crate) fn fetch(port: u16, n: u32) -> Vec<String> {
    let path = text(workloads().join("python/fetch.py"));
    ["/usr/bin/python3".to_owned(), path, port.to_string(), n.to_string()].into()
}

fn gunicorn_workers_are_exact() {
    let port = port();
    let library = Build::library("c/lib_leaky.c", "libleaky.so").build();
    let service = format!(
        "gunicorn --workers 3 --bind 127.0.0.1:{port} --chdir {} application:application",
        text(workloads().join("python"))
    );
    let tool = Tool::new(["test"]).env("LEAKY_LIBRARY", library);
    let tool = tool.env("PYTHONDONTWRITEBYTECODE", "1");
    let address = format!("127.0.0.1:{port}");
    let (run, session) = serve(tool, ["--ready-tcp", &address], &service, &fetch(port, 30));
    let left = Amount { blocks: 300, bytes: 300 * 64 } * MEASURED;
    assert_eq!(session.growth_in("leaky_library"), left, "{}", run.story());
    assert_eq!(session.children().len(), 3, "{:?}", session.processes);
    expect_processes(&run, &session, &text(interpreter().file_name().unwrap()), 4);
}

/// The file that the system's Python is.
fn interpreter() -> std::path::PathBuf {
    std::fs::canonicalize("/usr/bin/python3").unwrap()
}

/// The words that start nginx with two workers and its files in this folder.
pub(crate) fn nginx(scratch: &Scratch, port: u16) -> String {
    let folder = text(scratch.path());
    let settings = format!(
        "daemon off; user root; worker_processes 2; pid {folder}/pid; error_log {folder}/errors;\n\
         events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ \
         return 200 'here'; }} }} }}\n"
    );
    std::fs::write(scratch.join("nginx.conf"), settings).unwrap();
    format!("/usr/sbin/nginx -p {folder} -c {folder}/nginx.conf")
}

fn nginx_workers_are_seen_under_load() {
    let (port, scratch) = (port(), Scratch::new());
    let service = nginx(&scratch, port);
    let address = format!("127.0.0.1:{port}");
    let tool = Tool::new(["test"]);
    let (run, session) = serve(tool, ["--ready-tcp", &address], &service, &fetch(port, 200));
    assert_eq!(session.children().len(), 2, "{:?}", session.processes);
    expect_processes(&run, &session, "nginx", 3);
    let errors = std::fs::read_to_string(scratch.join("errors")).unwrap();
    assert!(!errors.contains("exited on signal"), "{errors}");
}

fn postgresql_backends_are_seen_under_load() {
    let programs = postgres().unwrap();
    let scratch = Scratch::new();
    let data = text(scratch.join("data"));
    // The server refuses to be root.
    std::os::unix::fs::chown(scratch.path(), Some(65534), Some(65534)).unwrap();
    let nobody = format!("setpriv {}", NOBODY.join(" "));
    let init = format!("{nobody} {}/initdb -D {data} -A trust -U tester -N", programs.display());
    let words: Vec<&str> = init.split(' ').collect();
    let status = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{init}");
    let socket = text(scratch.path());
    let service = format!("{nobody} {}/postgres -D {data} -k {socket} -h ''", programs.display());
    // Each client has a process of its own at the server.
    let asks = format!(
        "for i in 1 2 3 4 5; do\n{}/psql -h {socket} -U tester -d postgres -qtAc \
         'select sum(i) from generate_series(1, 20000) as i' || exit 1\ndone >&2\n",
        programs.display()
    );
    let batch = script(&scratch.join("ask.sh"), &asks);
    let ready = ["--ready-line", "ready to accept connections"];
    let (run, session) = serve(Tool::new(["test"]), ready, &service, &[text(batch)]);
    // The server's helpers beside the clients' processes.
    expect_processes(&run, &session, "postgres", 5 * (WARMUP + MEASURED) + 4);
}

fn every_process_of_a_parallel_build_is_seen() {
    const FILES: usize = 24;
    let scratch = Scratch::new();
    let mut makefile = "CFLAGS = -O0\nall:".to_owned();
    for i in 0..FILES {
        std::fs::write(scratch.join(&format!("f{i}.c")), format!("int f{i}(void){{return {i};}}"))
            .unwrap();
        makefile.push_str(&format!(" f{i}.o"));
    }
    makefile.push('\n');
    std::fs::write(scratch.join("Makefile"), makefile).unwrap();
    let tool = Tool::new(["run"]).with_folder().args(["--", "make", "-s", "-j4", "-C"]);
    let run = tool.args([scratch.path()]).run();
    run.expect_code(0);
    let session = run.session();
    expect_processes(&run, &session, "cc1", FILES);
    assert!(session.processes.iter().all(|process| !process.exe.is_empty()));
    assert!((0..FILES).all(|i| scratch.join(&format!("f{i}.o")).is_file()));
}
