//! Maps tree attributes to FUSE attributes: modes, owner, times.
#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use super::options::Owner;
use super::sys;
use crate::paging::page_size;
use crate::tree::{Attr, Ino, Kind, ROOT};

/// `st_blksize`: the buffer size that programs use.
const BLOCK: u32 = 128 << 10;

/// The inode numbers of a tree, as the kernel sees them; the trees of a mount must not share any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbering {
    /// The number of the root.
    pub(super) root: u64,
    /// Added to all others.
    pub(super) base: u64,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { root: ROOT.0, base: 0 }
    }
}

impl Numbering {
    /// The number of `ino`; 0, which stands for no inode, stays 0.
    pub(super) fn number(self, ino: Ino) -> u64 {
        match ino {
            ROOT => self.root,
            Ino(0) => 0,
            Ino(ino) => self.base.saturating_add(ino),
        }
    }
}

/// Owner, modes and inode numbers of every file of a tree.
#[derive(Debug)]
pub(super) struct AttrBuilder {
    uid: u32,
    gid: u32,
    umask: u16,
    /// With which mode files are shown.
    mode: u16,
    numbers: Numbering,
    block: u32,
}

impl AttrBuilder {
    /// As requested; the default is the owner of this process.
    pub(super) fn new(owner: Owner, numbers: Numbering) -> Self {
        let (uid, gid) = sys::effective_ids();
        let (uid, gid) = (owner.uid.unwrap_or(uid), owner.gid.unwrap_or(gid));
        Self { uid, gid, umask: owner.umask, mode: 0o444, numbers, block: BLOCK }
    }

    /// The same for a container that is read by the classes of users whom `mode` lets read it.
    pub(super) fn readable(self, mode: u32) -> Self {
        Self { mode: u16::try_from(mode & 0o444).unwrap_or(0), ..self }
    }

    /// The number of `ino` as the kernel sees it.
    pub(super) fn number(&self, ino: Ino) -> INodeNo {
        INodeNo(self.numbers.number(ino))
    }

    /// The same for files on a server: a program that reads a header and then jumps fetches little more than a page.
    pub(super) fn far(self) -> Self {
        Self { block: u32::try_from(page_size()).unwrap_or(BLOCK), ..self }
    }

    pub(super) fn kind(kind: Kind) -> FileType {
        match kind {
            Kind::File => FileType::RegularFile,
            Kind::Dir => FileType::Directory,
            Kind::Link => FileType::Symlink,
        }
    }

    pub(super) fn attr(&self, attr: &Attr) -> FileAttr {
        let time = time(attr.mtime);
        // Readers of the container may enter its directories, and run what it records as a program.
        let most = self.mode | self.mode >> 2;
        let perm = match (attr.kind, attr.mode) {
            // The mode of a symbolic link is not used; 0777 is the convention.
            (Kind::Link, _) => 0o777,
            (_, Some(mode)) => mode & most & !self.umask,
            (Kind::File, None) => self.mode & !self.umask,
            (Kind::Dir, None) => most & !self.umask,
        };
        FileAttr {
            ino: self.number(attr.ino),
            size: attr.size,
            blocks: attr.blocks,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: Self::kind(attr.kind),
            perm,
            nlink: attr.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: self.block,
            flags: 0,
        }
    }

    /// The attributes of a file whose size is not known yet.
    pub(super) fn unknown(&self, ino: Ino, kind: Kind) -> FileAttr {
        self.attr(&Attr { ino, kind, size: 0, blocks: 0, nlink: 1, mtime: (0, 0), mode: None })
    }

    /// The attributes of a negative entry.
    pub(super) fn nothing(&self) -> FileAttr {
        self.unknown(Ino(0), Kind::File)
    }
}

impl From<INodeNo> for Ino {
    fn from(ino: INodeNo) -> Self {
        Self(ino.0)
    }
}

/// Converts seconds and nanoseconds since 1970; seconds may be negative.
pub(super) fn time((seconds, nanos): (i64, i64)) -> SystemTime {
    let nanos = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|t| t.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_out_of_range_are_accepted() {
        assert_eq!(time((5, 7)), UNIX_EPOCH + Duration::new(5, 7));
        assert_eq!(time((-5, 7)), UNIX_EPOCH - Duration::from_secs(5) + Duration::from_nanos(7));
        assert_eq!(time((i64::MIN, 0)), UNIX_EPOCH - Duration::from_secs(1 << 63));
        assert_eq!(time((3, -1)), UNIX_EPOCH + Duration::from_secs(3));
    }

    #[test]
    fn umask_takes_bits_from_files_and_directories() {
        let numbers = Numbering { root: 50, base: 100 };
        let attributes = AttrBuilder { uid: 1, gid: 2, umask: 0o027, mode: 0o444, numbers, block: BLOCK };
        let of = |kind| Attr { ino: Ino(3), kind, size: 4, blocks: 5, nlink: 6, mtime: (0, 0), mode: None };
        let attr = |kind| attributes.attr(&of(kind));
        assert_eq!((attr(Kind::File).perm, attr(Kind::Dir).perm), (0o440, 0o550));
        assert_eq!((attr(Kind::File).uid, attr(Kind::File).gid), (1, 2));
        let private = AttrBuilder { umask: 0, ..attributes }.readable(0o640);
        let attr = |kind| private.attr(&of(kind));
        assert_eq!((attr(Kind::File).perm, attr(Kind::Dir).perm), (0o440, 0o550));
        // A recorded mode gives no rights that the file does not give.
        for (mode, perm) in [(0o755, 0o550), (0o004, 0), (0o600, 0o400), (0o111, 0o110)] {
            assert_eq!(private.attr(&Attr { mode: Some(mode), ..of(Kind::File) }).perm, perm, "{mode:o}");
        }
        let numbers = [Ino(0), ROOT, Ino(3)].map(|ino| private.number(ino).0);
        assert_eq!((numbers, attr(Kind::File).ino.0), ([0, 50, 103], 103));
    }
}
