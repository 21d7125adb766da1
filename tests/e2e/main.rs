//! The end-to-end tests: real programs, the real binary, the real kernel.
//!
//! `cargo test -p outlive-tests --test e2e [NAME]`, as root. A test whose needs are missing shows as
//! ignored with the reason; with `OUTLIVE_TESTS_REQUIRE_ALL=1` it fails.

mod allocators;
mod attach;
mod containers;
mod debugger;
mod doctor;
mod drive;
mod endings;
mod errors;
mod harm;
mod holds;
mod interpreters;
mod languages;
mod losses;
mod mappings;
mod names;
mod odd_targets;
mod packages;
mod pairing;
mod reports;
mod scale;
mod servers;
mod split_debug;
mod stacks;
mod stepped;
mod threads;
mod tree_reports;
mod trees;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use outlive_tests::needs::Need;

/// A test: it panics where something is not as its name says.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    needs: &'static [Need],
    body: fn(),
}

/// The tests of a module: `tests![[Needs…] name, …]`.
macro_rules! tests {
    ($([$($need:ident),*] $name:ident,)*) => {
        pub(crate) const TESTS: &[crate::Test] = &[$(crate::Test {
            name: concat!(module_path!(), "::", stringify!($name)),
            needs: &[$(outlive_tests::needs::Need::$need),*],
            body: $name,
        }),*];
    };
}
use tests;

fn main() -> ExitCode {
    if let Err(err) = outlive_tests::tool::binary() {
        eprintln!("{err}");
        return ExitCode::FAILURE;
    }
    let mut args = Arguments::from_args();
    // Each test has a workload and a tool that want a processor of their own.
    args.test_threads.get_or_insert(2);
    let groups = [
        pairing::TESTS,
        allocators::TESTS,
        threads::TESTS,
        trees::TESTS,
        tree_reports::TESTS,
        holds::TESTS,
        servers::TESTS,
        languages::TESTS,
        interpreters::TESTS,
        stacks::TESTS,
        debugger::TESTS,
        stepped::TESTS,
        packages::TESTS,
        drive::TESTS,
        attach::TESTS,
        containers::TESTS,
        doctor::TESTS,
        odd_targets::TESTS,
        scale::TESTS,
        harm::TESTS,
        endings::TESTS,
        errors::TESTS,
        reports::TESTS,
        losses::TESTS,
        mappings::TESTS,
        names::TESTS,
        split_debug::TESTS,
    ];
    libtest_mimic::run(&args, groups.concat().into_iter().map(trial).collect()).exit_code()
}

fn trial(test: Test) -> Trial {
    let name = test.name.trim_start_matches("e2e::");
    Trial::ignorable_test(name, move || {
        let check = |need: &Need| need.check().err().map(|why| (*need, why));
        let missing: Vec<_> = test.needs.iter().filter_map(check).collect();
        if missing.is_empty() {
            (test.body)();
            return Ok(Completion::Completed);
        }
        let could_be_there = missing.iter().any(|(need, _)| need.can_be_installed());
        let missing: Vec<_> = missing.into_iter().map(|(_, why)| why).collect();
        let missing = missing.join("; ");
        let required =
            std::env::var_os("OUTLIVE_TESTS_REQUIRE_ALL").is_some_and(|value| value == "1");
        if required && could_be_there {
            return Err(format!("cannot run here: {missing}").into());
        }
        eprintln!("SKIPPED {name}: {missing}");
        Ok(Completion::ignored_with(missing))
    })
}
