//! The inodes of a directory mount that the kernel knows, and how their numbers are made.
//!
//! A number follows from the parent's number and the name, with a random seed: so `readdir` gives the number that
//! `stat` will give, without keeping state. It also depends on the version of a container, since a changed one is
//! another directory, and on the device and inode of a file that is passed through, so that a replacement is another
//! file with pages of its own. A file or directory whose owner or mode has changed gets a new number as long as the
//! kernel knows the old one, for which it may have granted access. Inside a container, numbers are those of its tree,
//! in a separate range. The files that stand for a container in the layout `flat` have the numbers after that of the
//! container itself, which is hidden: so they too are known before it is opened.
//!
//! Limits: [`NODE`] bytes and the name for each inode that the kernel knows, charged to the user who first looked it up
//! and freed when the kernel forgets it (it takes a kilobyte there). Look-ups are never refused; if a user holds too
//! many, the kernel is asked to forget the oldest unused ones ([`Nodes::oldest`]). That drops neither directories,
//! which may be a current directory, nor entries shown under another name than that of their file.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::hash::Hash;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use xxhash_rust::xxh3::Xxh3;

use crate::account::{Holding, Users};
use crate::bytes::to_u64;
use crate::source::{Rights, Seen, Version};
use crate::tree::ROOT;

/// Set in the numbers of inodes below containers.
const BELOW: u64 = 1 << 62;
/// Bits for the numbers of one container.
const BITS: u32 = 40;
/// Numbers from one inode outside of containers to the next: for the files that stand for a container.
const FLAT: u64 = 8;
/// The largest number of an inode in the tree of a container.
pub(super) const LARGEST: u64 = (1 << BITS) - 1;
/// Number of containers whose inodes the kernel can know at a time.
pub(super) const SLOTS: u32 = 1 << (62 - BITS);

/// Forgotten inodes in a queue before it is tidied up.
const SLACK: usize = 1024;
/// About the bytes of an inode in a table that may be half empty, and of the allocation of its name.
const NODE: u64 = 256;

/// Meaning of an inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodePlace {
    /// A directory, file or link of the mirrored directory, or the root of a container.
    Outer(u64),
    /// An inode in the tree of the container in this slot.
    Inner(u32, u64),
    /// A file of the container with this number, and its inode in the tree of that.
    Flat(u64, u64),
}

/// Takes a number apart.
pub(super) fn place(number: u64) -> NodePlace {
    match number.checked_sub(BELOW) {
        None if number.is_multiple_of(FLAT) || number == ROOT.0 => NodePlace::Outer(number),
        None => NodePlace::Flat(number - number % FLAT, number % FLAT),
        Some(rest) => NodePlace::Inner(u32::try_from(rest >> BITS).unwrap_or(u32::MAX), rest & LARGEST),
    }
}

/// `number`, rounded to one that an inode outside of containers can have.
fn outer(number: u64) -> u64 {
    (number - number % FLAT).max(FLAT)
}

/// Offset of the inode numbers of the tree in `slot`.
pub(super) fn base(slot: u32) -> u64 {
    BELOW | u64::from(slot) << BITS
}

/// Stands for a version of a file, in 8 bytes: a hash, with a random seed.
pub(super) type Mark = u64;

/// An inode of the mirrored directory.
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
#[derive(Debug)]
pub(super) struct MirrorNode {
    parent: u64,
    name: Box<[u8]>,
    /// Whether it is the root of a container, and not the file itself.
    pub(super) is_tree: bool,
    /// Stands for the file and its rights.
    pub(super) identity: Mark,
    /// Of a file that is passed through, the version of its pages in the kernel.
    pub(super) pages: Mark,
    /// Of a container, the readers of its files that the kernel knows; 0 if none yet.
    readers: Mark,
    /// Whether it has changed without its version, as when a chunk or shard is written to; the next look-up finds a new
    /// one.
    pub(super) is_gone: bool,
    /// Whether it is a container that is shown as the files of its array.
    pub(super) is_flat: bool,
    /// The container's slot, once it was entered.
    pub(super) slot: Option<u32>,
    lookups: u32,
    /// The user it is charged to.
    uid: u32,
    /// Whether the kernel may be asked to forget it, and it waits for that in the user's queue.
    is_queued: bool,
}

/// The inodes that the kernel knows.
#[derive(Debug)]
pub(super) struct Nodes {
    known: HashMap<u64, MirrorNode>,
    seed: u64,
    users: Users,
    /// For each user, the inodes that the kernel may be asked to forget, and some that it has forgotten; oldest first.
    queues: HashMap<u32, VecDeque<u64>>,
}

/// An entry of a directory: the input of its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryKey<'a> {
    pub(super) parent: u64,
    /// The name of the file, which differs from that of the entry if its tree is shown next to it.
    pub(super) name: &'a [u8],
    /// Whether the entry is the tree of a container.
    pub(super) is_tree: bool,
    /// As [`identity`] gives it.
    pub(super) identity: Version,
    /// Whether it is a container that is shown as the files of its array.
    pub(super) is_flat: bool,
}

/// The version from which the number of a `seen` entry follows.
pub(super) fn identity(seen: &Seen, is_tree: bool) -> Version {
    if is_tree { seen.version() } else { seen.identity() }
}

/// Charge of an inode that the kernel knows, for the user who looked it up.
fn holding(name: &[u8]) -> Holding {
    Holding::memory(NODE + to_u64(name.len()))
}

impl Nodes {
    pub(super) fn new(seed: u64, users: Users) -> Self {
        Self { known: HashMap::new(), seed, users, queues: HashMap::new() }
    }

    /// The number of an entry, unless another one has it already.
    pub(super) fn number(&self, entry: &EntryKey<'_>) -> u64 {
        let mut hash = Xxh3::with_seed(self.seed);
        hash.update(&entry.parent.to_le_bytes());
        entry.identity.iter().for_each(|word| hash.update(&word.to_le_bytes()));
        hash.update(&[u8::from(entry.is_tree)]);
        hash.update(entry.name);
        outer(hash.digest() & (BELOW - 1))
    }

    /// The mark of `version` of a file with these `rights`.
    pub(super) fn mark(&self, version: Version, rights: Rights) -> Mark {
        let mut hash = Xxh3::with_seed(self.seed);
        // Bits for writing make no difference here.
        (version, Rights { mode: rights.mode & 0o555, ..rights }).hash(&mut hash);
        hash.digest()
    }

    /// The number of an entry with `rights`, for a reply to the kernel and user `uid`. `may_go`: the kernel may be
    /// asked to forget it.
    pub(super) fn tell(&mut self, entry: &EntryKey<'_>, rights: Rights, uid: u32, may_go: bool) -> u64 {
        let mut number = self.number(entry);
        let identity = self.mark(entry.identity, rights);
        while let Some(node) = self.known.get_mut(&number) {
            let is_same = node.parent == entry.parent
                && *node.name == *entry.name
                && node.is_tree == entry.is_tree
                && node.identity == identity
                && !node.is_gone;
            if is_same {
                node.lookups = node.lookups.saturating_add(1);
                if may_go && !std::mem::replace(&mut node.is_queued, true) {
                    self.queues.entry(node.uid).or_default().push_back(number);
                }
                return number;
            }
            number = outer((number + FLAT) & (BELOW - 1));
        }
        let EntryKey { parent, name, is_tree, is_flat, .. } = *entry;
        self.users.add(uid, holding(name));
        let (name, pages, readers, is_gone, slot, lookups) = (name.into(), 0, 0, false, None, 1);
        let is_queued = may_go;
        let node = MirrorNode {
            parent,
            name,
            is_tree,
            identity,
            pages,
            readers,
            is_gone,
            is_flat,
            slot,
            lookups,
            uid,
            is_queued,
        };
        self.known.insert(number, node);
        if may_go {
            self.queue(uid, number);
        }
        number
    }

    fn queue(&mut self, uid: u32, number: u64) {
        let queue = self.queues.entry(uid).or_default();
        queue.push_back(number);
        if queue.len() > 2 * self.known.len() + SLACK {
            queue.retain(|number| self.known.contains_key(number));
        }
    }

    /// The parents and names of at most `most` inodes that the kernel should forget; removes them from the queue.
    pub(super) fn oldest(&mut self, most: usize) -> Vec<(u64, Box<[u8]>)> {
        let mut oldest = Vec::new();
        for (&uid, queue) in &mut self.queues {
            while oldest.len() < most && self.users.is_short(uid) {
                let Some(number) = queue.pop_front() else { break };
                let Some(node) = self.known.get_mut(&number).filter(|node| node.uid == uid && node.is_queued) else {
                    continue;
                };
                node.is_queued = false;
                if node.slot.is_none() {
                    oldest.push((node.parent, node.name.clone()));
                }
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        oldest
    }

    /// Records that the kernel learns the readers (`rights`) of the files of the container `number`. Returns `false` if
    /// it knew others: the container becomes a new one.
    pub(super) fn tell_readers(&mut self, number: u64, rights: Rights) -> bool {
        let mark = self.mark([0; 4], rights);
        let Some(node) = self.known.get_mut(&number) else { return false };
        node.is_gone |= ![0, mark].contains(&node.readers);
        node.readers = mark;
        !node.is_gone
    }

    /// Records that the kernel has dropped `count` references to `number`; returns the inode if none are left.
    pub(super) fn forget(&mut self, number: u64, count: u64) -> Option<MirrorNode> {
        let node = self.known.get_mut(&number)?;
        node.lookups = node.lookups.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        if node.lookups > 0 {
            return None;
        }
        let gone = self.known.remove(&number);
        if let Some(node) = &gone {
            self.users.give_back(node.uid, holding(&node.name));
        }
        if self.known.len() < self.known.capacity() / 8 {
            self.known.shrink_to(2 * self.known.len());
        }
        gone
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut MirrorNode> {
        self.known.get_mut(&number)
    }

    /// The path of an inode below the mirrored directory, as far as it is known.
    pub(super) fn path(&self, number: u64) -> Option<PathBuf> {
        self.chain(number).map(|(path, _)| path)
    }

    /// As [`Nodes::path`]; also the identity of each component.
    pub(super) fn chain(&self, number: u64) -> Option<(PathBuf, Vec<Mark>)> {
        let (mut names, mut marks, mut at) = (Vec::new(), Vec::new(), number);
        while at != ROOT.0 {
            let node = self.known.get(&at)?;
            names.push(&*node.name);
            marks.push(node.identity);
            at = node.parent;
        }
        names.reverse();
        marks.reverse();
        Some((OsString::from_vec(names.join(&b'/')).into(), marks))
    }

    /// The number of the directory that contains `number`.
    pub(super) fn parent(&self, number: u64) -> u64 {
        self.known.get(&number).map_or(ROOT.0, |node| node.parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use std::path::Path;

    fn nodes() -> Nodes {
        Nodes::new(7, Users::new(&Account::new(0, 0), 0, true))
    }

    fn entry(parent: u64, name: &str) -> EntryKey<'_> {
        EntryKey { parent, name: name.as_bytes(), is_tree: false, identity: [5, 0, 0, 0], is_flat: false }
    }

    const RIGHTS: Rights = Rights { uid: Some(1), gid: Some(2), mode: 0o644 };

    #[test]
    fn a_number_is_the_same_each_time_and_that_of_a_changed_container_is_another() {
        let mut nodes = nodes();
        let dir = nodes.tell(&entry(ROOT.0, "dir"), RIGHTS, 0, true);
        let tree = |version| EntryKey { is_tree: true, identity: [version; 4], ..entry(dir, "x.fzm") };
        let (old, new) = (nodes.tell(&tree(1), RIGHTS, 0, true), nodes.tell(&tree(2), RIGHTS, 0, true));
        assert_eq!((nodes.tell(&tree(1), RIGHTS, 0, true), nodes.number(&tree(2))), (old, new));
        let file = nodes.tell(&entry(dir, "x.fzm"), RIGHTS, 0, true);
        let kinds = [old, new, file].map(|number| nodes.get(number).unwrap().is_tree);
        assert!(old != new && file != old && file != new);
        assert_eq!(kinds, [true, true, false]);
        assert_eq!(nodes.path(old).unwrap(), Path::new("dir/x.fzm"));
        assert_eq!((nodes.parent(old), nodes.path(ROOT.0).unwrap()), (dir, PathBuf::new()));
        assert!(nodes.forget(old, 1).is_none() && nodes.forget(old, 1).is_some() && nodes.path(old).is_none());
        assert_eq!(nodes.tell(&tree(1), RIGHTS, 0, true), old);
    }

    #[test]
    fn a_file_that_was_replaced_or_whose_rights_were_changed_is_another_one() {
        let mut nodes = nodes();
        let file = |place| EntryKey { identity: [place, 0, 0, 0], ..entry(ROOT.0, "x") };
        let private = Rights { mode: 0o600, ..RIGHTS };
        let numbers = [
            nodes.tell(&file(1), RIGHTS, 0, true),
            nodes.tell(&file(2), RIGHTS, 0, true),
            nodes.tell(&file(1), private, 0, true),
            nodes.tell(&file(1), Rights { uid: Some(3), ..RIGHTS }, 0, true),
        ];
        assert!((1..4).all(|n| !numbers[..n].contains(&numbers[n])), "{numbers:?}");
        // The same, with other rights to write; and as a listing has it, once the others are forgotten.
        assert_eq!(nodes.tell(&file(1), Rights { mode: 0o444, ..RIGHTS }, 0, true), numbers[0]);
        assert_eq!(nodes.tell(&file(1), private, 0, true), numbers[2]);
        assert!(nodes.forget(numbers[0], 2).is_some() && nodes.forget(numbers[2], 2).is_some());
        assert_eq!(nodes.tell(&file(1), private, 0, true), nodes.number(&file(1)));
    }

    #[test]
    fn inodes_are_held_by_who_looked_them_up_first_and_the_oldest_are_to_be_forgotten_if_that_is_much() {
        let users = Users::new(&Account::new(0, 0), 0, true);
        let mut nodes = Nodes::new(7, users.clone());
        let name = |i: usize| format!("{i:07}");
        let mut told = Vec::new();
        while !users.is_short(1000) {
            told.push(nodes.tell(&entry(ROOT.0, &name(told.len())), RIGHTS, 1000, told.len() != 1));
        }
        assert!(told.len() > 10_000 && nodes.tell(&entry(ROOT.0, &name(0)), RIGHTS, 0, true) == told[0]);
        assert!(!users.is_short(0));
        // The second is a directory, and the third one was entered.
        nodes.get(told[2]).unwrap().slot = Some(7);
        let oldest = nodes.oldest(3);
        assert_eq!(oldest, [0, 3, 4].map(|i| (ROOT.0, name(i).into_bytes().into())));
        // It is used again before the kernel has forgotten it.
        nodes.tell(&entry(ROOT.0, &name(3)), RIGHTS, 1000, true);
        for &number in &told[10..] {
            nodes.forget(number, 1);
        }
        assert!(!users.is_short(1000) && nodes.known.len() == 10 && nodes.oldest(3).is_empty());
    }

    #[test]
    fn two_entries_never_share_a_number() {
        let mut nodes = nodes();
        let number = nodes.tell(&entry(ROOT.0, "a"), RIGHTS, 0, true);
        // As if another name had the same hash.
        nodes.known.get_mut(&number).unwrap().name = (*b"b").into();
        assert_eq!(nodes.tell(&entry(ROOT.0, "a"), RIGHTS, 0, true), number + FLAT);
        assert_eq!(nodes.path(number).unwrap(), Path::new("b"));
    }

    #[test]
    fn numbers_of_trees_are_apart() {
        for (slot, inner) in [(0, 2), (SLOTS - 1, LARGEST), (5, 7)] {
            assert_eq!(place(base(slot) + inner), NodePlace::Inner(slot, inner));
        }
        assert_eq!(place(BELOW - 8), NodePlace::Outer(BELOW - 8));
        assert_eq!(place(BELOW - 5), NodePlace::Flat(BELOW - 8, 3));
        assert_eq!(place(ROOT.0), NodePlace::Outer(ROOT.0));
        assert!(base(SLOTS - 1) + LARGEST < 1 << 63);
    }
}
