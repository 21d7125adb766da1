//! Variables that an object offers to others, and the bytes that its file gives them.

use object::LittleEndian;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, STT_OBJECT};
use object::read::elf::{FileHeader as _, Sym as _};

use super::names::Names;
use super::{Elf, ObjectAddr};

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// Where the variables of these names are, each where it is defined and offered.
    pub fn variables<const N: usize>(&self, names: [&str; N]) -> [Option<ObjectAddr>; N] {
        let mut found = [None; N];
        let bytes = self.data.as_ref();
        let Ok(header) = FileHeader64::<LittleEndian>::parse(bytes) else { return found };
        let Ok(sections) = header.sections(LittleEndian, bytes) else { return found };
        let Ok(symbols) = sections.symbols(LittleEndian, bytes, SHT_DYNSYM) else { return found };
        let strings = Names::of(&symbols, &sections, bytes);
        for symbol in symbols.iter() {
            let is_defined = symbol.st_shndx(LittleEndian) != SHN_UNDEF;
            if !is_defined || symbol.st_type() != STT_OBJECT {
                continue;
            }
            let Some(name) = strings.wanted(symbol) else { continue };
            for (found, wanted) in found.iter_mut().zip(names) {
                if name == wanted.as_bytes() {
                    *found = Some(ObjectAddr(symbol.st_value(LittleEndian)));
                }
            }
        }
        found
    }

    /// The bytes that the file has for this address and those that follow.
    pub fn initial<const N: usize>(&self, addr: ObjectAddr) -> Option<[u8; N]> {
        let start = usize::try_from(self.file_offset(addr)?.0).ok()?;
        self.data.as_ref().get(start..start.checked_add(N)?)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::test_program::Folder;

    #[test]
    fn variables_and_their_bytes() {
        let folder = Folder::new();
        let source = "const unsigned long given = 0x030b07f0; int shared = 5;\n\
            extern int missing; int *use(void) { return &missing; } int zero[4];\n";
        let file = folder.compile("variables.so", source, &["-shared", "-fPIC"]);
        let elf = Elf::parse(std::fs::read(file).expect("just made")).expect("an object");
        let [given, shared, missing, function, zero] =
            elf.variables(["given", "shared", "missing", "use", "zero"]);
        let given = given.expect("it is defined");
        assert_eq!(elf.initial(given), Some(0x030b_07f0_u64.to_ne_bytes()));
        assert_eq!(elf.initial(shared.expect("it is defined")), Some(5_u32.to_ne_bytes()));
        assert_eq!((missing, function), (None, None));
        // What begins as zero has no bytes in the file.
        assert_eq!(elf.initial::<4>(zero.expect("it is defined")), None);
    }
}
