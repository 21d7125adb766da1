#![no_main]

use std::sync::Mutex;
use std::{panic, process};

/// What the last panic said.
static LAST: Mutex<String> = Mutex::new(String::new());

// The symbolizer is not ours, and its panics are caught and cost a name: libFuzzer's own hook would
// end the process for each of them. One that nobody catches is a failure still.
libfuzzer_sys::fuzz_target!(
    init: panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = LAST.lock() {
            *last = info.to_string();
        }
    })),
    |bytes: &[u8]| {
        if panic::catch_unwind(|| outlive::foreign::symbols(bytes)).is_err() {
            eprintln!("{}", LAST.lock().map(|last| last.clone()).unwrap_or_default());
            process::abort();
        }
    }
);
