#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outlive::foreign::kernel_types(bytes));
