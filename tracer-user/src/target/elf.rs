//! An ELF file, as far as probes and names need it: where its segments lie in the file and
//! in memory, and which functions it defines.
//!
//! Places are converted by program headers only. Section headers say nothing about what is
//! loaded, and linkers differ in them (lld, `-z noseparate-code`, `-Ttext-segment`).

mod call_frames;
mod calls;
mod compressed;
pub(crate) mod names;
mod notes;
mod parts;
mod variables;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;

use memmap2::Mmap;
use object::elf::{
    ELFCLASS32, ELFMAG, ET_EXEC, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, Rela64,
    SHF_COMPRESSED, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC,
    STT_GNU_IFUNC, STV_HIDDEN, STV_INTERNAL, Sym64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Rela as _};
use object::read::elf::{SectionHeader as _, Sym as _};
use object::{LittleEndian, SectionIndex, SymbolIndex};

pub use self::calls::Call;
pub use self::compressed::{Compressed, Stored};
use self::names::Names;

/// Address as the object file states it (`p_vaddr`, `st_value`, DWARF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectAddr(pub u64);

/// Place in the object's file, in bytes from its start. Probes are attached at these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

/// Why a file is not an object that can be traced.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file could not be mapped.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// Not ELF, or its tables contradict each other.
    #[error("it is no whole ELF file: {0}")]
    Broken(#[from] object::read::Error),
    /// Not ELF at all.
    #[error("it is no ELF file")]
    NotElf,
    /// An object of a 32-bit program.
    #[error("it is a 32-bit object; only 64-bit programs can be traced")]
    Bits32,
    /// Another byte order than this tool's.
    #[error("it is big-endian; only little-endian programs can be traced")]
    BigEndian,
}

/// What kind of function a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Its code is at the address.
    Plain,
    /// At the address is a resolver that picks the code at load time (`STT_GNU_IFUNC`).
    Indirect,
}

/// A defined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name without a version suffix.
    pub name: String,
    /// Address of its entry.
    pub addr: ObjectAddr,
    /// Size in bytes; zero when the file does not say.
    pub size: u64,
    /// Is the code there, or its resolver?
    pub kind: FunctionKind,
    /// Could code of other source files call it? A linker may make such a function local
    /// and say so by its visibility, or not say so.
    pub is_shared: bool,
}

/// Which of an object's two symbol tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// What the object offers to others.
    Dynamic,
    /// Everything; missing from a stripped object.
    Full,
}

/// What a pointer that the loader fills in points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointee {
    /// A place in this object.
    Here(ObjectAddr),
    /// A symbol of another object.
    Elsewhere(String),
}

/// Program headers that are read. The kernel starts no program that has more (64 KiB of them), and
/// linkers write a dozen.
const MOST_HEADERS: usize = 1170;

/// A range of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    addr: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

/// An object file, mapped.
#[derive(Debug)]
pub struct Elf<Data = Mmap> {
    data: Data,
    segments: Vec<Segment>,
    /// Where the header of the unwind table is loaded that comes with the code.
    eh_frame_header: Option<ObjectAddr>,
    /// `EM_…` number of the machine.
    pub machine: u16,
    /// Where execution starts.
    pub entry: ObjectAddr,
    /// A program rather than a library: bound to fixed addresses, or asks for a loader.
    pub is_program: bool,
    /// Does it ask for a loader? A program that does not has its libraries within.
    pub asks_for_loader: bool,
    /// The build id, when there is one.
    pub build_id: Option<Vec<u8>>,
}

impl Elf {
    /// Maps and reads the headers of this file.
    ///
    /// # Errors
    /// When it is not a little-endian 64-bit ELF file; see [`ElfError`].
    pub fn open(file: &File) -> Result<Self, ElfError> {
        // SAFETY: the file is one that a process executes. Were it truncated meanwhile, we
        // would die of SIGBUS as the process itself would; bytes that change under us are
        // harmless, since every read of them is checked.
        let data = unsafe { Mmap::map(file)? };
        Self::parse(data)
    }
}

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// Reads the headers.
    ///
    /// # Errors
    /// When it is not a little-endian 64-bit ELF file; see [`ElfError`].
    pub fn parse(data: Data) -> Result<Self, ElfError> {
        let bytes = data.as_ref();
        if !bytes.starts_with(&ELFMAG) {
            return Err(ElfError::NotElf);
        }
        // EI_CLASS of the identification.
        if bytes.get(4) == Some(&ELFCLASS32) {
            return Err(ElfError::Bits32);
        }
        let header = FileHeader64::<LittleEndian>::parse(bytes)?;
        if header.is_big_endian() {
            return Err(ElfError::BigEndian);
        }
        let headers = header.program_headers(LittleEndian, bytes)?;
        let headers = &headers[..headers.len().min(MOST_HEADERS)];
        let segments = headers
            .iter()
            .filter(|header| header.p_type(LittleEndian) == PT_LOAD)
            .map(|header| Segment {
                addr: header.p_vaddr(LittleEndian),
                offset: header.p_offset(LittleEndian),
                file_size: header.p_filesz(LittleEndian),
                executable: header.p_flags(LittleEndian) & PF_X != 0,
            })
            .collect();
        let eh_frame_header =
            headers.iter().find(|header| header.p_type(LittleEndian) == PT_GNU_EH_FRAME);
        let asks_for_loader = headers.iter().any(|header| header.p_type(LittleEndian) == PT_INTERP);
        Ok(Self {
            segments,
            eh_frame_header: eh_frame_header.map(|it| ObjectAddr(it.p_vaddr(LittleEndian))),
            machine: header.e_machine(LittleEndian),
            entry: ObjectAddr(header.e_entry(LittleEndian)),
            asks_for_loader,
            is_program: asks_for_loader || header.e_type(LittleEndian) == ET_EXEC,
            build_id: notes::build_id(headers, bytes),
            data,
        })
    }

    /// Where the byte at this address lies in the file, if it comes from the file.
    pub fn file_offset(&self, addr: ObjectAddr) -> Option<FileOffset> {
        self.segments
            .iter()
            .find_map(|segment| {
                let within = addr.0.checked_sub(segment.addr)?;
                (within < segment.file_size).then(|| segment.offset.checked_add(within))?
            })
            .map(FileOffset)
    }

    /// At which address the byte at this place of the file is loaded. Where segments share
    /// a page of the file the executable one is meant, since code is asked for.
    pub fn object_addr(&self, offset: FileOffset) -> Option<ObjectAddr> {
        let find = |executable| {
            self.segments.iter().filter(|segment| segment.executable == executable).find_map(
                |segment| {
                    let within = offset.0.checked_sub(segment.offset)?;
                    (within < segment.file_size).then(|| segment.addr.checked_add(within))?
                },
            )
        };
        find(true).or_else(|| find(false)).map(ObjectAddr)
    }

    /// The bytes from this address on that lie in the same executable segment, `limit` at
    /// the most. `None` when the address is not executable code of the file.
    pub fn code(&self, addr: ObjectAddr, limit: u64) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| {
            segment.executable
                && addr.0.checked_sub(segment.addr).is_some_and(|at| at < segment.file_size)
        })?;
        let within = addr.0.checked_sub(segment.addr)?;
        let start = segment.offset.checked_add(within)?;
        let len = limit.min(segment.file_size.checked_sub(within)?);
        let end = start.checked_add(len)?;
        self.data.as_ref().get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// The section of this name: where it is loaded, and its bytes. `None` when there is none, or
    /// none that can be read as it lies there.
    pub fn section(&self, name: &str) -> Option<(ObjectAddr, &[u8])> {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
        let sections = header.sections(LittleEndian, bytes).ok()?;
        let (_, section) = sections.section_by_name(LittleEndian, name.as_bytes())?;
        if section.sh_flags(LittleEndian) & u64::from(SHF_COMPRESSED) != 0 {
            return None;
        }
        let data = section.data(LittleEndian, bytes).ok()?;
        (!data.is_empty()).then_some((ObjectAddr(section.sh_addr(LittleEndian)), data))
    }

    /// Where the loader makes the pointer at `slot` point.
    ///
    /// # Errors
    /// When a table is broken.
    pub fn pointee(&self, slot: ObjectAddr) -> Result<Option<Pointee>, ElfError> {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes)?;
        let sections = header.sections(LittleEndian, bytes)?;
        // More entries than the file has room for are the same ones again and again.
        let mut left = bytes.len() / size_of::<Rela64<LittleEndian>>();
        for section in sections.iter() {
            let Some((relocations, link)) = section.rela(LittleEndian, bytes)? else { continue };
            let Some(still) = left.checked_sub(relocations.len()) else { return Ok(None) };
            left = still;
            let at = |it: &&Rela64<LittleEndian>| it.r_offset(LittleEndian) == slot.0;
            let Some(relocation) = relocations.iter().find(at) else { continue };
            let index = relocation.r_sym(LittleEndian, false);
            if index == 0 {
                let addr = relocation.r_addend(LittleEndian).cast_unsigned();
                return Ok(Some(Pointee::Here(ObjectAddr(addr))));
            }
            let symbols = sections.symbol_table_by_index(LittleEndian, bytes, link)?;
            let symbol = symbols.symbol(SymbolIndex(index as usize))?;
            if symbol.st_shndx(LittleEndian) != SHN_UNDEF {
                let addr = symbol.st_value(LittleEndian);
                return Ok(Some(Pointee::Here(ObjectAddr(addr))));
            }
            let name = symbols.symbol_name(LittleEndian, symbol)?;
            return Ok(Some(Pointee::Elsewhere(String::from_utf8_lossy(name).into_owned())));
        }
        Ok(None)
    }

    /// The functions whose symbols cover these addresses; in bytes, since a name may be any. None
    /// where there is no such symbol, and where the tables are broken.
    pub fn functions_at(&self, addrs: &[ObjectAddr]) -> HashMap<ObjectAddr, &[u8]> {
        let mut found = HashMap::new();
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes);
        let sections = header.and_then(|header| header.sections(LittleEndian, bytes));
        let Ok(sections) = sections else { return found };
        // Those that have no name yet: of symbols that all cover everything, one is looked at.
        let mut addrs: BTreeSet<ObjectAddr> = addrs.iter().copied().collect();
        for table in [SHT_SYMTAB, SHT_DYNSYM] {
            let Ok(symbols) = sections.symbols(LittleEndian, bytes, table) else { continue };
            let names = Names::of(&symbols, &sections, bytes);
            for symbol in symbols.iter().filter(|symbol| defined_function(symbol).is_some()) {
                let start = symbol.st_value(LittleEndian);
                let end = start.saturating_add(symbol.st_size(LittleEndian));
                let mut covered = addrs.range(ObjectAddr(start)..ObjectAddr(end)).peekable();
                if covered.peek().is_none() {
                    continue;
                }
                let Some(name) = names.shown(symbol) else { continue };
                let covered: Vec<ObjectAddr> = covered.copied().collect();
                for addr in covered {
                    addrs.remove(&addr);
                    found.insert(addr, name);
                }
            }
        }
        found
    }

    /// Is there a section of this name, in whatever form?
    pub fn has_section(&self, name: &str) -> bool {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes);
        let sections = header.and_then(|header| header.sections(LittleEndian, bytes));
        sections.is_ok_and(|all| all.section_by_name(LittleEndian, name.as_bytes()).is_some())
    }

    /// Does the file define or ask for a symbol of one of these names?
    ///
    /// # Errors
    /// When the section table or a symbol table is broken.
    pub fn names_any(&self, names: &[&str]) -> Result<bool, ElfError> {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes)?;
        let sections = header.sections(LittleEndian, bytes)?;
        for table in [SHT_DYNSYM, SHT_SYMTAB] {
            let symbols = sections.symbols(LittleEndian, bytes, table)?;
            let strings = Names::of(&symbols, &sections, bytes);
            let mut found =
                symbols.iter().filter_map(|symbol| str::from_utf8(strings.wanted(symbol)?).ok());
            let bare = |name: &str| names.contains(&name.split('@').next().unwrap_or(name));
            if found.any(bare) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The functions in `table` whose names `wanted` accepts.
    ///
    /// # Errors
    /// When the section table or the symbol table is broken. A missing table is empty.
    pub fn functions(
        &self,
        table: Table,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Function>, ElfError> {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes)?;
        let sections = header.sections(LittleEndian, bytes)?;
        let section_type = match table {
            Table::Dynamic => SHT_DYNSYM,
            Table::Full => SHT_SYMTAB,
        };
        let symbols = sections.symbols(LittleEndian, bytes, section_type)?;
        if symbols.section() == SectionIndex(0) {
            return Ok(Vec::new());
        }
        let names = Names::of(&symbols, &sections, bytes);
        let mut functions = Vec::new();
        for symbol in symbols.iter() {
            let Some((kind, is_shared)) = defined_function(symbol) else { continue };
            // A name outside the string table spoils this symbol, not the others.
            let Some(name) = names.wanted(symbol) else { continue };
            let Ok(name) = str::from_utf8(name) else { continue };
            let name = name.split_once('@').map_or(name, |(name, _version)| name);
            if wanted(name) {
                functions.push(Function {
                    name: name.to_owned(),
                    addr: ObjectAddr(symbol.st_value(LittleEndian)),
                    size: symbol.st_size(LittleEndian),
                    kind,
                    is_shared,
                });
            }
        }
        Ok(functions)
    }
}

/// Its kind, and whether it is shared.
fn defined_function(symbol: &Sym64<LittleEndian>) -> Option<(FunctionKind, bool)> {
    let is_shared = match symbol.st_bind() {
        STB_GLOBAL | STB_WEAK => true,
        // A linker makes hidden symbols local; they were global before.
        STB_LOCAL => matches!(symbol.st_visibility(), STV_HIDDEN | STV_INTERNAL),
        _ => return None,
    };
    if symbol.st_shndx(LittleEndian) == SHN_UNDEF {
        return None;
    }
    match symbol.st_type() {
        STT_FUNC => Some((FunctionKind::Plain, is_shared)),
        STT_GNU_IFUNC => Some((FunctionKind::Indirect, is_shared)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::target::test_program::Folder;

    static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let folder = Folder::new();
        let source = "int f(int x) { return x + 1; }\nint g(int x) { return f(x) * 2; }\n";
        let flags = ["-shared", "-fPIC", "-Wl,--build-id=0x0123456789abcdef"];
        std::fs::read(folder.compile("small.so", source, &flags)).expect("just made")
    });

    #[test]
    fn a_small_library() {
        let elf = Elf::parse(LIBRARY.as_slice()).expect("an object");
        assert!(!elf.is_program);
        assert_eq!(elf.build_id, Some(vec![0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]));
        let functions = elf.functions(Table::Dynamic, |name| name == "g").expect("symbols");
        assert_eq!(functions.len(), 1);
        let g = &functions[0];
        assert_eq!(g.kind, FunctionKind::Plain);
        let offset = elf.file_offset(g.addr).expect("it is in the file");
        assert_eq!(elf.object_addr(offset), Some(g.addr));
        let code = elf.code(g.addr, g.size).expect("it is code");
        assert_eq!(code.len() as u64, g.size);
        let start = usize::try_from(offset.0).expect("small");
        assert_eq!(code, &LIBRARY[start..start + code.len()]);
        // The headers are loaded and are not code.
        assert_eq!(elf.code(ObjectAddr(0), 4), None);
        assert_eq!(elf.file_offset(ObjectAddr(u64::MAX)), None);
    }

    #[test]
    fn what_is_no_object_is_told() {
        assert!(matches!(Elf::parse(b"".as_slice()), Err(ElfError::NotElf)));
        assert!(matches!(Elf::parse(b"#!/bin/sh\n".as_slice()), Err(ElfError::NotElf)));
        assert!(matches!(Elf::parse(b"\x7fELF\x01".as_slice()), Err(ElfError::Bits32)));
        assert!(matches!(Elf::parse(&LIBRARY[..40]), Err(ElfError::Broken(_))));
    }

    proptest! {
        #[test]
        fn a_broken_object_makes_no_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
            in_headers in proptest::collection::vec((0_usize..0x400, any::<u8>()), 0..8),
            len in any::<prop::sample::Index>(), cut in any::<bool>(),
        ) {
            let mut bytes = LIBRARY.clone();
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            for (at, byte) in in_headers {
                // The identification stays, or nothing else would be read.
                bytes[at.max(6)] = byte;
            }
            if cut {
                bytes.truncate(len.index(bytes.len()));
            }
            let Ok(elf) = Elf::parse(bytes) else { return Ok(()) };
            let _ = elf.functions_at(&[ObjectAddr(0), ObjectAddr(0x1100), ObjectAddr(u64::MAX)]);
            let _ = (elf.section(".symtab"), elf.section(".gnu_debuglink"));
            for table in [Table::Dynamic, Table::Full] {
                for function in elf.functions(table, |_| true).unwrap_or_default() {
                    let _ = elf.code(function.addr, function.size);
                    let offset = elf.file_offset(function.addr);
                    let _ = offset.and_then(|offset| elf.object_addr(offset));
                }
            }
        }
    }
}
