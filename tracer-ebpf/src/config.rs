//! Constants that the user side sets before it loads the programs.

macro_rules! globals {
    ($($(#[$doc:meta])* $name:ident, $read:ident: $type:ty;)*) => {$(
        #[unsafe(no_mangle)]
        static $name: $type = 0;

        $(#[$doc])*
        #[inline(always)]
        pub fn $read() -> $type {
            // SAFETY: reads a valid static; volatile, since its value is replaced at load time
            // and the compiler must not fold the zero that stands here.
            unsafe { core::ptr::read_volatile(&raw const $name) }
        }
    )*};
}

globals! {
    /// The process that the tracing begins with: id of its thread group, in the
    /// namespace that PID_NS_DEV and PID_NS_INO name.
    TARGET_TGID, target_tgid: u32;
    /// Non-zero when the processes that a target makes are targets as well.
    FOLLOW, follow: u64;
    /// Non-zero when a process may be stopped until its probes are in place.
    HOLD, hold: u64;
    /// Bytes in the ring from which on a process is stopped until it is read; zero for never.
    PAUSE_AT, pause_at: u64;
    /// Bytes in the ring from which on no allocation is written: the rest is for releases.
    FULL_AT, full_at: u64;
    /// Where `task_struct` has the thread's id, in the initial pid namespace.
    TASK_PID, task_pid: u64;
    /// Where `task_struct` has the process's id, in the initial pid namespace.
    TASK_TGID, task_tgid: u64;
    /// Where `task_struct` has the address space.
    TASK_MM, task_mm: u64;
    /// Where `task_struct` has how the thread ended, as `wait` says it.
    TASK_EXIT_CODE, task_exit_code: u64;
    /// Where `mm_struct` has what is known of the page that return probes send the thread to.
    MM_PROBE_PAGE, mm_probe_page: u64;
    /// Where that has the page's address.
    PROBE_PAGE_ADDR, probe_page_addr: u64;
    /// Where `task_struct` has what is known of the thread's probes.
    TASK_PROBES, task_probes: u64;
    /// Where that has the latest call whose return is awaited.
    PROBES_RETURN, probes_return: u64;
    /// Where an awaited return has the one before it.
    RETURN_NEXT, return_next: u64;
    /// Where it has the place of the return address on the stack.
    RETURN_PLACE, return_place: u64;
    /// Where it has the return address that was there.
    RETURN_ADDR, return_addr: u64;
    /// Device of the pid namespace that the target lives in, or zero for the initial one's ids.
    PID_NS_DEV, pid_ns_dev: u64;
    /// Inode of that namespace.
    PID_NS_INO, pid_ns_ino: u64;
    /// Requested bytes below which a block is not booked.
    MIN_SIZE, min_size: u64;
    /// Zero for ever. The compiler does not know that, the verifier does.
    NEVER, never: u64;
}
