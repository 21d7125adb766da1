//! The code that a process really executes, compared with its file.
//!
//! A file that is opened by way of the process is not always the one it executes: overlayfs hands
//! out the upper layer's copy once there is one, while the process still maps the lower layer's
//! file, and the memory map shows the same numbers for both. A breakpoint that the process will
//! run into can be seen in its memory; there is no better proof.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::elf::FileOffset;
use super::mappings::{FileId, Mapping, Mappings};
use super::process::{Process, ProcessError};

/// One place of a file's code, as a process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place in the file.
    pub offset: FileOffset,
    /// Is another byte there in memory than in the file? A breakpoint is.
    pub is_changed: bool,
}

/// The code of one process, as it is mapped at one moment.
#[derive(Debug)]
pub struct Code {
    memory: File,
    mappings: Mappings,
}

impl Code {
    /// That of this process now.
    ///
    /// # Errors
    /// When the process has ended, or may not be inspected.
    pub fn of(process: &Process) -> Result<Self, ProcessError> {
        Ok(Self { memory: process.memory()?, mappings: process.mappings()? })
    }

    /// The places of this file that are mapped executable, once for each such mapping. A place that
    /// cannot be read, because it was unmapped meanwhile, is left out.
    pub fn places(&self, id: FileId, file: &File, offsets: &[FileOffset]) -> Vec<Place> {
        let executable = |at: &&Mapping| at.is_executable() && at.file == id;
        let byte_at = |file: &File, at: u64| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).ok().map(|()| byte)
        };
        let mut places = Vec::new();
        for mapping in self.mappings.list.iter().filter(executable) {
            let address = |offset: u64| Some(offset.checked_sub(mapping.offset)? + mapping.start);
            for offset in offsets {
                let Some(address) = address(offset.0).filter(|addr| mapping.contains(*addr)) else {
                    continue;
                };
                let now = byte_at(&self.memory, address);
                if let (Some(now), Some(in_file)) = (now, byte_at(file, offset.0)) {
                    places.push(Place { offset: *offset, is_changed: now != in_file });
                }
            }
        }
        places
    }
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
            let places = Code::of(&process).unwrap().places(code.file, &file, &asked);
            places.iter().map(|place| (place.offset, place.is_changed)).collect()
        };
        assert_eq!(changed(), [(offset, false), (next, false)]);
        let memory = File::options().write(true).open(format!("/proc/{}/mem", process.pid));
        memory.unwrap().write_all_at(&[0xcc], main).unwrap();
        assert_eq!(changed(), [(offset, true), (next, false)]);
    }
}
