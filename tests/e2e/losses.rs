//! More than the tool can take: it is exact, or it says what it lost and judges nothing.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SIGCONT, SIGSTOP};
use outlive_tests::build::Build;
use outlive_tests::measure::{measure, measure_running_with};
use outlive_tests::process::eventually;
use outlive_tests::sampling::Sampling;
use outlive_tests::text::changed_code_bytes;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] a_tool_that_stands_still_loses_nothing_in_silence,
    [Bpf, C] sampling_beside_it_loses_nothing_in_silence,
    [Bpf, C] two_million_blocks_are_held,
];

fn flood(pairs: u32) -> Program {
    Program::new(Build::c("flood.c").build()).arg(pairs.to_string()).arg("8")
}

fn a_tool_that_stands_still_loses_nothing_in_silence() {
    let workload = Workload::start(&flood(200_000));
    let measured = measure_running_with(&workload, |tool| {
        eventually("probes in the target", || changed_code_bytes(workload.pid()) > 0);
        sleep(Duration::from_millis(500));
        tool.signal(SIGSTOP);
        sleep(Duration::from_secs(2));
        tool.signal(SIGCONT);
    });
    measured.expect_exact_or_lost();
}

fn sampling_beside_it_loses_nothing_in_silence() {
    let sampling = Sampling::start(4999);
    measure(&flood(10_000)).expect_exact_or_lost();
    assert!(sampling.has_samples());
}

fn two_million_blocks_are_held() {
    measure(&Program::new(Build::c("many_blocks.c").build())).expect_exact_or_lost();
}
