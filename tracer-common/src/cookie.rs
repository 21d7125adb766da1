//! What one probe needs to know, packed into the 64 bits of an attach cookie.

/// What a probed function does with memory.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Returns a block of `size` bytes.
    Alloc = 1,
    /// Returns a block of `size` times `count` bytes.
    AllocArray = 2,
    /// Stores a block of `size` bytes through the pointer argument and returns zero.
    AllocOut = 3,
    /// Turns the block of the pointer argument into one of `size` bytes.
    Resize = 4,
    /// Turns the block of the pointer argument into one of `size` times `count` bytes.
    ResizeArray = 5,
    /// Gives the block of the pointer argument back.
    Free = 6,
    /// The same, by a function of which it is not known that it hands the same pointer on:
    /// what is released within the call belongs to it.
    FreeCall = 7,
    /// Resizes the block of the pointer argument where it is, and returns its real size,
    /// which is at least `size` if it succeeded.
    ResizeInPlace = 8,
    /// Stores a block of `size` times `count` bytes through the pointer argument and returns
    /// zero.
    AllocOutArray = 9,
    /// Makes an exception: a call in flight that may throw ends here.
    Throw = 10,
}

impl Shape {
    /// The shape of this number, if there is one.
    #[inline(always)]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Alloc),
            2 => Some(Self::AllocArray),
            3 => Some(Self::AllocOut),
            4 => Some(Self::Resize),
            5 => Some(Self::ResizeArray),
            6 => Some(Self::Free),
            7 => Some(Self::FreeCall),
            8 => Some(Self::ResizeInPlace),
            9 => Some(Self::AllocOutArray),
            10 => Some(Self::Throw),
            _ => None,
        }
    }

    /// Can the call make a block?
    pub const fn returns_memory(self) -> bool {
        !matches!(self, Self::Free | Self::FreeCall | Self::Throw)
    }

    /// Does the call's end have to be seen?
    pub const fn has_end(self) -> bool {
        !matches!(self, Self::Free | Self::Throw)
    }
}

/// One probed function. Argument places are indices into the calling convention's integer
/// arguments, from zero; a place that a shape does not use is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie {
    /// What the function does.
    pub shape: Shape,
    /// Argument that holds the size in bytes, or of one element.
    pub size_arg: u8,
    /// Argument that holds the number of elements.
    pub count_arg: u8,
    /// Argument that holds the block, or the place where the block's address is stored.
    pub ptr_arg: u8,
    /// Number of the allocator, given by the user side and repeated in each record.
    pub family: u16,
    /// May the call end by an exception, or on another stack? Then its end is seen at its return
    /// instructions, and it is no loss when that does not come.
    pub throws: bool,
    /// Is the size an `int`, so that the upper half of its register means nothing?
    pub size_is_int: bool,
}

impl Cookie {
    /// The cookie as the kernel hands it to a program.
    pub const fn pack(self) -> u64 {
        self.shape as u64
            | (self.size_arg as u64) << 8
            | (self.count_arg as u64) << 16
            | (self.ptr_arg as u64) << 24
            | (self.family as u64) << 32
            | (self.throws as u64) << 48
            | (self.size_is_int as u64) << 49
    }

    /// The inverse of [`Cookie::pack`]; `None` when the shape is not one.
    #[inline(always)]
    pub const fn unpack(bits: u64) -> Option<Self> {
        match Shape::from_u8(bits as u8) {
            Some(shape) => Some(Self {
                shape,
                size_arg: (bits >> 8) as u8,
                count_arg: (bits >> 16) as u8,
                ptr_arg: (bits >> 24) as u8,
                family: (bits >> 32) as u16,
                throws: bits >> 48 & 1 == 1,
                size_is_int: bits >> 49 & 1 == 1,
            }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            shape in 1u8..=10, size_arg in 0u8..6, count_arg in 0u8..6, ptr_arg in 0u8..6,
            family in any::<u16>(), throws in any::<bool>(), size_is_int in any::<bool>(),
        ) {
            let shape = Shape::from_u8(shape).expect("1 to 10 are shapes");
            let cookie =
                Cookie { shape, size_arg, count_arg, ptr_arg, family, throws, size_is_int };
            prop_assert_eq!(Cookie::unpack(cookie.pack()), Some(cookie));
        }

        #[test]
        fn any_bits_are_a_cookie_or_none(bits in any::<u64>()) {
            if let Some(cookie) = Cookie::unpack(bits) {
                prop_assert_eq!(cookie.pack(), bits & 0x3_ffff_ffff_ffff);
            }
        }
    }
}
