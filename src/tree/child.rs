//! A child of a directory as a record of 32 bytes.
#![forbid(unsafe_code)]

/// Marks an unknown size, and the end of a chain.
pub(super) const NONE: u64 = u64::MAX;

/// The kind of a child, with the key of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The object with this number.
    Object(u64),
    /// A file that the format creates on access, by its number there; its size, or [`NONE`]; and the bytes that it
    /// occupies in the container.
    Lazy(u64, u64, u64),
    /// The `.npy` of the `.raw` file with this index, and the bytes that it occupies in the container.
    Npy(u32, u64),
    /// A directory that the format creates on access, by its number there.
    LazyDir(u64),
    /// A symbolic link with a target that the format gives, by its number there.
    LazyLink(u64),
    /// A directory made from names with `/`: its chain, and the hash of their first component.
    Group(Chain, [u64; 2]),
}

/// The first and the last link of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// A child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) what: What,
    /// The next number to try for a name that collides with this one.
    pub(super) next: u32,
}

impl Child {
    pub(super) fn encode(self) -> [u64; 4] {
        let (tag, words) = match self.what {
            What::Object(number) => (0, [number, 0, 0]),
            What::Lazy(number, size, stored) => (1, [number, size, stored]),
            What::Npy(raw, stored) => (2, [raw.into(), 0, stored]),
            What::LazyDir(number) => (3, [number, 0, 0]),
            What::LazyLink(number) => (5, [number, 0, 0]),
            What::Group(chain, [a, b]) => (4, [u64::from(chain.last) << 32 | u64::from(chain.first), a, b]),
        };
        let [a, b, c] = words;
        [u64::from(self.next) << 32 | tag, a, b, c]
    }

    pub(super) fn decode([head, a, b, c]: [u64; 4]) -> Self {
        let what = match head as u32 {
            0 => What::Object(a),
            1 => What::Lazy(a, b, c),
            2 => What::Npy(a as u32, c),
            3 => What::LazyDir(a),
            5 => What::LazyLink(a),
            _ => What::Group(Chain { first: a as u32, last: (a >> 32) as u32 }, [b, c]),
        };
        Self { what, next: (head >> 32) as u32 }
    }
}
