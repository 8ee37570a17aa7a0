//! Rights to read a file or search a directory, and to read several files that are shown as one.
//!
//! Access control lists are folded into the classes of the mode, so that nobody gets more than the file gives him: with
//! a list, the group bits of a mode hold the mask, and cannot express users to whom the list denies what it grants
//! others. An entry of a list that names a user grants nothing.
//!
//! Limits: lists of `NFSv4` are not read; their servers give equivalent modes.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use crate::platform::{BorrowedFd, Errno, FileType, Stat, access_list, mode_of};

/// The version of its form, which comes first.
const VERSION: [u8; 4] = [2, 0, 0, 0];
/// Size of an entry: tag, rights, id.
const ENTRY: usize = 8;
/// Size of the longest list that is read; longer ones count as granting nothing.
const LONGEST: usize = 4096;

// Tags of entries.
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// All rights of one class.
const ALL: u32 = 7;
/// The bits of a mode that allow reading a file, and searching a directory.
const READ: u32 = 0o444;
const SEARCH: u32 = 0o111;

/// The rights of an owner, a group and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights {
    /// The owner; none of an object on a server.
    pub uid: Option<u32>,
    /// The group; none of an object on a server.
    pub gid: Option<u32>,
    /// As in `st_mode`, without lists.
    pub mode: u32,
}

impl Rights {
    /// The rights of an object on a server, which has no owner.
    pub(super) const fn far(mode: u32) -> Self {
        Self { uid: None, gid: None, mode }
    }

    /// The rights of `name` in `dir`, or of `dir` itself, which `stat` describes.
    pub(super) fn of(stat: &Stat, dir: BorrowedFd<'_>, name: Option<&OsStr>) -> Self {
        let rights = Self { uid: Some(stat.st_uid), gid: Some(stat.st_gid), mode: mode_of(stat) & 0o777 };
        let has_list = matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory);
        if !has_list || rights.mode & 0o700 == rights.mode {
            return rights;
        }
        let mut list = [0; LONGEST];
        match access_list(dir, name, &mut list) {
            Ok(len) => rights.within(list.get(..len).unwrap_or_default()),
            Err(Errno::NODATA | Errno::NOTSUP) => rights,
            Err(_) => rights.within(&[]),
        }
    }

    /// The rights that an access control list leaves; only the owner's if it cannot be read.
    fn within(self, list: &[u8]) -> Self {
        let Some(entries) = list.strip_prefix(&VERSION) else { return Self { mode: self.mode & 0o700, ..self } };
        let entries = || {
            entries.chunks_exact(ENTRY).filter_map(|entry| {
                let ([t0, t1, r0, r1], _) = entry.split_first_chunk()?;
                Some((u16::from_le_bytes([*t0, *t1]), u32::from(u16::from_le_bytes([*r0, *r1]))))
            })
        };
        // The rights common to all entries of a kind; all rights if there are none.
        let given = |tag| entries().filter(|(of, _)| *of == tag).fold(ALL, |all, (_, rights)| all & rights);
        let is_there = |tag| entries().any(|(of, _)| of == tag);
        let mask = given(MASK);
        let named = |tag| if is_there(tag) { given(tag) & mask } else { ALL };
        let group = if is_there(OWNING_GROUP) { given(OWNING_GROUP) & mask & named(USER) } else { 0 };
        let others = if is_there(OTHERS) { given(OTHERS) & named(USER) & named(GROUP) } else { 0 };
        Self { mode: self.mode & (0o700 | group << 3 | others), ..self }
    }

    /// Of a directory: the right to search it, as the right to read its content.
    #[must_use]
    pub fn searching(self) -> Self {
        Self { mode: (self.mode & SEARCH) << 2, ..self }
    }

    /// The rights to read both files. A class of this file whose users may be in several classes of the other one has
    /// the rights common to those classes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let [owner, group, others] = [6, 3, 0].map(|shift| other.mode >> shift & ALL);
        let (is_owner, is_group) = (self.uid == other.uid, self.gid == other.gid);
        // For users who are not the owner of the other file, or may be.
        let unless_owner = if is_owner { ALL } else { owner };
        let to_owner = if is_owner { owner } else { owner & group & others };
        let to_group = unless_owner & if is_group { group } else { group & others };
        let to_others = unless_owner & if is_group { others } else { group & others };
        Self { mode: self.mode & READ & (to_owner << 6 | to_group << 3 | to_others), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::platform;
    use crate::platform::testing::{make_fifo, set_access_list, set_mode};
    use crate::source::testing::skip;
    use crate::source::{Dir, Top};

    fn rights(uid: u32, gid: u32, mode: u32) -> Rights {
        Rights { uid: Some(uid), gid: Some(gid), mode }
    }

    /// Whether a user in `groups` may read.
    fn may(rights: Rights, user: u32, groups: &[u32]) -> bool {
        let class = match rights {
            Rights { uid: Some(uid), .. } if uid == user => 6,
            Rights { gid: Some(gid), .. } if groups.contains(&gid) => 3,
            _ => 0,
        };
        rights.mode >> class & 4 != 0
    }

    #[test]
    fn nobody_may_read_two_files_as_one_who_may_not_read_each() {
        let all = (0..64).flat_map(|mode: u32| {
            // Three bits for reading, three for the owners.
            let mode_of = (mode & 4) << 6 | (mode & 2) << 4 | (mode & 1) << 2;
            [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(uid, gid)| rights(uid, gid, mode_of))
        });
        let all: Vec<_> = all.collect();
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
            for user in 1..4 {
                for groups in [&[][..], &[1], &[2], &[1, 2], &[3]] {
                    let both = may(one, user, groups) && may(other, user, groups);
                    assert!(both || !may(one.and(other), user, groups), "{one:?} {other:?} {user} {groups:?}");
                }
            }
        }
        // Files that everybody may read stay readable.
        assert_eq!(rights(1, 1, 0o644).and(rights(2, 2, 0o755)), rights(1, 1, 0o444));
        assert_eq!(rights(1, 1, 0o640).and(rights(1, 1, 0o440)), rights(1, 1, 0o440));
        assert_eq!(rights(1, 1, 0o711).searching(), rights(1, 1, 0o444));
    }

    /// A list with the entries `(tag, rights)`; those that name a user name this one.
    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let id = platform::user().0.to_le_bytes();
        let entry = |(tag, rights): &(u16, u16)| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id].concat();
        VERSION.into_iter().chain(entries.iter().flat_map(entry)).collect()
    }

    #[test]
    fn a_list_takes_from_the_group_and_from_others_what_it_denies() {
        for (mode, entries, want) in [
            // The mask stands where the group's rights are.
            (0o640, &[(1, 6), (USER, 4), (OWNING_GROUP, 0), (MASK, 4), (OTHERS, 0)][..], 0o600),
            (0o640, &[(1, 6), (USER, 4), (OWNING_GROUP, 6), (MASK, 4), (OTHERS, 0)], 0o640),
            // A user without the rights of others may be in the group.
            (0o644, &[(1, 6), (USER, 0), (OWNING_GROUP, 4), (MASK, 4), (OTHERS, 4)], 0o600),
            (0o644, &[(1, 6), (OWNING_GROUP, 4), (GROUP, 0), (MASK, 4), (OTHERS, 4)], 0o640),
            (0o664, &[(1, 6), (OWNING_GROUP, 6), (GROUP, 7), (MASK, 6), (OTHERS, 4)], 0o664),
            (0o644, &[(1, 6), (OWNING_GROUP, 4), (OTHERS, 4)], 0o644),
            // Whom it does not mention it grants nothing.
            (0o644, &[(1, 6), (OWNING_GROUP, 4)], 0o640),
            (0o644, &[(1, 6), (OTHERS, 4)], 0o604),
            (0o644, &[], 0o600),
        ] {
            assert_eq!(rights(1, 1, mode).within(&list(entries)).mode, want, "{mode:o} {entries:?}");
        }
        assert_eq!(rights(1, 1, 0o777).within(b"another version").mode, 0o700);
    }
    #[test]
    fn the_list_of_a_file_or_directory_counts_and_not_that_of_the_directory_around_it() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        for name in ["plain", "listed"] {
            std::fs::write(at(name), b"text").unwrap();
            set_mode(&at(name), 0o644).unwrap();
        }
        make_fifo(&at("fifo")).unwrap();
        let denies = list(&[(1, 7), (USER, 0), (OWNING_GROUP, 4), (MASK, 4), (OTHERS, 4)]);
        if ["listed", "fifo", ""].into_iter().any(|name| set_access_list(&at(name), &denies).is_err()) {
            return skip("access control lists", "the file system of temporary files has none");
        }
        let (dir, top) = (Dir::open(tmp.path()).unwrap(), Top::open(tmp.path()).unwrap());
        let below = top.below(Path::new("")).unwrap();
        // Nobody reads a FIFO.
        for (name, mode) in [("plain", 0o644), ("listed", 0o700), ("fifo", 0o744)] {
            assert_eq!(dir.seen_below(OsStr::new(name)).unwrap().rights.mode, mode, "{name}");
            assert_eq!(below.stat(OsStr::new(name)).unwrap().rights.mode, mode, "{name}");
        }
        assert_eq!(dir.seen_below(OsStr::new("/")).unwrap().rights.mode, 0o400);
        assert_eq!(below.stat_itself().unwrap().rights.mode, 0o700);
    }
}
