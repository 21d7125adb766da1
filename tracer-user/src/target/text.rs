//! The code that a process really executes, compared with its file.
//!
//! A file that is opened by way of the process is not always the one it executes: overlayfs hands
//! out the upper layer's copy once there is one, while the process still maps the lower layer's
//! file, and the memory map shows the same numbers for both. A breakpoint that the process will
//! run into can be seen in its memory; there is no better proof.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::elf::FileOffset;
use super::mappings::{FileId, Mapping};
use super::process::{Process, ProcessError};

/// One place of a file's code, as a process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place in the file.
    pub offset: FileOffset,
    /// Is another byte there in memory than in the file? A breakpoint is.
    pub is_changed: bool,
}

/// The places that the process has mapped executable, once for each such mapping. A place that
/// cannot be read, because it was unmapped meanwhile, is left out.
///
/// # Errors
/// When the process has ended, or may not be inspected.
pub fn places(
    process: &Process,
    id: FileId,
    file: &File,
    offsets: &[FileOffset],
) -> Result<Vec<Place>, ProcessError> {
    let memory = process.memory()?;
    let mappings = process.mappings()?;
    let executable = |at: &&Mapping| at.is_executable() && at.file == id;
    let byte_at = |file: &File, at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).ok().map(|()| byte)
    };
    let mut places = Vec::new();
    for mapping in mappings.list.iter().filter(executable) {
        let address = |offset: u64| Some(offset.checked_sub(mapping.offset)? + mapping.start);
        for offset in offsets {
            let Some(address) = address(offset.0).filter(|addr| mapping.contains(*addr)) else {
                continue;
            };
            if let (Some(now), Some(in_file)) = (byte_at(&memory, address), byte_at(file, offset.0))
            {
                places.push(Place { offset: *offset, is_changed: now != in_file });
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::objects::open_mapped;
    use crate::target::test_program::Folder;

    #[test]
    fn a_byte_that_was_changed_is_told_from_one_that_was_not() {
        let folder = Folder::new();
        let source = "#include <stdio.h>\n\
                      int main(void) { printf(\"%p\\n\", (void *)main); fflush(stdout); getchar(); }";
        let mut program = folder.run(source, &[]);
        let main = program.addr();
        let process = program.process();
        let mappings = process.mappings().unwrap();
        let code = mappings.at(main).unwrap();
        let file = open_mapped(process.pid, code).unwrap();
        let offset = FileOffset(main - code.start + code.offset);
        let next = FileOffset(offset.0 + 1);
        // A place that is not mapped says nothing.
        let asked = [offset, next, FileOffset(1 << 40)];
        let changed = || -> Vec<(FileOffset, bool)> {
            let places = places(&process, code.file, &file, &asked).unwrap();
            places.iter().map(|place| (place.offset, place.is_changed)).collect()
        };
        assert_eq!(changed(), [(offset, false), (next, false)]);
        let memory = File::options().write(true).open(format!("/proc/{}/mem", process.pid));
        memory.unwrap().write_all_at(&[0xcc], main).unwrap();
        assert_eq!(changed(), [(offset, true), (next, false)]);
    }
}
