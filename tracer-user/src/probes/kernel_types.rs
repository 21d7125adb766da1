//! Where the kernel's structures have their fields, from its own type information (BTF).
//!
//! The programs read a few fields and are told the places when they are loaded.
//! Format: Documentation/bpf/btf.rst of the kernel.

use super::ProbeError;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Offsets of fields, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// Of a task, the thread's id.
    pub(super) task_pid: u64,
    /// Of a task, the process's id.
    pub(super) task_tgid: u64,
    /// Of a task, the address space.
    pub(super) task_mm: u64,
    /// Of a task, how it ended.
    pub(super) task_exit_code: u64,
    /// Of an address space, what is known of the page that probes have in it.
    pub(super) mm_probe_page: u64,
    /// Of that, the page's address.
    pub(super) probe_page_addr: u64,
    /// Of a task, what is known of its probes.
    pub(super) task_probes: u64,
    /// Of that, the latest call whose return is awaited.
    pub(super) probes_return: u64,
    /// Of an awaited return, the one before it.
    pub(super) return_next: u64,
    /// Of an awaited return, where on the stack the return address lies.
    pub(super) return_place: u64,
    /// Of an awaited return, the return address that lay there.
    pub(super) return_addr: u64,
}

/// Those of the kernel that runs.
pub(super) fn fields() -> Result<Fields, ProbeError> {
    let bytes =
        std::fs::read(PATH).map_err(|error| ProbeError::Read { path: PATH.to_owned(), error })?;
    let types = Types::parse(&bytes).ok_or(ProbeError::Types { what: "type information" })?;
    let field = |of: &str, name: &'static str| {
        types.offset(of, name).ok_or(ProbeError::Types { what: name })
    };
    Ok(Fields {
        task_pid: field("task_struct", "pid")?,
        task_tgid: field("task_struct", "tgid")?,
        task_mm: field("task_struct", "mm")?,
        task_exit_code: field("task_struct", "exit_code")?,
        mm_probe_page: field("mm_struct", "uprobes_state")? + field("uprobes_state", "xol_area")?,
        probe_page_addr: field("xol_area", "vaddr")?,
        task_probes: field("task_struct", "utask")?,
        probes_return: field("uprobe_task", "return_instances")?,
        return_next: field("return_instance", "next")?,
        return_place: field("return_instance", "stack")?,
        return_addr: field("return_instance", "orig_ret_vaddr")?,
    })
}

/// The types of a BTF blob, each as the place of its record.
struct Types<'a> {
    records: Vec<usize>,
    types: &'a [u8],
    strings: &'a [u8],
}

/// One member of a structure.
struct Member<'a> {
    name: &'a [u8],
    type_id: u32,
    /// In bits; of a bit field, the lower half.
    bits: u32,
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let at = |place| word(bytes, place).and_then(|word| usize::try_from(word).ok());
        let body = bytes.get(at(4)?..)?;
        let part = |offset: usize, len: usize| body.get(offset..offset.checked_add(len)?);
        let types = part(at(8)?, at(12)?)?;
        let strings = part(at(16)?, at(20)?)?;
        let mut records = Vec::new();
        let mut place = 0;
        while place < types.len() {
            records.push(place);
            let info = word(types, place + 4)?;
            let n = (info & 0xffff) as usize;
            let more = match (info >> 24) & 0x1f {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * n,
                KIND_ENUM | KIND_FUNC_PROTO => 8 * n,
                _ => 0,
            };
            place = place.checked_add(12 + more)?;
        }
        Some(Self { records, types, strings })
    }

    /// Offset of a field in bytes, also of one in a structure without a name within.
    fn offset(&self, of: &str, field: &str) -> Option<u64> {
        let place = self.records.iter().copied().find(|place| {
            self.kind(*place) == Some(KIND_STRUCT)
                && word(self.types, *place).and_then(|name| self.name(name)) == Some(of.as_bytes())
        })?;
        let bits = self.bits(place, field.as_bytes(), 8)?;
        (bits % 8 == 0).then_some(u64::from(bits) / 8)
    }

    fn bits(&self, place: usize, field: &[u8], depth: u32) -> Option<u32> {
        self.members(place).find_map(|member| {
            if member.name == field {
                return Some(member.bits);
            }
            if !member.name.is_empty() || depth == 0 {
                return None;
            }
            let index = usize::try_from(member.type_id).ok()?.checked_sub(1)?;
            let inner = *self.records.get(index)?;
            member.bits.checked_add(self.bits(inner, field, depth - 1)?)
        })
    }

    fn members(&self, place: usize) -> impl Iterator<Item = Member<'a>> {
        let info = word(self.types, place + 4).unwrap_or(0);
        let is_aggregate = matches!((info >> 24) & 0x1f, KIND_STRUCT | KIND_UNION);
        let n = if is_aggregate { (info & 0xffff) as usize } else { 0 };
        let has_bit_fields = info >> 31 == 1;
        (0..n).map_while(move |index| {
            let at = place + 12 + index * 12;
            let bits = word(self.types, at + 8)?;
            Some(Member {
                name: self.name(word(self.types, at)?)?,
                type_id: word(self.types, at + 4)?,
                bits: if has_bit_fields { bits & 0xff_ffff } else { bits },
            })
        })
    }

    fn kind(&self, place: usize) -> Option<u32> {
        Some((word(self.types, place + 4)? >> 24) & 0x1f)
    }

    fn name(&self, offset: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(usize::try_from(offset).ok()?..)?;
        rest.split(|byte| *byte == 0).next()
    }
}

/// Where this type information says that a structure has a field.
pub(crate) fn offset_in(types: &[u8], of: &str, field: &str) -> Option<u64> {
    Types::parse(types)?.offset(of, field)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A blob with one structure: a named field, and one within a structure without a name.
    fn blob() -> Vec<u8> {
        let strings = b"\0task_struct\0pid\0mm\0";
        let record = |name: u32, info: u32, size: u32, members: &[[u32; 3]]| {
            let head = [name, info, size];
            head.into_iter().chain(members.iter().flatten().copied()).collect::<Vec<u32>>()
        };
        let types: Vec<u8> = [
            record(1, KIND_STRUCT << 24 | 2, 24, &[[13, 0, 64], [0, 2, 128]]),
            record(0, KIND_UNION << 24 | 1, 8, &[[17, 0, 32]]),
        ]
        .concat()
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short");
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        blob.extend([1, 0]);
        for word in [24, 0, len(&types), len(&types), len(strings)] {
            blob.extend(u32::to_ne_bytes(word));
        }
        blob.extend(types);
        blob.extend(strings);
        blob
    }

    #[test]
    fn fields_are_found_also_without_a_name_between() {
        let blob = blob();
        let types = Types::parse(&blob).expect("a blob");
        assert_eq!(types.offset("task_struct", "pid"), Some(8));
        assert_eq!(types.offset("task_struct", "mm"), Some(20));
        assert_eq!(types.offset("task_struct", "tgid"), None);
        assert_eq!(types.offset("mm_struct", "pid"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(place in 0_usize..120, byte in any::<u8>(), len in 0_usize..120) {
            let mut blob = blob();
            let last = blob.len() - 1;
            blob[place.min(last)] = byte;
            blob.truncate(len);
            if let Some(types) = Types::parse(&blob) {
                let _ = types.offset("task_struct", "mm");
            }
        }
    }
}
