//! The tree of the members in the index of the user: a later mount need not read the headers.
//!
//! Records: [`NODES`] with a number, in parts; and [`HEAD`], which is written last and read first. Fields, little-endian: of the head, how many members there are, how many of them are not shown,
//! how many nodes, and how many parts (8 bytes each); of a part, for each node its four words, then its name and the
//! target of a symbolic link, each a length of 2 bytes and its bytes.
//!
//! Limits: one part at a time in memory; [`LEAST`] bytes of an archive.
//! Invariant: what no walk over headers gives is not taken. A parent is before its children, and these are in order, so
//! that no list of nodes has a cycle.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::codec::zstd::{PARTS, Parts, part};
use crate::error::{Error, Kind, Result};
use crate::index::Records;
use crate::limits::Limits;

use super::index::{Index, IsDir, NAME, ROOT};
use super::node::{NONE, NodeKind, TarNode, halves};

/// Names of the records.
const HEAD: &str = "tar-members";
const NODES: &str = "tar-members-";
/// Bytes of the longest node.
const NODE: usize = 32 + 2 * (2 + NAME);
/// Of a smaller archive, the headers are soon read again.
pub(super) const LEAST: u64 = 16 << 20;

/// Keeps `index`, if all headers were read.
pub(super) fn keep(index: &Index, records: &Records) {
    if index.damage.is_none() {
        // Whether it was written does not matter.
        let _ = try_keep(index, records);
    }
}

fn try_keep(index: &Index, records: &Records) -> Option<()> {
    let mut parts = Parts::new(records, NODES);
    let count = index.nodes();
    for number in 0..count {
        let at = u32::try_from(number).ok()?;
        let node = index.node(at)?;
        let target = if node.kind == NodeKind::Symlink { index.target(&node) } else { b"" };
        let texts = [index.name(at), target];
        let lens = [u16::try_from(texts[0].len()).ok()?, u16::try_from(texts[1].len()).ok()?];
        parts.add(|bytes| {
            node.encode().iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            for (text, len) in texts.iter().zip(lens) {
                bytes.extend(len.to_le_bytes());
                bytes.extend_from_slice(text);
            }
        })?;
    }
    let head = [index.members, index.left_out, to_u64(count), parts.end()?];
    records.put(HEAD, head.map(u64::to_le_bytes).as_flattened()).then_some(())
}

/// The tree that was kept, if it is there. `is_dir`: as for a walk.
///
/// # Errors
/// Fails if the account is exhausted.
pub(super) fn find(records: &Records, account: &Account, is_dir: IsDir<'_>) -> Result<Option<Index>> {
    match load(records, account, is_dir) {
        Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) => Err(e),
        found => Ok(found.ok()),
    }
}

/// As [`find`]; fails too if the tree is not there, or none of a walk.
fn load(records: &Records, account: &Account, is_dir: IsDir<'_>) -> Result<Index> {
    let missing = || Error::new(Kind::NotFound, "record");
    let head = records.get(HEAD, 32).ok_or_else(missing)?;
    let mut head = Cursor::new(&head, FileOffset(0));
    let mut index = Index::new(account);
    (index.members, index.left_out) = (head.u64_le("members")?, head.u64_le("members")?);
    let (count, parts) = (head.u64_le("nodes")?, head.u64_le("parts")?);
    for number in 0..Limits::check(parts, PARTS, "parts")? {
        let bytes = part(records, NODES, number, NODE).ok_or_else(missing)?;
        let mut nodes = Cursor::new(&bytes, FileOffset(0));
        while !nodes.is_empty() {
            add(&mut index, &mut nodes)?;
        }
    }
    if to_u64(index.nodes()) != count || count == 0 {
        return Err(wrong());
    }
    for number in 0..u32::try_from(count).map_err(|_| wrong())? {
        let node = index.node(number).filter(|node| is_linked(&index, number, node)).ok_or_else(wrong)?;
        if number != ROOT && is_dir(&node, index.name(number)) {
            let parent = index.node(node.parent).ok_or_else(wrong)?;
            index.set(node.parent, &TarNode { len: parent.len.saturating_add(1), ..parent })?;
        }
    }
    index.finish()?;
    Ok(index)
}

fn wrong() -> Error {
    Error::corrupt("no tree of members", "record")
}

/// Adds the next node.
fn add(index: &mut Index, from: &mut Cursor<'_>) -> Result<()> {
    let mut words = [0; 4];
    for word in &mut words {
        *word = from.u64_le("node")?;
    }
    let mut text = || {
        let len = usize::from(from.u16_le("name")?);
        if len > NAME { Err(wrong()) } else { from.take(len, "name") }
    };
    let (name, target) = (text()?, text()?);
    let mut node = TarNode::decode(words);
    let is_known = node.encode() == words && node.mtime.is_none_or(|(_, nanos)| nanos < 1_000_000_000);
    let is_root = index.nodes() == 0;
    let parent = index.node(node.parent).filter(|parent| parent.kind == NodeKind::Dir);
    if !is_known || is_root != name.is_empty() || is_root && node.kind != NodeKind::Dir || !is_root && parent.is_none()
    {
        return Err(wrong());
    }
    match node.kind {
        // Counted again.
        NodeKind::Dir => node.len = 0,
        NodeKind::Symlink => node.at = index.push_target(target)?,
        _ => index.bytes = index.bytes.saturating_add(node.len),
    }
    index.push(&node, name)
}

/// Whether the lists that node `number` is in, and has, only go on to later nodes of the same directory.
fn is_linked(index: &Index, number: u32, node: &TarNode) -> bool {
    let is_child = |of: u32, child: u32| {
        child == NONE || child > number && index.node(child).is_some_and(|child| child.parent == of)
    };
    let (first, last) = if node.kind == NodeKind::Dir { halves(node.at) } else { (NONE, NONE) };
    let is_next = number == ROOT || is_child(node.parent, node.next);
    is_next && is_child(number, first) && is_child(number, last)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::tar_blocks::{entry, member, pax};
    use super::super::walk::TarWalk;
    use super::*;
    use crate::codec::zstd::{packed, part_name, unpacked};
    use crate::index::{Index as Kept, SIZE};
    use crate::source::Source;

    /// An archive with all kinds of nodes, members that replace others, and `many`.
    fn archive(many: usize) -> Vec<u8> {
        let long = "n".repeat(220);
        let mut bytes = [
            member("a/b/file", b'0', b"content"),
            entry("a/link", b'2', "b/file"),
            entry("a/replaced", b'2', "old"),
            entry("a/hard", b'1', "a/b/file"),
            entry("a/none", b'1', "nothing"),
            entry("gone", b'5', ""),
            member("gone", b'0', b"a file now"),
            member("now", b'0', b"a directory later"),
            entry("now", b'5', ""),
            member("now/inner.b2nd", b'0', b"x"),
            pax(b'x', &[("path", &format!("{long}/{long}")), ("mtime", "-12.5")]),
            member("x", b'0', b"long"),
            member("a/replaced", b'0', b"new"),
        ]
        .concat();
        bytes.extend(member("large", b'0', &vec![7; 64 << 10]));
        for i in 0..many {
            bytes.extend(entry(&format!("many/{i:06}.txt"), b'0', ""));
        }
        bytes
    }

    fn dumped(index: &Index) -> Vec<(TarNode, Vec<u8>, Vec<u8>)> {
        let one = |number: usize| {
            let number = number as u32;
            let node = index.node(number).unwrap();
            let target = if node.kind == NodeKind::Symlink { index.target(&node) } else { b"" };
            // Their numbers differ.
            let at = if node.kind == NodeKind::Symlink { 0 } else { node.at };
            (TarNode { at, ..node }, index.name(number).to_vec(), target.to_vec())
        };
        (0..index.nodes()).map(one).collect()
    }

    fn is_dir(node: &TarNode, name: &[u8]) -> bool {
        node.kind == NodeKind::Dir || name.ends_with(b".b2nd")
    }

    struct Place {
        dir: tempfile::TempDir,
        account: Account,
    }

    impl Place {
        fn new(many: usize) -> Self {
            let place = Self { dir: tempfile::tempdir().unwrap(), account: Account::new(64 << 20, 0) };
            std::fs::write(place.file(), archive(many)).unwrap();
            place
        }

        fn file(&self) -> std::path::PathBuf {
            self.dir.path().join("x.tar")
        }

        fn source(&self) -> Arc<Source> {
            Source::open(&self.file()).unwrap()
        }

        fn records(&self) -> Arc<Records> {
            let at = |name: &str| Path::new(self.dir.path()).join(name);
            Kept::new(at("index"), SIZE, at("state")).of(&self.source()).unwrap()
        }

        fn walked(&self) -> Index {
            let mut walk = TarWalk::new(&self.source(), &self.account).unwrap();
            walk.run(&is_dir).unwrap();
            walk.finish().unwrap()
        }

        fn found(&self) -> Option<Index> {
            find(&self.records(), &self.account, &is_dir).unwrap()
        }
    }

    #[test]
    fn the_tree_of_an_earlier_mount_is_that_of_the_walk() {
        // Of several parts.
        let place = Place::new(30_000);
        assert!(place.found().is_none());
        let walked = place.walked();
        keep(&walked, &place.records());
        assert!(place.records().names(NODES).len() > 1);
        let found = place.found().unwrap();
        assert!(dumped(&found) == dumped(&walked));
        let numbers = |index: &Index| (index.members, index.left_out, index.bytes, index.damage.is_none());
        assert_eq!(numbers(&found), numbers(&walked));
        // The extensions of containers may change.
        let dirs = |is_dir: IsDir<'_>| {
            find(&place.records(), &place.account, is_dir).unwrap().unwrap().node(ROOT).unwrap().len
        };
        assert_eq!((dirs(&is_dir), dirs(&|_, _| false), dirs(&|_, _| true)), (4, 0, 6));
        // The account has no room, and a part is lost.
        let (full, _taken) = Account::exhausted();
        assert!(matches!(find(&place.records(), &full, &is_dir).unwrap_err().kind(), Kind::NoRoom { .. }));
        place.records().remove(&part_name(NODES, 1));
        assert!(place.found().is_none());
        keep(&place.walked(), &place.records());
        assert!(place.found().is_some());
        // Another version of the file has another tree, or none.
        std::fs::write(place.file(), &archive(30_000)[512..]).unwrap();
        assert!(place.found().is_none());
    }

    #[test]
    fn the_tree_of_a_broken_archive_is_not_kept() {
        let place = Place::new(0);
        let mut bytes = archive(1);
        let end = bytes.len();
        bytes[end - 300] ^= 1;
        std::fs::write(place.file(), bytes).unwrap();
        let walked = place.walked();
        assert!(walked.damage.is_some());
        keep(&walked, &place.records());
        assert!(place.found().is_none() && place.records().names(HEAD).is_empty());
    }

    #[test]
    fn a_record_that_the_user_has_changed_is_a_tree_or_none() {
        let place = Place::new(1);
        keep(&place.walked(), &place.records());
        let first_part = part_name(NODES, 0);
        let (head, first) = (place.records().get(HEAD, 32).unwrap(), place.records().get(&first_part, SIZE).unwrap());
        let first = unpacked(&first, 2 << 20).unwrap();
        let records = place.records();
        let put = |name: &str, payload: &[u8]| assert!(records.put(name, payload));
        let check = || {
            let Some(index) = place.found() else { return false };
            let mut seen = 0;
            let mut dirs = vec![ROOT];
            while let Some(dir) = dirs.pop() {
                for (number, node) in index.children(dir) {
                    seen += 1;
                    assert!(index.depth(number) > 0);
                    if node.kind == NodeKind::Dir {
                        dirs.push(number);
                    }
                }
            }
            assert!(seen < index.nodes());
            true
        };
        assert!(check());
        // The nodes of the first directories and links, with every bit that can differ.
        let mut trees = 0;
        for at in 0..600 {
            for bit in [0, 7] {
                let mut bytes = first.clone();
                bytes[at] ^= 1 << bit;
                put(&first_part, &packed(&bytes).unwrap());
                trees += usize::from(check());
            }
        }
        assert!(trees > 0 && trees < 1200);
        for len in [0, 1, 31, 35, 100, first.len() - 1] {
            put(&first_part, &packed(&first[..len]).unwrap());
            assert!(!check());
        }
        put(&first_part, b"no frame");
        assert!(!check());
        put(&first_part, &packed(&first).unwrap());
        for at in 0..32 {
            let mut bytes = head.clone();
            bytes[at] ^= 0x81;
            put(HEAD, &bytes);
            // The numbers of members say nothing about the tree.
            assert_eq!(check(), at < 16);
        }
        put(HEAD, &head[..31]);
        assert!(!check());
    }
}
