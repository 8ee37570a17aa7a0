//! A member as a record of 32 bytes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::FileOffset;

use super::header::BLOCK;

/// The end of a list of children.
pub(super) const NONE: u32 = u32::MAX;
/// Bits of the size in its word.
const SIZE: u32 = 48;
/// Bits of the stored part of a sparse file.
const PART: u32 = 24;

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    Dir,
    File,
    /// A file whose map of holes is to be read.
    Sparse,
    Symlink,
    /// A hard link to a name that no earlier member has.
    Dangling,
}

/// A member in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TarNode {
    pub(super) parent: u32,
    /// The next child of the same directory.
    pub(super) next: u32,
    pub(super) kind: NodeKind,
    /// If it was recorded: for the owner, the group and others.
    pub(super) mode: Option<u16>,
    /// Bytes of a file; of a directory, how many of its children are directories.
    pub(super) len: u64,
    /// Of a file, where its content is; of a sparse one, see [`sparse_at`]; of a symbolic link, the number of its
    /// target; of a directory, its first and its last child.
    pub(super) at: u64,
    /// Seconds since 1970, at most 272 years from then, and nanoseconds.
    pub(super) mtime: Option<(i64, u32)>,
}

impl TarNode {
    pub(super) fn new(parent: u32, kind: NodeKind) -> Self {
        let at = if kind == NodeKind::Dir { pair(NONE, NONE) } else { 0 };
        Self { parent, next: NONE, kind, mode: None, len: 0, at, mtime: None }
    }

    /// Where the content or the headers of a file are.
    pub(super) fn at(&self) -> FileOffset {
        FileOffset(if self.kind == NodeKind::Sparse { (self.at >> PART).saturating_mul(BLOCK) } else { self.at })
    }

    /// Bytes of a file that are in the archive; of a sparse one, to within 2^-24 of its length.
    pub(super) fn stored(&self) -> u64 {
        if self.kind != NodeKind::Sparse {
            return self.len;
        }
        let part = u128::from(self.at & ((1 << PART) - 1));
        u64::try_from(u128::from(self.len).saturating_mul(part) >> PART).unwrap_or(self.len)
    }

    pub(super) fn encode(&self) -> [u64; 4] {
        let kind = match self.kind {
            NodeKind::Dir => 0,
            NodeKind::File => 1,
            NodeKind::Sparse => 2,
            NodeKind::Symlink => 3,
            NodeKind::Dangling => 4_u64,
        };
        let mode = self.mode.map_or(0, |mode| u64::from(mode & 0o777) | 0o1000);
        let time = self.mtime.filter(|(seconds, _)| (-MOST..MOST).contains(seconds));
        let time = time
            .map_or(UNKNOWN, |(seconds, nanos)| seconds.saturating_add(MOST).cast_unsigned() << 30 | u64::from(nanos));
        [pair(self.parent, self.next), self.at, self.len | mode << SIZE | kind << (SIZE.saturating_add(12)), time]
    }

    pub(super) fn decode([links, at, size, time]: [u64; 4]) -> Self {
        let kind = match size >> SIZE.saturating_add(12) {
            0 => NodeKind::Dir,
            1 => NodeKind::File,
            2 => NodeKind::Sparse,
            3 => NodeKind::Symlink,
            _ => NodeKind::Dangling,
        };
        let (parent, next) = halves(links);
        let mode = u16::try_from(size >> SIZE & 0o1777).ok().filter(|mode| mode & 0o1000 != 0);
        let seconds = (time >> 30).cast_signed().saturating_sub(MOST);
        let nanos = u32::try_from(time & ((1 << 30) - 1)).unwrap_or(0);
        let mtime = (time != UNKNOWN).then_some((seconds, nanos));
        let len = size & ((1 << SIZE) - 1);
        Self { parent, next, kind, mode: mode.map(|mode| mode & 0o777), len, at, mtime }
    }
}

/// Where the headers of a sparse file are, at the start of a block, and which part of its `len` bytes is in the archive.
pub(super) fn sparse_at(headers: FileOffset, stored: u64, len: u64) -> u64 {
    let part = (u128::from(stored) << PART).checked_div(len.into()).unwrap_or(0).min((1 << PART) - 1);
    (headers.0 / BLOCK) << PART | u64::try_from(part).unwrap_or(0)
}

/// Half the seconds that a node can hold.
const MOST: i64 = 1 << 33;
/// No time.
const UNKNOWN: u64 = u64::MAX;

/// Two numbers in one.
pub(super) fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The two numbers of a pair.
pub(super) fn halves(both: u64) -> (u32, u32) {
    let half = |n: u64| u32::try_from(n & u64::from(u32::MAX)).unwrap_or(NONE);
    (half(both >> 32), half(both))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_file_has_its_headers_and_about_the_size_of_its_content() {
        let most = (1 << SIZE) - BLOCK;
        for (at, stored, len) in [(0, 0, 0), (512, 0, 7), (most, 7, 7), (1024, 4096, 5 << 20), (512, 1 << 40, most)] {
            let mut node = TarNode::new(0, NodeKind::Sparse);
            (node.at, node.len) = (sparse_at(FileOffset(at), stored, len), len);
            let node = TarNode::decode(node.encode());
            assert_eq!(node.at(), FileOffset(at));
            assert!(node.stored() <= stored && stored - node.stored() <= (len >> PART) + 1, "{stored}");
        }
    }

    #[test]
    fn a_node_is_encoded_without_loss() {
        for kind in [NodeKind::Dir, NodeKind::File, NodeKind::Sparse, NodeKind::Symlink, NodeKind::Dangling] {
            for (mode, mtime) in
                [(None, None), (Some(0o777), Some((-MOST, 999_999_999))), (Some(0), Some((MOST - 1, 0)))]
            {
                let len = (1 << SIZE) - 1;
                let node = TarNode { parent: 7, next: NONE, kind, mode, len, at: u64::MAX, mtime };
                assert_eq!(TarNode::decode(node.encode()), node);
            }
        }
    }
}
