//! Compressed sections of an object, before anybody unpacks them.
//!
//! Symbolizers make room for as many bytes as a section says that it has, and then unpack as many
//! as there are. Both are of the target's choosing, and what cannot be had ends the whole tool.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};

use flate2::bufread::ZlibDecoder;
use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::target::elf::{Compressed, Elf, Stored};

/// By how much all sections together may be longer than the file. Debug information is three to ten
/// times as long as what it is packed to.
const MOST_TIMES: u64 = 100;

/// The bytes of the sections of this name, one behind the other; of an object whose sections
/// [`are_whole`].
pub(super) fn section<'a>(elf: &'a Elf, name: &str) -> Cow<'a, [u8]> {
    let stored = elf.sections_of(name);
    if let [Stored::Plain(bytes)] = stored[..] {
        return Cow::Borrowed(bytes);
    }
    let mut bytes = Vec::new();
    for section in stored {
        // Nothing is added where it fails: what was checked does not.
        let _ = match section {
            Stored::Plain(plain) => io::copy(&mut &*plain, &mut bytes),
            Stored::Compressed(packed) => unpack(&packed, &mut bytes),
        };
    }
    Cow::Owned(bytes)
}

fn unpack(section: &Compressed<'_>, to: &mut Vec<u8>) -> io::Result<u64> {
    match section.form {
        ELFCOMPRESS_ZLIB => io::copy(&mut ZlibDecoder::new(section.packed), to),
        ELFCOMPRESS_ZSTD => io::copy(&mut ZstdDecoder::with_buffer(section.packed)?, to),
        _ => Ok(0),
    }
}

/// Can the sections of this object be unpacked, each to the bytes that it says?
pub(super) fn are_whole(elf: &Elf, file: &File) -> bool {
    let Ok(sections) = elf.compressed() else { return false };
    let Ok(len) = file.metadata().map(|file| file.len()) else { return false };
    let sizes = sections.iter().try_fold(0_u64, |sum, section| sum.checked_add(section.size));
    sizes.is_some_and(|sum| sum <= len.saturating_mul(MOST_TIMES))
        && sections.iter().all(|section| is_whole(section).unwrap_or(false))
}

fn is_whole(section: &Compressed<'_>) -> io::Result<bool> {
    match section.form {
        ELFCOMPRESS_ZLIB => has(section.size, ZlibDecoder::new(section.packed)),
        ELFCOMPRESS_ZSTD => has(section.size, ZstdDecoder::with_buffer(section.packed)?),
        // Nobody unpacks it.
        _ => Ok(true),
    }
}

/// Are there as many bytes, and no more?
fn has(size: u64, unpacked: impl Read) -> io::Result<bool> {
    let mut unpacked = unpacked.take(size.saturating_add(1));
    Ok(io::copy(&mut unpacked, &mut io::sink())? == size)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::target::test_program::Folder;

    fn check(file: &File) -> bool {
        are_whole(&Elf::open(file).expect("an object"), file)
    }

    #[test]
    fn a_section_that_lies_about_its_size_is_not_unpacked() {
        for form in ["zlib", "zstd"] {
            let folder = Folder::new();
            let form = format!("-Wl,--compress-debug-sections={form}");
            let source = "int f(int x) { return x; }";
            let path = folder.compile("packed.so", source, &["-shared", "-fPIC", "-g3", &form]);
            let file = File::options().read(true).write(true).open(&path).expect("just made");
            assert!(check(&file), "{form}");

            let bytes = fs::read(&path).expect("just made");
            let elf = Elf::parse(bytes.as_slice()).expect("an object");
            let sections = elf.compressed().expect("whole headers");
            let first = sections.first().expect("debug information is packed");
            // The size is in the header before, behind four bytes of form and four of nothing.
            let at = first.packed.as_ptr().addr() - bytes.as_ptr().addr() - 16;
            for size in [first.size - 1, first.size + 1, 1 << 50, u64::MAX] {
                file.write_all_at(&size.to_le_bytes(), at as u64).expect("written");
                assert!(!check(&file), "{form}, {size}");
            }
        }
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let folder = Folder::new();
        let source = "__asm__(\".section .debug_types, \\\"\\\"\\n.zero 3000000\\n.text\\n\");";
        let path = folder.compile("bomb.so", source, &["-shared", "-fPIC", "-gz=zlib"]);
        let file = File::open(&path).expect("just made");
        assert!(file.metadata().expect("a file").len() < 30_000);
        assert!(!check(&file));
    }
}
