//! Programs as a distribution builds them: optimized, without frame pointers, stripped. Nearly all
//! stacks reach the start of their thread.

use outlive_tests::scratch::{Scratch, text, workloads};
use outlive_tests::session::Session;
use outlive_tests::tool::{Run, Tool};
use outlive_tests::workload::script;

use crate::servers::{fetch, nginx, port, serve};

crate::tests![
    [Bpf, Python] stacks_of_python_are_whole,
    [Bpf, SqliteShell] stacks_of_sqlite_are_whole,
    [Bpf, Redis] stacks_of_redis_are_whole,
    [Bpf, Python, Nginx] stacks_of_nginx_are_whole,
];

/// At least so many stacks, of which 999 of 1000 reach the start of their thread.
#[track_caller]
fn expect_whole(run: &Run, session: &Session, at_least: u64) {
    assert_eq!(session.lost(), 0, "losses {:?}; {}", session.losses, run.story());
    let quality = &session.stack_quality;
    let whole = quality.whole.stacks;
    let n_stacks = whole + quality.depth_limit.stacks + quality.broken.stacks;
    assert!(n_stacks >= at_least, "{n_stacks} stacks: {quality:?}; {}", run.story());
    assert!(whole * 1000 >= n_stacks * 999, "{whole} of {n_stacks}: {quality:?}; {}", run.story());
}

fn run(words: &[&str]) -> (Run, Session) {
    let run = Tool::new(["run"]).with_folder().args(["--"]).args(words.iter().copied()).run();
    run.expect_code(0);
    let session = run.session();
    (run, session)
}

fn stacks_of_python_are_whole() {
    let (run, session) = run(&["/usr/bin/python3", &text(workloads().join("python/varied.py"))]);
    expect_whole(&run, &session, 2000);
}

/// What has the shell of SQLite read these statements, behind those that make a table `t` of so many
/// rows, with indexes, and a view `v` of it.
pub(crate) fn statements(scratch: &Scratch, n_rows: u32, statements: &str) -> String {
    let table = format!(
        "create table t (a integer primary key, b text, c real);\n\
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {n_rows})\n\
         insert into t select i, printf('%0*d', i % 900, i), i / 7.0 from n;\n\
         create index b on t (b); create index c on t (c);\n\
         create view v as select b, count(*) as n, sum(c) as s from t group by substr(b, 1, 3);\n"
    );
    let file = scratch.join("statements.sql");
    std::fs::write(&file, table + statements).unwrap();
    format!(".read {}", text(file))
}

fn stacks_of_sqlite_are_whole() {
    let scratch = Scratch::new();
    let more = "\
        create trigger g after delete on t begin insert into d values (old.b); end;\n\
        create table d (b text);\n\
        delete from t where a % 3 = 0;\n\
        select sum(length(b)) from d;\n\
        select sum(n), sum(s) from v;\n\
        select count(*) from t as x join t as y on x.a = y.a + 1 where x.c > y.c;\n\
        select json_group_array(json_object('a', a)) ->> 3 from (select a from t limit 50);\n\
        select a, row_number() over (partition by a % 7 order by c) from t limit 5;\n\
        select replace(b, '0', 'zz'), upper(hex(b)), strftime('%s', '2020-01-01') from t limit 5;\n\
        begin; update t set b = b || b; rollback; vacuum; analyze; pragma integrity_check;\n\
        select group_concat(b) from (select b from t order by c desc limit 20) union select 'x';\n";
    let base = text(scratch.join("base"));
    let (run, session) = run(&["/usr/bin/sqlite3", &base, &statements(&scratch, 5000, more)]);
    expect_whole(&run, &session, 300);
}

fn stacks_of_redis_are_whole() {
    let scratch = Scratch::new();
    let socket = text(scratch.join("socket"));
    let service = format!(
        "redis-server --port 0 --save '' --appendonly no --dir {} --unixsocket {socket}",
        text(scratch.path())
    );
    let script_in_lua = "local t = {} for i = 1, 200 do t[i] = string.rep('x', i) \
                         redis.call('RPUSH', 'l', t[i]) end return redis.call('SORT', 'l', 'ALPHA')";
    let asks = format!(
        "redis-benchmark -s {socket} -q -n 2000 -r 500 -d 700 >&2 || exit 1\n\
         for command in 'ZADD z 1 a 2 b' 'XADD s * a b' 'GEOADD g 13 38 a' 'PFADD p a b c' \
         'SETBIT m 7000 1' 'HSET h a b c d' 'DEBUG RELOAD' 'MEMORY DOCTOR' 'SCRIPT FLUSH' 'SAVE'\n\
         do redis-cli -s {socket} $command >&2 || exit 1; done\n\
         redis-cli -s {socket} EVAL \"{script_in_lua}\" 0 >/dev/null\n"
    );
    let batch = script(&scratch.join("ask.sh"), &asks);
    let ready = ["--ready-line", "ready to accept connections"];
    let (run, session) = serve(Tool::new(["test"]), ready, &service, &[text(batch)]);
    expect_whole(&run, &session, 300);
}

fn stacks_of_nginx_are_whole() {
    let (port, scratch) = (port(), Scratch::new());
    let service = nginx(&scratch, port);
    let address = format!("127.0.0.1:{port}");
    let (run, session) =
        serve(Tool::new(["test"]), ["--ready-tcp", &address], &service, &fetch(port, 200));
    expect_whole(&run, &session, 100);
}
