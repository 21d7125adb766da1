//! All the code of a function. A compiler moves what it believes to be rare elsewhere, and the symbol
//! of that part goes when the object is stripped.

use std::collections::BTreeSet;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection as _};
use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::{Elf, Function, ObjectAddr};

/// Sections of stubs that lead to other objects: one entry of the unwind tables is for all of them.
const STUBS: [&str; 3] = [".plt", ".plt.got", ".plt.sec"];

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// The addresses of this function's code.
    ///
    /// A part elsewhere is told by a jump into the middle of what the unwind tables show as a function:
    /// a call of another function leads to its beginning.
    pub fn parts(&self, function: &Function) -> Vec<Range<u64>> {
        let own = function.addr.0..function.addr.0.saturating_add(function.size);
        let mut parts = vec![own.clone()];
        let targets = self.jumps_out_of(&own);
        if !targets.is_empty() {
            parts.extend(self.around(&targets));
        }
        parts
    }

    fn jumps_out_of(&self, own: &Range<u64>) -> BTreeSet<u64> {
        let code = self.code(ObjectAddr(own.start), own.end - own.start).unwrap_or_default();
        let stubs: Vec<Range<u64>> = STUBS
            .iter()
            .filter_map(|name| self.section(name))
            .map(|(at, bytes)| at.0..at.0.saturating_add(bytes.len() as u64))
            .collect();
        let is_stub = |target: u64| stubs.iter().any(|stub| stub.contains(&target));
        let decoder = Decoder::with_ip(64, code, own.start, DecoderOptions::NONE);
        let is_jump = |kind| {
            matches!(kind, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        };
        decoder
            .into_iter()
            .filter(|instruction| is_jump(instruction.flow_control()))
            .map(|instruction| instruction.near_branch_target())
            .filter(|target| !own.contains(target) && !is_stub(*target))
            .collect()
    }

    /// What the unwind tables show as functions and one of these addresses is in the middle of.
    fn around(&self, targets: &BTreeSet<u64>) -> Vec<Range<u64>> {
        let Some((at, bytes)) = self.eh_frame() else { return Vec::new() };
        let bases = BaseAddresses::default().set_eh_frame(at.0);
        let frame = EhFrame::new(bytes, LittleEndian);
        let mut entries = frame.entries(&bases);
        let mut around = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = entry.initial_address();
            let end = start.saturating_add(entry.len());
            // The range's ends are in no particular order in a broken table.
            let middle = start.saturating_add(1)..end;
            if !middle.is_empty() && targets.range(middle).next().is_some() {
                around.push(start..end);
            }
        }
        around
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::elf::Table;
    use crate::target::test_program::Folder;

    /// The rare branch goes elsewhere, and what it does takes more than one entry.
    const SOURCE: &str = r#"
        extern int often(int), rare(int);
        __attribute__((noinline)) int other(int n) { return often(n) + 1; }
        int function(int n) {
            for (int i = 0; i < n; i++) {
                if (__builtin_expect(n == 7, 0)) n = rare(n) + rare(i) * 3;
                if (__builtin_expect(n == 9, 0)) n = rare(n - 1) + 5;
                n += often(i);
            }
            return other(n);
        }
    "#;

    #[test]
    fn a_part_that_lies_elsewhere_is_found_without_its_symbol() {
        let folder = Folder::new();
        let flags = ["-shared", "-fPIC", "-O2", "-freorder-blocks-and-partition"];
        let cold = "__attribute__((cold)) int rare(int);\n";
        let source = format!("{cold}{SOURCE}");
        let whole = folder.compile("parts.so", &source, &flags);
        let stripped = folder.compile("stripped.so", &source, &[&flags[..], &["-s"]].concat());
        let open = |path| Elf::parse(std::fs::read(path).expect("just made")).expect("an object");
        let (whole, stripped) = (open(whole), open(stripped));
        let named = whole.functions(Table::Full, |name| name == "function.cold").expect("symbols");
        let cold = named.first().expect("the compiler has split the function");
        let function = stripped.functions(Table::Dynamic, |name| name == "function");
        let function = function.expect("symbols").remove(0);
        let parts = stripped.parts(&function);
        assert_eq!(parts.len(), 2, "{parts:x?}");
        assert_eq!(parts[0], function.addr.0..function.addr.0 + function.size);
        assert_eq!(parts[1].start, cold.addr.0);
        // `other` is jumped to as well, and is no part.
        let other = whole.functions(Table::Dynamic, |name| name == "other").expect("symbols");
        assert!(parts.iter().all(|part| !part.contains(&other[0].addr.0)));
    }
}
