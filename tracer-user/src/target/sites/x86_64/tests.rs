use super::*;
use proptest::prelude::*;

fn at(bytes: &[u8], args: &[u8]) -> Result<Site, SiteError> {
    let machine = object::elf::EM_X86_64;
    choose(&Code { machine, bytes, whole: true, entry: FileOffset(0x1000), args })
}

/// Distance, cost, mnemonic of the chosen site.
fn pick(bytes: &[u8], args: &[u8]) -> (u64, Cost, String) {
    let site = at(bytes, args).expect("a site");
    assert_eq!(site.offset, FileOffset(0x1000 + site.distance));
    (site.distance, site.cost, site.instruction)
}

fn emulated(distance: u64, name: &str) -> (u64, Cost, String) {
    (distance, Cost::Emulated, name.to_owned())
}

fn stepped(distance: u64, name: &str) -> (u64, Cost, String) {
    (distance, Cost::SingleStepped, name.to_owned())
}

#[test]
fn a_push_at_the_entry() {
    // glibc malloc: push %r12; push %rbp
    assert_eq!(pick(&[0x41, 0x54, 0x55, 0xc3], &[0]), emulated(0, "push"));
    assert_eq!(pick(&[0x55, 0xc3], &[0]), emulated(0, "push"));
}

#[test]
fn the_branch_behind_a_test() {
    // glibc free: test %rdi,%rdi; je +8
    let free = [0x48, 0x85, 0xff, 0x74, 0x08, 0xc3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(pick(&free, &[0]), emulated(3, "je"));
}

#[test]
fn behind_an_endbr64() {
    let push = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3];
    assert_eq!(pick(&push, &[0]), emulated(4, "push"));
    let test = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x85, 0xff, 0x74, 0x01, 0xc3, 0xc3];
    assert_eq!(pick(&test, &[0]), emulated(7, "je"));
}

#[test]
fn a_compare_and_a_long_branch() {
    // jemalloc malloc: cmp $0x1000,%rdi; ja rel32 (out of the function)
    let malloc = [0x48, 0x81, 0xff, 0, 0x10, 0, 0, 0x0f, 0x87, 0x10, 0x20, 0, 0, 0xc3];
    assert_eq!(pick(&malloc, &[0]), emulated(7, "ja"));
}

#[test]
fn a_load_and_a_test() {
    // tcmalloc malloc: mov rip(x),%rax; test %rax,%rax; jne +1
    let malloc = [0x48, 0x8b, 0x05, 1, 2, 3, 0, 0x48, 0x85, 0xc0, 0x75, 0x01, 0xc3, 0xc3];
    assert_eq!(pick(&malloc, &[0]), emulated(10, "jne"));
}

#[test]
fn a_jump_to_the_real_function() {
    // musl malloc: jmp rel32
    assert_eq!(pick(&[0xe9, 1, 2, 3, 0], &[0]), emulated(0, "jmp"));
}

#[test]
fn an_argument_that_was_moved_is_followed() {
    // mimalloc malloc: mov rip(x),%rax; mov %rdi,%rsi; mov %fs:(%rax),%rdi;
    // cmp $0x400,%rsi; ja +1
    let malloc = [
        0x48, 0x8b, 0x05, 1, 2, 3, 0, 0x48, 0x89, 0xfe, 0x64, 0x48, 0x8b, 0x38, 0x48, 0x81, 0xfe,
        0, 4, 0, 0, 0x77, 0x01, 0xc3, 0xc3,
    ];
    let site = at(&malloc, &[0]).expect("a site");
    assert_eq!((site.distance, site.cost), (21, Cost::Emulated));
    assert_eq!(site.arg_places[0], 1);
    // mimalloc free: mov %rdi,%rcx; test %rdi,%rdi; je
    let free = [0x48, 0x89, 0xf9, 0x48, 0x85, 0xff, 0x74, 0x01, 0xc3, 0xc3];
    let site = at(&free, &[0]).expect("a site");
    assert_eq!((site.distance, site.arg_places[0]), (6, 0));
}

#[test]
fn not_behind_the_loss_of_an_argument() {
    // mov %rsi,%rdi; push %rbp: argument 0 is gone, argument 1 is not.
    let code = [0x48, 0x89, 0xf7, 0x55, 0xc3];
    assert_eq!(pick(&code, &[0]), stepped(0, "mov"));
    assert_eq!(pick(&code, &[1]), emulated(3, "push"));
    // xor %edi,%edi clears all of %rdi.
    assert_eq!(pick(&[0x31, 0xff, 0x55, 0xc3], &[0]), stepped(0, "xor"));
    // A multiplication of %rdi by %rsi writes %rdx.
    let multiply = [0x48, 0x89, 0xf8, 0x48, 0xf7, 0xe6, 0x70, 0x00, 0xc3];
    assert_eq!(pick(&multiply, &[0, 1]), emulated(6, "jo"));
    assert_eq!(pick(&multiply, &[0, 1, 2]), stepped(0, "mov"));
}

#[test]
fn not_behind_a_change_of_the_stack() {
    // sub $8,%rsp; push %rbp
    assert_eq!(pick(&[0x48, 0x83, 0xec, 8, 0x55, 0xc3], &[0]), stepped(0, "sub"));
    // pop %rax; push %rax
    assert_eq!(pick(&[0x58, 0x50, 0xc3], &[0]), stepped(0, "pop"));
    // mov %rax,(%rsp); push %rbp
    assert_eq!(pick(&[0x48, 0x89, 0x04, 0x24, 0x55, 0xc3], &[0]), stepped(0, "mov"));
}

#[test]
fn not_where_a_branch_leads_back_to() {
    // test %rdi,%rdi; je +0; jmp back to the je
    let code = [0x48, 0x85, 0xff, 0x74, 0x00, 0xeb, 0xfc, 0xc3];
    assert_eq!(pick(&code, &[0]), stepped(0, "test"));
    // The same, back to the entry: that is hit as often as the entry itself.
    let code = [0x48, 0x85, 0xff, 0x74, 0x00, 0xeb, 0xf9, 0xc3];
    assert_eq!(pick(&code, &[0]), emulated(3, "je"));
}

#[test]
fn not_behind_the_entry_when_only_a_part_was_seen() {
    let free = [0x48, 0x85, 0xff, 0x74, 0x00, 0xc3];
    let machine = object::elf::EM_X86_64;
    let entry = FileOffset(0);
    let site = choose(&Code { machine, bytes: &free, whole: false, entry, args: &[0] });
    assert_eq!(site.map(|site| (site.distance, site.cost)), Ok((0, Cost::SingleStepped)));
}

#[test]
fn not_behind_the_end_of_the_first_block() {
    // xor %eax,%eax; ret; push %rbp
    assert_eq!(pick(&[0x31, 0xc0, 0xc3, 0x55], &[0]), stepped(0, "xor"));
    // syscall; push %rbp
    assert_eq!(pick(&[0x0f, 0x05, 0x55], &[0]), stepped(0, "syscall"));
}

#[test]
fn prefixes_make_a_difference() {
    // callw and jmpw are refused by the kernel, so they are no emulated site.
    assert_ne!(
        at(&[0x66, 0xe8, 0, 0, 0xc3], &[0]).ok().map(|site| site.cost),
        Some(Cost::Emulated)
    );
    // pause is not nop.
    assert_eq!(pick(&[0xf3, 0x90, 0xc3], &[0]), stepped(0, "pause"));
    assert_eq!(pick(&[0x90, 0xc3], &[0]), emulated(0, "nop"));
}

#[test]
fn what_the_kernel_refuses() {
    let refused = |name: &str| Err(SiteError::Refused { instruction: name.to_owned() });
    // cs nopw 0(%rax,%rax,1)
    let code = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3];
    // The return behind it is in the same block and can be probed.
    assert_eq!(pick(&code, &[0]), stepped(10, "ret"));
    // vzeroupper; jmp *%rax
    assert_eq!(pick(&[0xc5, 0xf8, 0x77, 0xff, 0xe0], &[0]), stepped(3, "jmp"));
    // lock incl (%rdi), and nothing behind it that could be decoded
    assert_eq!(at(&[0xf0, 0xff, 0x07, 0x06], &[0]), refused("inc"));
    assert_eq!(at(&[0xcc], &[0]), refused("int3"));
    assert_eq!(at(&[0x06], &[0]), Err(SiteError::Undecodable));
    assert_eq!(at(&[], &[0]), Err(SiteError::Undecodable));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(site) = at(&bytes, &[0, 1, 2]) {
            prop_assert!(site.distance < bytes.len() as u64);
            prop_assert!(site.arg_places.iter().all(|place| usize::from(*place) < N_ARGS));
        }
    }
}
