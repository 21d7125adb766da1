//! Reading another process's memory, which changes meanwhile: every read can fail, and what it
//! answers is checked by who asked.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Memory that can be read at its addresses.
pub(super) trait Memory {
    /// Fills the buffer with what lies from `addr` on. `None` when a part of it is not mapped.
    fn read(&self, addr: u64, buffer: &mut [u8]) -> Option<()>;

    /// So many bytes from `addr` on.
    fn bytes<const N: usize>(&self, addr: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(addr, &mut bytes)?;
        Some(bytes)
    }

    /// The word at `addr`.
    fn word(&self, addr: u64) -> Option<u64> {
        self.bytes(addr).map(u64::from_ne_bytes)
    }
}

/// Bytes that lie from the first address on.
impl Memory for &[u8] {
    fn read(&self, addr: u64, buffer: &mut [u8]) -> Option<()> {
        let at = usize::try_from(addr).ok()?;
        buffer.copy_from_slice(self.get(at..at.checked_add(buffer.len())?)?);
        Some(())
    }
}

/// That of a process, `/proc/<pid>/mem`.
#[derive(Debug)]
pub(super) struct ProcessMemory(pub(super) File);

impl Memory for ProcessMemory {
    fn read(&self, addr: u64, buffer: &mut [u8]) -> Option<()> {
        // The kernel takes offsets as signed, and no program has anything in the upper half.
        i64::try_from(addr).ok()?;
        self.0.read_exact_at(buffer, addr).ok()
    }
}

/// A structure that was read, field by field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    /// The word at this offset.
    pub(super) fn word(&self, offset: usize) -> Option<u64> {
        self.array(offset).map(u64::from_ne_bytes)
    }

    /// The half word at this offset.
    pub(super) fn half(&self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_ne_bytes)
    }

    /// The byte at this offset.
    pub(super) fn byte(&self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset.checked_add(N)?)?.try_into().ok()
    }
}

/// Bytes at one place, for tests.
#[cfg(test)]
pub(super) struct Flat {
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
}

#[cfg(test)]
impl Flat {
    /// Writes a word where there is room for it.
    pub(super) fn put(&mut self, addr: u64, word: u64) {
        for (number, byte) in word.to_ne_bytes().into_iter().enumerate() {
            self.put_byte(addr + number as u64, byte);
        }
    }

    /// Writes a byte where there is room for it.
    pub(super) fn put_byte(&mut self, addr: u64, byte: u8) {
        let at = usize::try_from(addr.wrapping_sub(self.start)).expect("64 bits");
        if let Some(there) = self.bytes.get_mut(at) {
            *there = byte;
        }
    }
}

#[cfg(test)]
impl Memory for Flat {
    fn read(&self, addr: u64, buffer: &mut [u8]) -> Option<()> {
        let at = usize::try_from(addr.checked_sub(self.start)?).ok()?;
        buffer.copy_from_slice(self.bytes.get(at..at.checked_add(buffer.len())?)?);
        Some(())
    }
}
