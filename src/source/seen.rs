//! State of an entry of a directory, local or below a prefix of a server.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::dir::{Dir, refused};
use super::identity::Identity;
use super::{Rights, Source};
use crate::error::Result;
use crate::platform::{AsFd, FileType, OsStrExt, Stat, fstat};

/// Distinguishes the states of a file: place, size and times; for an object, tag, size and time.
pub type Version = [u64; 4];

/// How many files of a directory that is a container its version is made of.
const LOOKED_AT: u32 = 4096;
/// The last word of the version of an object.
const FAR: u64 = u64::MAX;

/// An entry of a directory below a [`super::Top`].
#[derive(Debug, Clone)]
pub struct Seen {
    /// The type.
    pub kind: FileType,
    /// The rights to read it; of a directory, to list and search it.
    pub rights: Rights,
    /// The size in bytes.
    pub size: u64,
    /// The blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// The number of links.
    pub links: u32,
    /// The modification time: seconds and nanoseconds since 1970.
    pub mtime: (i64, i64),
    version: Version,
}

impl Seen {
    /// From the result of stat(2).
    pub(super) fn new(stat: &Stat, rights: Rights) -> Self {
        let identity = Identity::of(stat);
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            rights,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            links: u32::try_from(stat.st_nlink).unwrap_or(1),
            mtime: identity.mtime,
            version: identity.pin().words(),
        }
    }

    /// Looks at an open file or directory.
    ///
    /// # Errors
    /// From stat(2).
    pub fn of(file: impl AsFd) -> Result<Self> {
        let stat = fstat(file.as_fd()).map_err(refused)?;
        Ok(Self::new(&stat, Rights::of(&stat, file.as_fd(), None)))
    }

    /// A file of a container that is the directory `dir` and stands for all of it: readable by those who may read the
    /// file and search the directory.
    #[must_use]
    pub fn within(self, dir: &Self) -> Self {
        let [place, size, mtime, ctime] = self.version;
        let rights = dir.rights.searching();
        let mut hash = Xxh3::new();
        (dir.version[0], rights).hash(&mut hash);
        Self { rights: self.rights.and(rights), version: [place ^ hash.finish(), size, mtime, ctime], ..self }
    }

    /// A file of a container that is all files below a directory, which have the versions `all` as well.
    #[must_use]
    pub(super) fn with_all(self, all: Versions) -> Self {
        let [place, size, mtime, ctime] = self.version;
        Self { version: [place ^ all.sum, size, mtime, ctime], ..self }
    }

    /// An object of `size` bytes that was changed at `modified`.
    pub(super) fn far(size: u64, modified: i64, etag: Option<&str>) -> Self {
        // The quotes differ between lists and replies of some servers.
        let tag = etag.map_or(0, |etag| xxh3_64(etag.trim_matches('"').as_bytes()).max(1));
        Self {
            kind: FileType::RegularFile,
            rights: Rights::far(0o444),
            size,
            blocks: size.div_ceil(512),
            links: 1,
            mtime: (modified, 0),
            version: [tag, size, modified.cast_unsigned(), FAR],
        }
    }

    /// An object that is open.
    pub fn of_far(source: &Source) -> Self {
        Self::far(source.len(), source.mtime().0, source.etag())
    }

    /// A directory on a server.
    pub(super) fn far_dir() -> Self {
        Self { kind: FileType::Directory, rights: Rights::far(0o555), ..Self::far(0, 0, None) }
    }

    /// Whether it is the version of an object that `other` is: a server that gives tags in its replies may leave them
    /// out of its lists.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_same_version(other.version)
    }

    /// As [`Seen::is_same`], of the object with the version `other`.
    pub(super) fn is_same_version(&self, other: Version) -> bool {
        let ([tag, size, time, _], [other_tag, other_size, other_time, _]) = (self.version, other);
        let is_tagged = tag != 0 && other_tag != 0;
        size == other_size && if is_tagged { tag == other_tag } else { time == other_time }
    }

    /// As a list without tags describes it.
    #[must_use]
    pub fn untagged(self) -> Self {
        let [_, size, time, far] = self.version;
        Self { version: [0, size, time, far], ..self }
    }

    /// The version of the file.
    pub fn version(&self) -> Version {
        self.version
    }

    /// An identity that writes do not change: the place of a file, the version of an object.
    pub fn identity(&self) -> Version {
        match self.version {
            far @ [.., FAR] => far,
            [place, ..] => [place, 0, 0, 0],
        }
    }
}

/// The versions of the first [`LOOKED_AT`] files of a directory, in any order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Versions {
    sum: u64,
    count: u32,
}

impl Versions {
    /// Of the files below `dir`.
    ///
    /// # Errors
    /// From getdents(2) and stat(2).
    pub(super) fn below(dir: &Dir) -> Result<Self> {
        let mut all = Self::default();
        dir.names_below(&mut |name| {
            all.add(name, || Ok(dir.identity_below(OsStr::from_bytes(name))?.pin().words())).map(drop)
        })?;
        Ok(all)
    }

    /// Adds the `version` of the file `name`, unless there are enough; returns whether there is room for more.
    ///
    /// # Errors
    /// Errors of `version`.
    pub(super) fn add(&mut self, name: &[u8], version: impl FnOnce() -> Result<Version>) -> Result<bool> {
        if self.count < LOOKED_AT {
            self.count = self.count.saturating_add(1);
            let mut hash = Xxh3::new();
            (name, version()?).hash(&mut hash);
            // The order of names in a directory may change.
            self.sum = self.sum.wrapping_add(hash.finish());
        }
        Ok(self.count < LOOKED_AT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_listed_object_is_the_one_that_is_read_if_tag_and_size_are_equal_or_else_time_and_size() {
        let seen = |tag: Option<&str>, size, time| Seen::far(size, time, tag);
        let listed = seen(Some("\"a\""), 5, 7);
        assert!(listed.is_same(&seen(Some("a"), 5, 8)) && listed.is_same(&seen(None, 5, 7)));
        for other in [seen(Some("b"), 5, 7), seen(Some("a"), 6, 7), seen(None, 5, 8)] {
            assert!(!listed.is_same(&other), "{other:?}");
        }
        assert_ne!(listed.version(), seen(Some("a"), 6, 7).version());
        assert_eq!(listed.untagged().version(), seen(None, 5, 7).version());
    }

    #[test]
    fn the_versions_of_a_number_of_files_are_those_of_a_directory_in_any_order() {
        let (mut forth, mut back) = (Versions::default(), Versions::default());
        let add = |all: &mut Versions, number: u32| all.add(&number.to_le_bytes(), || Ok([number.into(); 4])).unwrap();
        for number in 0..LOOKED_AT {
            assert_eq!(add(&mut forth, number), number + 1 < LOOKED_AT, "{number}");
            add(&mut back, LOOKED_AT - 1 - number);
        }
        assert_eq!(forth.sum, back.sum);
        assert!(!forth.add(b"one more", || Err(Error::corrupt("it is not looked at", "file"))).unwrap());
        assert_eq!(forth.sum, back.sum);
        let (mut one, mut other) = (Versions::default(), Versions::default());
        assert!(one.add(b"a", || Ok([1; 4])).unwrap() && other.add(b"a", || Ok([2; 4])).unwrap());
        assert_ne!(one.sum, other.sum);
    }

    #[test]
    fn a_directory_on_a_server_is_searched_by_all_and_has_no_version() {
        let dir = Seen::far_dir();
        assert_eq!((dir.kind, dir.rights, dir.blocks), (FileType::Directory, Rights::far(0o555), 0));
        assert_eq!(dir.version(), [0, 0, 0, FAR]);
    }

    #[test]
    fn a_file_that_stands_for_a_directory_is_read_by_who_may_search_that_and_changes_with_it() {
        let owned = |mode| Rights { uid: Some(1), gid: Some(2), mode };
        let seen = |mode, place| Seen { rights: owned(mode), version: [place, 5, 6, 7], ..Seen::far(5, 6, None) };
        let file = seen(0o644, 10).within(&seen(0o710, 20));
        assert_eq!(file.rights, owned(0o440));
        let [place, rest @ ..] = file.version();
        assert_eq!(rest, [5, 6, 7]);
        for other in [seen(0o644, 11).within(&seen(0o710, 20)), seen(0o644, 10).within(&seen(0o710, 21))] {
            assert_ne!(other.version()[0], place);
        }
        assert_ne!(seen(0o644, 10).within(&seen(0o700, 20)).version()[0], place);
    }
}
