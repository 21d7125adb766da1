//! A debugger that runs the same program on the same input finds the same stacks.

use std::collections::{BTreeSet, HashSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use outlive_tests::build::Build;
use outlive_tests::measure::measure;
use outlive_tests::process::{Collected, Owned, PATIENCE, eventually};
use outlive_tests::scratch::{Scratch, text, workloads};
use outlive_tests::session::Stack;
use outlive_tests::tool::Tool;

use crate::packages::statements;
use crate::stacks::{PATHS, USUAL, functions, paths, rust};

crate::tests![
    [Bpf, C, Gdb] the_functions_of_c_are_the_same,
    [Bpf, Cpp, Gdb] the_stacks_of_cpp_are_the_same,
    [Bpf, Rust, Gdb] the_stacks_of_rust_are_the_same,
    [Bpf, SqliteShell, Gdb] the_stacks_of_sqlite_are_the_same,
    [Bpf, Python, Gdb] the_stacks_of_python_are_the_same,
    [Bpf, Redis, Gdb] the_stacks_of_redis_are_the_same,
    [Bpf, Nginx, Gdb] the_stacks_of_nginx_are_the_same,
];

/// gdb, which reads no debug information of other objects and shows a stack to its end.
fn gdb() -> Command {
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debug-file-directory /nonexistent"])
        .args(["-ex", "set backtrace past-main on"])
        .env("GDBHISTFILE", "/dev/null")
        .env_remove("DEBUGINFOD_URLS");
    gdb
}

/// The functions that gdb shows above a path's end, without what debug information of other objects
/// would add: calls that were inlined.
fn seen_by_gdb(program: &Path, function: &str) -> Vec<String> {
    let output = gdb()
        .args(["-ex", "set print frame-arguments none"])
        .args(["-ex", "handle SIGUSR1 nostop noprint pass"])
        .args(["-ex", &format!("break {function}"), "-ex", "run < /dev/stdin", "-ex", "backtrace"])
        .arg(program)
        .stdin(one_line())
        .output()
        .unwrap_or_else(|err| panic!("gdb: {err}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let frames: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .filter_map(called)
        .map(str::to_owned)
        .collect();
    assert!(!frames.is_empty(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    frames
}

/// The function in a line such as `#1  0x000055… in batch ()`, `#0  path_aa ()` or
/// `#5  <signal handler called>`.
fn called(line: &str) -> Option<&str> {
    let frame = line.split_once(' ')?.1.trim_start();
    let called = match frame.split_once(" in ") {
        Some((address, called)) if address.starts_with("0x") => called,
        _ => frame,
    };
    if called.starts_with('<') { Some(called) } else { called.split([' ', '(', '.']).next() }
}

fn one_line() -> Stdio {
    let (reader, mut writer) = std::io::pipe().unwrap_or_else(|err| panic!("pipe: {err}"));
    writer.write_all(b"\n").unwrap_or_else(|err| panic!("pipe: {err}"));
    reader.into()
}

fn the_functions_of_c_are_the_same() {
    let program = paths(USUAL);
    let measured = measure(&program);
    measured.expect_exact();
    for path in PATHS {
        let function = path[0];
        if function == "generated" {
            // Of code without a table gdb makes a frame too many.
            continue;
        }
        let theirs = seen_by_gdb(&program.path, function);
        let found = measured
            .session
            .stacks
            .iter()
            .find(|stack| functions(stack).first() == Some(&function));
        let stack = found.unwrap_or_else(|| panic!("no {function}; {}", measured.story()));
        let ours = functions(stack);
        // What gdb calls functions of other objects depends on the aliases that they have.
        let is_own = |name: &&&str| {
            let own = ["main", "in_thread", "generated", "calls_generated", "sorts", "raises"];
            own.contains(*name) || path.contains(*name)
        };
        let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
        assert_eq!(ours.len(), theirs.len(), "{path:?}: {ours:?}, {theirs:?}");
        assert_eq!(
            ours.iter().filter(is_own).collect::<Vec<_>>(),
            theirs.iter().filter(is_own).collect::<Vec<_>>(),
            "{path:?}"
        );
    }
}

/// The addresses of the frames that are on the stack: calls that were inlined have none, and all
/// functions of a script that one call of the interpreter's loop ran have that call's.
fn addresses(stack: &Stack) -> Vec<u64> {
    let mut frames: Vec<_> = stack.frames.iter().filter(|frame| !frame.inlined).collect();
    frames.dedup_by(|next, frame| {
        next.interpreted && frame.interpreted && next.address == frame.address
    });
    frames.iter().map(|frame| number(&frame.address)).collect()
}

#[track_caller]
fn number(address: &str) -> u64 {
    let digits = address.strip_prefix("0x");
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.unwrap_or_else(|| panic!("an address: {address}"))
}

/// gdb, about to run a program and to write down where the allocators were called from.
fn gdb_to(output: &Path) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/debugger.py");
    let mut gdb = gdb();
    gdb.args(["-ex", "set disable-randomization on"])
        .args(["-ex", &format!("set $output = \"{}\"", output.display())])
        .arg("-x")
        .arg(script)
        .arg("--args");
    gdb
}

/// Runs a program under the tool and under gdb, with the same addresses, and does the same with both.
/// Every stack of which blocks are outstanding when the program ends is one that gdb has seen, frame
/// by frame, and there are at least so many. Losses are not looked at: a block that is missed, or its
/// free, changes no stack of another.
#[track_caller]
fn expect_same(words: &[String], at_least: usize, meanwhile: impl Fn()) {
    // The order of a hash table, and with it what a script does, is not to be another each time.
    let env = [("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];
    let mut tool = Tool::under(&["setarch", "-R"], ["run"]).with_folder();
    for (name, value) in env {
        tool = tool.env(name, value);
    }
    let running = tool.args(["--"]).args(words.iter()).start();
    meanwhile();
    let run = running.wait();
    let session = run.session();

    let output = run.scratch().join("stacks");
    let mut child = gdb_to(&output)
        .args(words)
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap_or_else(|err| panic!("gdb: {err}"));
    let Some(said) = child.stdout.take() else { panic!("standard output is a pipe") };
    let said = Collected::new(said);
    let mut child = Owned::new(child);
    meanwhile();
    let ended = child.wait(PATIENCE);
    drop(child);
    let theirs = std::fs::read_to_string(&output)
        .unwrap_or_else(|err| panic!("gdb: {ended:?}, {err}\n{}", said.text("gdb's output")));
    let theirs: HashSet<Vec<u64>> =
        theirs.lines().map(|line| line.split(' ').map(number).collect()).collect();

    let ours: BTreeSet<Vec<u64>> = session.stacks.iter().map(addresses).collect();
    let others: Vec<_> = ours.iter().filter(|stack| !theirs.contains(*stack)).collect();
    assert!(
        others.is_empty(),
        "gdb has not seen {} of {}, such as {:x?}; {}",
        others.len(),
        ours.len(),
        others[0],
        run.story()
    );
    assert!(ours.len() >= at_least, "{} stacks; {}", ours.len(), run.story());
}

fn the_stacks_of_cpp_are_the_same() {
    let flags = [USUAL, &["-s"]].concat();
    let program = Build::cpp("kept.cpp").only_flags(&flags).build();
    expect_same(&[text(program)], 200, || {});
}

fn the_stacks_of_rust_are_the_same() {
    let program = rust("kept.rs", &["-Cforce-frame-pointers=no", "-Cstrip=symbols"]);
    expect_same(&[text(program)], 100, || {});
}

fn the_stacks_of_sqlite_are_the_same() {
    let scratch = Scratch::new();
    // Ended while everything is open.
    let more = "\
        select sum(n), sum(s) from v;\n\
        begin; update t set b = b || b;\n\
        .system kill -9 $PPID\n";
    let read = statements(&scratch, 500, more);
    expect_same(&["/usr/bin/sqlite3".to_owned(), ":memory:".to_owned(), read], 100, || {});
}

fn the_stacks_of_python_are_the_same() {
    let program = format!(
        "import os, sys; sys.path.insert(0, '{}'); import varied; os._exit(0)",
        text(workloads().join("python"))
    );
    expect_same(&["/usr/bin/python3".to_owned(), "-c".to_owned(), program], 1000, || {});
}

/// Says something to a service at this socket, once it listens; the connection stays.
#[track_caller]
fn say(socket: &Path, words: &str) -> UnixStream {
    let mut stream = None;
    eventually("the service listens", || {
        stream = UnixStream::connect(socket).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    stream
}

/// Reads until this has come.
#[track_caller]
fn hear(stream: &mut UnixStream, last: &str) {
    let mut heard = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&heard).contains(last) {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "no {last} in {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&piece[..n]);
    }
}

/// Kills the process whose number is in this file, and makes room for the next one's.
#[track_caller]
fn end(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).unwrap();
    std::fs::remove_file(pid_file).unwrap();
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
}

fn the_stacks_of_redis_are_the_same() {
    let scratch = Scratch::new();
    let (socket, pid_file) = (scratch.join("socket"), scratch.join("pid"));
    let (dir, at, pid) = (text(scratch.path()), text(&socket), text(&pid_file));
    let words = [
        &["/usr/bin/redis-server", "--port", "0", "--save", "", "--appendonly", "no"][..],
        &["--enable-debug-command", "yes", "--dir", &dir, "--unixsocket", &at, "--pidfile", &pid],
        // What can be compressed depends on memory that the library has not cleared.
        &["--rdbcompression", "no"],
    ];
    let words: Vec<String> = words.concat().into_iter().map(str::to_owned).collect();
    // Nothing that differs from time to time, such as the name of an entry of a stream, or where a
    // number comes among the members of a set.
    let commands = "\
        SET a 1\r\n APPEND a xyz\r\n RPUSH l a b c d e\r\n SADD s a b c\r\n HSET h a b c d\r\n\
        ZADD z 1 a 2 b\r\n XADD x 1-1 a b\r\n XGROUP CREATE x g $\r\n GEOADD g 13 38 a\r\n\
        PFADD p a b c\r\n SETBIT m 7000 1\r\n EXPIRE a 1000\r\n MULTI\r\n SET b 2\r\n EXEC\r\n\
        CONFIG SET maxmemory 100mb\r\n SCRIPT LOAD \"return redis.call('GET', KEYS[1])\"\r\n\
        EVAL \"for i = 1, 200 do redis.call('RPUSH', 'k', string.rep('x', i)) end\
        \x20 return redis.call('SORT', 'k', 'ALPHA', 'STORE', 'n')\" 0\r\n\
        DEBUG RELOAD\r\n SORT l ALPHA STORE o\r\n SUBSCRIBE news\r\n PING everything\r\n";
    expect_same(&words, 500, || {
        let mut stream = say(&socket, commands);
        hear(&mut stream, "everything");
        end(&pid_file);
    });
}

fn the_stacks_of_nginx_are_the_same() {
    let scratch = Scratch::new();
    let (socket, behind, pid_file) =
        (scratch.join("socket"), scratch.join("behind"), scratch.join("pid"));
    let folder = text(scratch.path());
    let settings = format!(
        "daemon off; master_process off; user root; pid {}; error_log {folder}/errors;\n\
         events {{}}\n\
         http {{ access_log off; gzip on; types {{ text/html html; text/plain txt; }}\n\
         map $uri $kind {{ default one; ~^/(.*)$ $1; /two two; }}\n\
         upstream behind {{ server unix:{}; keepalive 2; }}\n\
         server {{ listen unix:{}; server_name a.b *.c ~^d(.*)$;\n\
         location / {{ set $x \"here $kind\"; return 200 '$x\\n'; }}\n\
         location /again {{ rewrite ^/again(.*)$ /$1 last; }}\n\
         location = /asks {{ proxy_pass http://behind; proxy_set_header A $uri; }} }} }}\n",
        text(&pid_file),
        text(&behind),
        text(&socket),
    );
    let file = scratch.join("nginx.conf");
    std::fs::write(&file, settings).unwrap();
    let words = ["/usr/sbin/nginx", "-p", &folder, "-c", &text(file)].map(str::to_owned);
    // The last request is under way when it ends.
    let listener = UnixListener::bind(behind).unwrap();
    listener.set_nonblocking(true).unwrap();
    let requests = "\
        GET /again/two HTTP/1.1\r\nHost: a.b\r\nAccept-Encoding: gzip\r\n\r\n\
        GET /asks HTTP/1.1\r\nHost: x.c\r\n\r\n";
    expect_same(&words, 200, || {
        let _stream = say(&socket, requests);
        let mut asks = None;
        eventually("nginx asks", || {
            asks = listener.accept().ok();
            asks.is_some()
        });
        let (mut asks, _) = asks.unwrap();
        asks.set_read_timeout(Some(PATIENCE)).unwrap();
        hear(&mut asks, "\r\n\r\n");
        end(&pid_file);
        std::fs::remove_file(&socket).unwrap();
    });
}
