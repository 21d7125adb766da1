//! The small symbol table that some distributions leave in stripped objects: an ELF file,
//! compressed with xz, in the section `.gnu_debugdata`. It names the functions that `.dynsym` does
//! not.
//!
//! What is unpacked is bounded, the decoder's own memory too: a few bytes can stand for gigabytes.

use std::fs::File;
use std::io::{self, Read as _};

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::target::elf::Elf;

/// Bytes of a table at the most. A table has 24 bytes and a name for each function; the largest
/// programs have some hundred thousand.
const LARGEST: u64 = 64 << 20;
/// Bytes that the decoder may use: `xz -9` asks for 65 MiB.
const DECODER_MEMORY: u64 = 80 << 20;

/// The table of this object as a file of its own, without a path.
pub(super) fn unpack(elf: &Elf) -> Option<File> {
    let (_, packed) = elf.section(".gnu_debugdata")?;
    unpacked(packed, LARGEST).ok()
}

/// The bytes that these were packed from, as a file; an error where they are more than `largest`.
pub(crate) fn unpacked(packed: &[u8], largest: u64) -> io::Result<File> {
    let stream = Stream::new_stream_decoder(DECODER_MEMORY, 0)?;
    let mut unpacked = XzDecoder::new_stream(packed, stream).take(largest + 1);
    let mut file = File::from(memfd_create(c"outlive-symbols", MFdFlags::MFD_CLOEXEC)?);
    if io::copy(&mut unpacked, &mut file)? > largest {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use liblzma::read::XzEncoder;
    use proptest::prelude::*;
    use std::io::Seek as _;

    fn packed(bytes: &[u8], level: u32) -> Vec<u8> {
        let mut packed = Vec::new();
        XzEncoder::new(bytes, level).read_to_end(&mut packed).expect("in memory");
        packed
    }

    fn content(mut file: File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().expect("a file in memory");
        file.read_to_end(&mut bytes).expect("a file in memory");
        bytes
    }

    #[test]
    fn what_was_packed_is_there_again() {
        let bytes = b"symbols ".repeat(1000);
        for level in [0, 6, 9] {
            let file = unpacked(&packed(&bytes, level), LARGEST).expect("whole");
            assert_eq!(content(file), bytes);
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_bound() {
        let bomb = packed(&vec![0; 1 << 20], 6);
        assert!(bomb.len() < 1000);
        assert!(unpacked(&bomb, 1 << 20).is_ok());
        let error = unpacked(&bomb, (1 << 20) - 1).expect_err("one byte too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_cut_is_refused() {
        let whole = packed(b"symbols", 6);
        assert!(unpacked(&whole[..whole.len() - 1], LARGEST).is_err());
        assert!(unpacked(b"", LARGEST).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            at in 0_usize..60,
            change in any::<u8>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = unpacked(&bytes, 1 << 16);
            let mut broken = packed(b"symbols symbols symbols", 6);
            let at = at % broken.len();
            broken[at] ^= change;
            let _ = unpacked(&broken, 1 << 16);
        }
    }
}
