//! The kernel programs of outlive.
#![no_std]
#![no_main]

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use tracer_common::hash::StackHash;

/// Counts nothing yet: shows that the toolchain builds what loads.
#[uprobe]
pub fn enter(ctx: ProbeContext) -> u32 {
    let size: u64 = ctx.arg(0).unwrap_or(0);
    StackHash::new().with(size).finish() as u32 & 1
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
