//! Makes the tree of the members from the headers of an archive.
//!
//! Limits: besides the tree, 12 to 24 bytes of a hash table for a node, charged to the account. Members too deep in it, or
//! with too long names, are left out.
//!
//! Of members with the same name the last one counts, as when they are extracted in order: but none removes a directory
//! that is not empty, or is put below a file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::account::{Account, HashIndex};
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::source::Source;

use super::index::{DEPTH, Index, IsDir, NAME, ROOT, WHAT};
use super::members::{Member, Members, What};
use super::node::{NONE, NodeKind, TarNode, halves, pair, sparse_at};

/// A walk over the headers of an archive, which may be given up and go on later.
pub(super) struct TarWalk {
    source: Arc<Source>,
    members: Members,
    building: Building,
}

impl TarWalk {
    /// At the beginning of the archive `source`.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn new(source: &Arc<Source>, account: &Account) -> Result<Self> {
        let (source, members) = (Arc::clone(source), Members::from(source, FileOffset(0)));
        Ok(Self { source, members, building: Building::new(account)? })
    }

    /// Reads all further headers. Ends at a broken one. `is_dir` tells whether a node of this name is shown as a
    /// directory.
    ///
    /// # Errors
    /// Fails if a header cannot be read now: the walk can go on from there. Fails if the account is exhausted.
    pub(super) fn run(&mut self, is_dir: IsDir<'_>) -> Result<()> {
        loop {
            match self.members.next() {
                Ok(Some(member)) => self.building.add(&member, is_dir)?,
                Ok(None) => break,
                Err(e) if e.is_lasting() => {
                    self.building.index.damage = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        let damage = match self.source.size() {
            Ok(have) if have >= self.members.end() => None,
            Ok(have) => Some(Error::new(Kind::Truncated { need: self.members.end(), have }, "archive")),
            Err(e) if e.is_lasting() => Some(e),
            Err(e) => return Err(e),
        };
        self.building.index.damage = self.building.index.damage.take().or(damage);
        Ok(())
    }

    /// The tree of the members that it has found.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn finish(self) -> Result<Index> {
        let mut index = self.building.index;
        index.finish()?;
        Ok(index)
    }
}

/// An index that is being made.
struct Building {
    index: Index,
    by_name: HashIndex,
    /// The directory of the last member, and its path.
    last: (Vec<u8>, u32),
}

impl Building {
    fn new(account: &Account) -> Result<Self> {
        let mut index = Index::new(account);
        index.push(&TarNode::new(ROOT, NodeKind::Dir), b"")?;
        Ok(Self { index, by_name: HashIndex::new(account), last: (Vec::new(), ROOT) })
    }

    /// Adds a member.
    fn add(&mut self, member: &Member, is_dir: IsDir<'_>) -> Result<()> {
        self.index.members = self.index.members.saturating_add(1);
        if !self.place(member, is_dir)? {
            self.index.left_out = self.index.left_out.saturating_add(1);
        }
        Ok(())
    }

    /// Puts a member into the tree; returns whether it is shown there.
    fn place(&mut self, member: &Member, is_dir: IsDir<'_>) -> Result<bool> {
        let Member { name, link, what, .. } = member;
        let kind = match what {
            What::Other => return Ok(false),
            What::Dir => NodeKind::Dir,
            What::Symlink => NodeKind::Symlink,
            What::File if member.map.is_some() => NodeKind::Sparse,
            What::File => NodeKind::File,
            What::HardLink => NodeKind::Dangling,
        };
        let Some((above, own)) = path(name) else {
            // The directory itself: `./`.
            return if kind == NodeKind::Dir { self.describe(ROOT, member).map(|()| true) } else { Ok(false) };
        };
        let Some(parent) = self.directory(above, is_dir)? else { return Ok(false) };
        let mut node =
            TarNode { mode: member.mode, mtime: member.mtime, len: member.len, ..TarNode::new(parent, kind) };
        match kind {
            NodeKind::Dir => node.len = 0,
            NodeKind::File => node.at = member.data.0,
            NodeKind::Sparse => node.at = sparse_at(member.at, member.stored, member.len),
            NodeKind::Symlink if link.len() > NAME => return Ok(false),
            NodeKind::Symlink => node.at = self.index.push_target(link)?,
            NodeKind::Dangling => {
                // The member of that name now: a later one may replace it there, but not here.
                let found = self.find_path(link).and_then(|number| self.index.node(number));
                match found.filter(|found| found.kind != NodeKind::Dir) {
                    Some(found) => node = TarNode { parent, next: NONE, ..found },
                    None => node.at = member.at.0,
                }
            }
        }
        self.put(node, own, is_dir)
    }

    /// Puts `node` into its directory, under `name`; returns whether it is shown there.
    fn put(&mut self, node: TarNode, name: &[u8], is_dir: IsDir<'_>) -> Result<bool> {
        let Some(number) = self.find(node.parent, name) else { return self.append(node, name, is_dir).map(|_| true) };
        let Some(there) = self.index.node(number) else { return Ok(false) };
        let is_member_dir = |node: &TarNode| node.kind == NodeKind::Dir;
        let is_shown_as_dir = |node: &TarNode| u64::from(is_dir(node, name));
        let is_empty = halves(there.at).0 == NONE;
        if is_member_dir(&there) && is_member_dir(&node) {
            return self.index.set(number, &TarNode { mode: node.mode, mtime: node.mtime, ..there }).map(|()| true);
        }
        if is_member_dir(&there) && !is_empty {
            return Ok(false);
        }
        self.last = (Vec::new(), ROOT);
        let (before, after) = (is_shown_as_dir(&there), is_shown_as_dir(&node));
        self.index.bytes = self.index.bytes.saturating_sub(there.len).saturating_add(node.len);
        if let Some(dir) = self.index.node(node.parent) {
            let len = dir.len.saturating_add(after).saturating_sub(before);
            self.index.set(node.parent, &TarNode { len, ..dir })?;
        }
        self.index.set(number, &TarNode { next: there.next, ..node }).map(|()| true)
    }

    /// Adds `node` as the last child of its directory; returns its number.
    fn append(&mut self, node: TarNode, name: &[u8], is_dir: IsDir<'_>) -> Result<u32> {
        let (value, limit) = (to_u64(self.index.nodes()), u64::from(NONE).saturating_sub(1));
        let number = u32::try_from(value).ok().filter(|&number| number < NONE);
        let number = number.ok_or_else(|| Error::new(Kind::TooLarge { value, limit }, WHAT))?;
        self.index.push(&node, name)?;
        self.index.bytes = self.index.bytes.saturating_add(node.len);
        self.by_name.insert(self.hash(node.parent, name), number)?;
        let Some(mut dir) = self.index.node(node.parent) else { return Ok(number) };
        let (first, last) = halves(dir.at);
        if let Some(before) = self.index.node(last) {
            self.index.set(last, &TarNode { next: number, ..before })?;
        }
        dir.len = dir.len.saturating_add(u64::from(is_dir(&node, name)));
        dir.at = pair(if first == NONE { number } else { first }, number);
        self.index.set(node.parent, &dir)?;
        Ok(number)
    }

    /// Records mode and time of the directory `number`.
    fn describe(&mut self, number: u32, member: &Member) -> Result<()> {
        let Some(node) = self.index.node(number) else { return Ok(()) };
        self.index.set(number, &TarNode { mode: member.mode, mtime: member.mtime, ..node })
    }

    /// The directory at `path`, made if it is missing; `None` if there is something else, or it would be too deep.
    fn directory(&mut self, path: &[u8], is_dir: IsDir<'_>) -> Result<Option<u32>> {
        if self.last.0 == path {
            return Ok(Some(self.last.1));
        }
        if components(path).nth(DEPTH).is_some() {
            return Ok(None);
        }
        let mut at = ROOT;
        for name in components(path) {
            if name.len() > NAME {
                return Ok(None);
            }
            at = match self.find(at, name) {
                Some(number) if self.index.node(number).is_some_and(|node| node.kind == NodeKind::Dir) => number,
                Some(_) => return Ok(None),
                None => self.append(TarNode::new(at, NodeKind::Dir), name, is_dir)?,
            };
        }
        self.last = (path.to_vec(), at);
        Ok(Some(at))
    }

    /// The node at `path`.
    fn find_path(&self, path: &[u8]) -> Option<u32> {
        components(path).take(DEPTH.saturating_add(1)).try_fold(ROOT, |at, name| self.find(at, name))
    }

    fn find(&self, dir: u32, name: &[u8]) -> Option<u32> {
        let is =
            |number| self.index.node(number).is_some_and(|node| node.parent == dir) && self.index.name(number) == name;
        self.by_name.find(self.hash(dir, name), is)
    }

    fn hash(&self, dir: u32, name: &[u8]) -> u32 {
        self.by_name.hash(&[&dir.to_le_bytes(), name].concat())
    }
}

/// The components of a path: those that are empty or `.` say nothing. `..` is a name like any other, which the tree
/// makes safe.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// The path of the directory of `path`, and the name in it; `None` if there is no name.
fn path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = components(path).last().filter(|name| name.len() <= NAME)?;
    // It ends where only separators and dots follow.
    let end = path.len().checked_sub(tail(path))?;
    Some((path.get(..end.checked_sub(name.len())?)?, name))
}

/// How many bytes of empty components and `.` end `path`.
fn tail(path: &[u8]) -> usize {
    let parts = path.rsplit(|&byte| byte == b'/').take_while(|part| matches!(*part, b"" | b"."));
    parts.fold(0, |sum: usize, part| sum.saturating_add(part.len()).saturating_add(1))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, reason = "a test fails by panicking")]
mod tests {
    use super::super::tar_blocks::{entry, header, member, pax};
    use super::*;
    use crate::wanted::{Wanted, is_given_up};

    fn read(source: &Arc<Source>, account: &Account, is_dir: IsDir<'_>) -> Result<Index> {
        let mut walk = TarWalk::new(source, account)?;
        walk.run(is_dir)?;
        walk.finish()
    }

    #[test]
    fn a_walk_that_was_given_up_goes_on_where_it_was() {
        let (long, content) = ("n".repeat(200), vec![7; 64 << 10]);
        let bytes = [
            member("a", b'0', &content),
            pax(b'x', &[("path", &long)]),
            member("b", b'0', &content),
            member("c", b'0', &content),
        ];
        let (source, account) = (Source::from_bytes(bytes.concat()), Account::new(1 << 20, 0));
        let mut walk = TarWalk::new(&source, &account).unwrap();
        let wanted = Wanted::default();
        let none: IsDir<'_> = &|_, _| false;
        // Given up while the second member is read.
        let first = walk.members.next().unwrap().unwrap();
        walk.building.add(&first, none).unwrap();
        wanted.give_up();
        assert!(is_given_up(&wanted.within(|| walk.run(none)).unwrap_err()));
        walk.run(none).unwrap();
        let index = walk.finish().unwrap();
        let found: Vec<_> = index.children(ROOT).map(|(number, _)| index.name(number).to_vec()).collect();
        assert_eq!(found, ["a", &long, "c"].map(|name| name.as_bytes().to_vec()));
        assert_eq!(index.members, 3);
    }

    #[test]
    fn many_members_stay_within_the_account() {
        const COUNT: usize = 40_000;
        let bytes: Vec<u8> = (0..COUNT).flat_map(|i| entry(&format!("dir/{i:07}.txt"), b'0', "")).collect();
        let source = Source::from_bytes(bytes);
        let read = |account: &Account| read(&source, account, &|_, _| false);
        for (memory, disk) in [(64 << 20, 0), (0, 64 << 20)] {
            let account = Account::new(memory, disk);
            let index = read(&account).unwrap();
            let dir = index.children(ROOT).next().unwrap().0;
            assert_eq!((index.members, index.children(dir).count()), (COUNT as u64, COUNT));
            let peaks = account.peaks();
            assert!(peaks.memory + peaks.disk < 100 * COUNT as u64, "{peaks:?}");
        }
        let account = Account::new(0, 0);
        let most = |n: u64| account.charge_list(n, "rest").is_ok();
        let rest = (0..40).rev().fold(0, |sum, bit| if most(sum + (1 << bit)) { sum + (1 << bit) } else { sum });
        let taken = account.charge_list(rest, "others").unwrap();
        assert!(matches!(read(&account).unwrap_err().kind(), Kind::NoRoom { .. }));
        drop(taken);
    }

    #[test]
    fn subdirectories_are_counted_as_members_come_and_go() {
        let is_dir = |node: &TarNode, _: &[u8]| node.kind == NodeKind::Dir;
        let dir = |name: &str| entry(name, b'5', "");
        let file = |name: &str| header(name, b'0', 0, "");
        for (members, count) in [
            (vec![dir("a"), dir("a/b"), dir("c/d")], 2),
            (vec![dir("a"), dir("a"), file("b")], 1),
            (vec![dir("a"), file("a")], 0),
            (vec![file("a"), dir("a")], 1),
            (vec![dir("a"), file("a"), dir("a/"), file("a/b")], 1),
        ] {
            let source = Source::from_bytes(members.concat());
            let index = read(&source, &Account::new(1 << 20, 0), &is_dir).unwrap();
            assert_eq!(index.node(ROOT).unwrap().len, count);
        }
    }
}
