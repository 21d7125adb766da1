//! Per batch 100 vectors of 64 bytes are forgotten in `inner`, which `outer` calls, which `main` calls.
//!
//! The protocol and the account are those of `../c/batch.h`.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{Read as _, Write as _};

#[inline(never)]
fn inner(n: usize) -> usize {
    std::mem::forget(black_box(Vec::<u8>::with_capacity(64)));
    black_box(n) + 1
}

#[inline(never)]
fn outer(n: usize) -> usize {
    // So that it is no jump.
    black_box(inner(n)) + 1
}

fn main() {
    let mut truth = std::env::var_os("BATCH_TRUTH")
        .map(|path| OpenOptions::new().create(true).append(true).open(path).expect("account"));
    let mut input = std::io::stdin();
    let mut byte = [0_u8];
    for batch in 0_usize.. {
        for n in 0..if batch == 0 { 0 } else { 100 } {
            black_box(outer(n));
        }
        if let Some(file) = &mut truth {
            let blocks = 100 * batch;
            writeln!(
                file,
                "{{\"batch\":{batch},\"sites\":{{\"inner\":{{\"blocks\":{blocks},\"bytes\":{}}}}}}}",
                blocks * 64
            )
            .expect("the account can be written");
        }
        if batch == 0 {
            println!("READY {}", std::process::id());
        } else {
            println!("DONE {batch}");
        }
        if input.read(&mut byte).expect("standard input is open") == 0 {
            break;
        }
    }
}
