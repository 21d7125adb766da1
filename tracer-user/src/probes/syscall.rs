//! The `bpf` system calls that aya 0.14 does not make: programs for uprobe-multi links, the
//! links themselves, test runs, and what the kernel says of a program.

use std::{
    ffi::{CStr, CString},
    io, mem,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya_obj::{
    Function,
    generated::{
        bpf_attach_type, bpf_attr, bpf_attr__bindgen_ty_4 as ProgramFields, bpf_cmd, bpf_insn,
        bpf_prog_info, bpf_prog_type,
    },
};

/// `BPF_F_UPROBE_MULTI_RETURN`: the program runs when the function returns.
const UPROBE_MULTI_RETURN: u32 = 1;

/// Bytes of verifier log that are kept of a refused program.
const LOG_BYTES: usize = 1 << 20;

/// Makes one call.
fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: `attr` is a valid attribute union of the size that is passed; every pointer in
    // it was made from a borrow that outlives this call by whoever filled it in.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

fn zeroed_attr() -> bpf_attr {
    // SAFETY: the union consists of integers, for which zero is a value; the kernel asks for
    // unused bytes to be zero.
    unsafe { mem::zeroed() }
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    // SAFETY: the kernel has just opened this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A program that the kernel refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: io::Error,
    /// The verifier's last words.
    pub(super) log: String,
}

/// Hands type information to the kernel.
pub(super) fn load_btf(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: this member of the union is the one that BPF_BTF_LOAD reads.
    let fields = unsafe { &mut attr.__bindgen_anon_7 };
    fields.btf = bytes.as_ptr() as u64;
    fields.btf_size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    owned(bpf(bpf_cmd::BPF_BTF_LOAD, &mut attr)?)
}

/// Loads a uprobe program for uprobe-multi links (kernel 6.6).
pub(super) fn load_for_multi(
    name: &CStr,
    function: &Function,
    license: &CStr,
    btf: BorrowedFd<'_>,
) -> Result<OwnedFd, Refused> {
    let insns: &[bpf_insn] = &function.instructions;
    let func_info = function.func_info.func_info_bytes();
    let load = |log: &mut [u8]| {
        load_uprobe(|fields| {
            fields.insns = insns.as_ptr() as u64;
            fields.insn_cnt = u32::try_from(insns.len()).unwrap_or(u32::MAX);
            fields.license = license.as_ptr() as u64;
            // The kernel asks for it of a program with a callback, which the stack walk has.
            fields.prog_btf_fd = btf.as_raw_fd().cast_unsigned();
            fields.func_info = func_info.as_ptr() as u64;
            fields.func_info_cnt = u32::try_from(function.func_info.len()).unwrap_or(u32::MAX);
            fields.func_info_rec_size = u32::try_from(function.func_info_rec_size).unwrap_or(0);
            for (place, byte) in fields.prog_name.iter_mut().zip(name.to_bytes()).take(15) {
                *place = byte.cast_signed();
            }
            if !log.is_empty() {
                fields.log_level = 1;
                fields.log_buf = log.as_mut_ptr() as u64;
                fields.log_size = u32::try_from(log.len()).unwrap_or(u32::MAX);
            }
        })
    };
    load(&mut []).or_else(|error| {
        let mut log = vec![0; LOG_BYTES];
        // A log that is too short is an error of its own; the first one is the cause.
        load(&mut log).map_err(|_| {
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches('\0').trim_end();
            let from = log.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
            Refused { error, log: log[from..].to_owned() }
        })
    })
}

/// Loads a uprobe program with the attach type of multi links. Each pointer that is filled in is
/// one to memory that lives while this runs.
fn load_uprobe(fill_in: impl FnOnce(&mut ProgramFields)) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: this member of the union is the one that BPF_PROG_LOAD reads.
    let fields = unsafe { &mut attr.__bindgen_anon_3 };
    fields.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
    fields.expected_attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
    fill_in(fields);
    owned(bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr)?)
}

/// Where a multi link is to be set.
pub(super) struct MultiSites<'a> {
    /// Path of the object, as the kernel is to look it up.
    pub(super) path: &'a CStr,
    /// Offsets in the file.
    pub(super) offsets: &'a [u64],
    /// One attach cookie for each offset.
    pub(super) cookies: &'a [u64],
    /// Process id; all of its threads are meant.
    pub(super) pid: u32,
    /// At the function's return instead of at the offset.
    pub(super) on_return: bool,
}

/// Sets a breakpoint at each site of one object, for one process.
pub(super) fn link_multi(program: BorrowedFd<'_>, sites: &MultiSites<'_>) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: this member of the union is the one that BPF_LINK_CREATE reads.
    let fields = unsafe { &mut attr.link_create };
    fields.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    fields.attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: this member is the one that is read for the attach type above.
    let multi = unsafe { &mut fields.__bindgen_anon_3.uprobe_multi };
    multi.path = sites.path.as_ptr() as u64;
    multi.offsets = sites.offsets.as_ptr() as u64;
    multi.cookies = sites.cookies.as_ptr() as u64;
    multi.cnt = u32::try_from(sites.offsets.len().min(sites.cookies.len())).unwrap_or(u32::MAX);
    multi.flags = if sites.on_return { UPROBE_MULTI_RETURN } else { 0 };
    multi.pid = sites.pid;
    owned(bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr)?)
}

/// Can this kernel set multi links, and do they mean a process when they are given one?
///
/// Links came with 6.6; until a later fix their filter compared threads. A kernel with the
/// fix refuses the process id -1, and any kernel with links finds that `/` is no file to probe.
/// Asked with a program that does nothing, so that nothing else is bound to the attach type: of
/// all programs that name a program array, the kernel wants the same one.
pub(super) fn multi_links_work() -> bool {
    let program = load_uprobe(|fields| {
        fields.insns = RETURN_ZERO.as_ptr() as u64;
        fields.insn_cnt = 2;
        fields.license = c"GPL".as_ptr() as u64;
    });
    // Whatever keeps it from being loaded is said when the programs are.
    let Ok(program) = program else { return false };
    let answer = |pid: u32| {
        let sites = MultiSites { path: c"/", offsets: &[0], cookies: &[0], pid, on_return: false };
        link_multi(program.as_fd(), &sites).err().and_then(|error| error.raw_os_error())
    };
    answer(u32::MAX) == Some(libc::EINVAL) && answer(0) == Some(libc::EBADF)
}

/// `r0 = 0`, and the end, as instructions.
static RETURN_ZERO: [u64; 2] = [0xb7, 0x95];

/// Runs a raw tracepoint program once with one argument and answers its return value.
pub(super) fn run_raw_tracepoint(program: BorrowedFd<'_>, argument: u64) -> io::Result<u32> {
    let args = [argument];
    let mut attr = zeroed_attr();
    // SAFETY: this member of the union is the one that BPF_PROG_TEST_RUN reads.
    let fields = unsafe { &mut attr.test };
    fields.prog_fd = program.as_raw_fd().cast_unsigned();
    fields.ctx_in = args.as_ptr() as u64;
    fields.ctx_size_in = 8;
    bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr)?;
    // SAFETY: the kernel has filled the member that it was given.
    Ok(unsafe { attr.test.retval })
}

/// What the kernel knows of a loaded program.
pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    // SAFETY: the struct consists of integers, for which zero is a value.
    let mut info: bpf_prog_info = unsafe { mem::zeroed() };
    let mut attr = zeroed_attr();
    // SAFETY: this member of the union is the one that BPF_OBJ_GET_INFO_BY_FD reads.
    let fields = unsafe { &mut attr.info };
    fields.bpf_fd = program.as_raw_fd().cast_unsigned();
    fields.info_len = u32::try_from(size_of::<bpf_prog_info>()).unwrap_or(0);
    fields.info = std::ptr::from_mut(&mut info) as u64;
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

/// The path by which the kernel finds an open file, whatever its name is by now.
pub(super) fn path_of(file: BorrowedFd<'_>) -> CString {
    let mut path = format!("/proc/self/fd/{}", file.as_raw_fd()).into_bytes();
    path.push(0);
    // The text is digits and slashes, with one NUL at its end.
    CString::from_vec_with_nul(path).unwrap_or_default()
}
