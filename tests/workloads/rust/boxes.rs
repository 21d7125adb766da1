//! Per batch: 100 vectors of 1,000 bytes are forgotten in `forgets`, 50 boxes of 48 bytes that
//! another thread made are leaked in `leaks_from_thread`, and everything else is dropped, 1,000
//! vectors of them by another thread than made them.
//!
//! The protocol and the account are those of `../c/batch.h`.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::Wrapping;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

#[inline(never)]
fn forgets<T>() {
    assert_eq!(size_of::<T>(), 1);
    std::mem::forget(std::hint::black_box(Vec::<T>::with_capacity(1000)));
}

#[inline(never)]
fn leaks_from_thread() {
    std::hint::black_box(Box::leak(Box::new([0_u8; 48])));
}

fn worker(inbox: &Receiver<Vec<Vec<u8>>>, done: &Sender<()>) {
    for vectors in inbox {
        drop(vectors);
        for _ in 0..50 {
            leaks_from_thread();
        }
        done.send(()).expect("the main thread waits");
    }
}

fn account(truth: &mut Option<File>, batch: u64) {
    if let Some(file) = truth {
        let (forgotten, leaked) = (100 * batch, 50 * batch);
        writeln!(
            file,
            "{{\"batch\":{batch},\"sites\":{{\
             \"forgets\":{{\"blocks\":{forgotten},\"bytes\":{}}},\
             \"leaks_from_thread\":{{\"blocks\":{leaked},\"bytes\":{}}}}}}}",
            forgotten * 1000,
            leaked * 48
        )
        .expect("the account can be written");
    }
}

/// Writes a line. Allocates nothing that could still be live when the tester reads it.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").expect("standard output is open");
}

fn main() {
    let mut truth = std::env::var_os("BATCH_TRUTH")
        .map(|path| OpenOptions::new().create(true).append(true).open(path).expect("account"));
    let (send, inbox) = channel();
    let (done, finished) = channel();
    thread::spawn(move || worker(&inbox, &done));

    // What a thread allocates when it waits on a channel for the first time is not to fall into
    // some batch or other.
    let _ = finished.recv_timeout(Duration::from_millis(1));
    account(&mut truth, 0);
    say(format_args!("READY {}", std::process::id()));
    let mut batch = 0;
    let mut byte = [0_u8];
    let mut input = std::io::stdin();
    while input.read(&mut byte).expect("standard input is open") == 1 {
        batch += 1;
        for _ in 0..100 {
            forgets::<Wrapping<u8>>();
        }
        send.send((0..1000).map(|size| Vec::with_capacity(size + 1)).collect()).expect("worker");
        finished.recv().expect("the worker answers");
        account(&mut truth, batch);
        say(format_args!("DONE {batch}"));
    }
}
