//! Eviction from a directory of kept files: least recently used first.
//!
//! Processes that share the directory evict concurrently: a file that another one has removed is not an error.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use super::super::dir::{Links, open_dir};
use super::PART;
use crate::platform::{AtFlags, BorrowedFd, Dir, FileType, OFlags, fstatvfs, statat, unlinkat};

/// A file that has been in the writing for this time was left by a killed process.
const ABANDONED: Duration = Duration::from_secs(3600);
/// This part of the disk stays free, or this many bytes if that is less.
const FREE: u64 = 20;
const FREE_BYTES: u64 = 1 << 30;

struct CachedFile {
    /// Seconds and nanoseconds since 1970.
    used: (i64, i64),
    size: u64,
    /// Below the directory.
    path: String,
}

/// Makes room in `top` for `need` bytes within `most`, and with a twentieth of the disk left free; returns whether
/// there is room now. Removes only files whose names `is_own` knows.
pub(super) fn make_room(top: BorrowedFd<'_>, most: Option<u64>, need: u64, is_own: impl Fn(&str) -> bool) -> bool {
    let mut found = found(top, is_own);
    found.sort_by_key(|file| file.used);
    let all = found.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if most.is_some_and(|most| need > most) {
        return false;
    }
    let excess = most.map_or(0, |most| all.saturating_add(need).saturating_sub(most));
    let lacking = fstatvfs(top).map_or(u64::MAX, |disk| {
        let [size, free] = [disk.f_blocks, disk.f_bavail].map(|blocks| blocks.saturating_mul(disk.f_frsize));
        lacking(size, free, need)
    });
    let mut remove = excess.max(lacking);
    for file in found {
        if remove == 0 {
            break;
        }
        if unlinkat(top, &file.path, AtFlags::empty()).is_ok() {
            remove = remove.saturating_sub(file.size);
            // Fails if it has other files.
            file.path.split_once('/').and_then(|(dir, _)| unlinkat(top, dir, AtFlags::REMOVEDIR).ok());
        }
    }
    remove == 0
}

/// The bytes of all files in `top` whose names `is_own` knows.
pub(super) fn used(top: BorrowedFd<'_>, is_own: impl Fn(&str) -> bool) -> u64 {
    found(top, is_own).iter().fold(0, |sum, file| sum.saturating_add(file.size))
}

/// The names in the directory `name` of `dir`; of links, none.
pub(super) fn entries(dir: BorrowedFd<'_>, name: &str) -> Option<impl Iterator<Item = String>> {
    let entries = Dir::new(open_dir(dir, OsStr::new(name), OFlags::RDONLY, Links::Refused).ok()?).ok()?;
    let names = entries.map_while(Result::ok).filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    Some(names.filter(|name| name != "." && name != ".."))
}

/// The files below `top` that this program has made.
fn found(top: BorrowedFd<'_>, is_own: impl Fn(&str) -> bool) -> Vec<CachedFile> {
    let is_object = |name: &String| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut found = Vec::new();
    for object in entries(top, ".").into_iter().flatten().filter(is_object) {
        for name in entries(top, &object).into_iter().flatten() {
            let path = format!("{object}/{name}");
            let Ok(about) = statat(top, &path, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
                continue;
            }
            let used = (about.st_mtime, i64::try_from(about.st_mtime_nsec).unwrap_or(0));
            let is_abandoned = || {
                let since = u64::try_from(used.0).map(Duration::from_secs).unwrap_or_default();
                now.checked_sub(since).is_some_and(|age| age > ABANDONED)
            };
            if is_own(&name) {
                found.push(CachedFile { used, size: u64::try_from(about.st_size).unwrap_or(0), path });
            } else if name.starts_with(PART) && is_abandoned() {
                unlinkat(top, &path, AtFlags::empty()).ok();
            }
        }
    }
    found
}

/// How many bytes are missing for `need` bytes on a disk of `size` bytes, `free` of which are free, while a part of it
/// stays free.
fn lacking(size: u64, free: u64, need: u64) -> u64 {
    (size / FREE).min(FREE_BYTES).saturating_add(need).saturating_sub(free)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::platform::AsFd;

    #[test]
    fn the_oldest_files_make_room_and_no_others_are_touched() {
        let tmp = tempfile::tempdir().unwrap();
        let object = tmp.path().join("0".repeat(64));
        fs::create_dir(&object).unwrap();
        let name = |i: u64| object.join(format!("own-{i}"));
        let dated = |path: &Path, seconds| {
            let used = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(used).unwrap();
        };
        let is_own = |name: &str| name.starts_with("own-");
        for i in 0..10 {
            fs::write(name(i), [0; 1000]).unwrap();
            dated(&name(i), i ^ 1);
        }
        // The names of other directories are no numbers, or too short.
        let others = ["g".repeat(64), "0".repeat(63)].map(|name| tmp.path().join(name));
        for dir in &others {
            fs::create_dir(dir).unwrap();
        }
        let [long, short] = others.map(|dir| dir.join("own-0"));
        let other = [object.join("version"), object.join("part-1-1"), tmp.path().join("mine"), long, short];
        for path in &other {
            fs::write(path, [0; 5000]).unwrap();
        }
        // Left by a killed process.
        let abandoned = object.join("part-1-2");
        fs::write(&abandoned, b"abandoned").unwrap();
        dated(&abandoned, 0);
        let top = fs::File::open(tmp.path()).unwrap();
        let top = top.as_fd();
        assert!(make_room(top, Some(10_000), 2500, is_own));
        let left: Vec<u64> = (0..10).filter(|&i| name(i).exists()).collect();
        assert_eq!(left, [2, 4, 5, 6, 7, 8, 9]);
        assert!(other.iter().all(|path| path.exists()) && !abandoned.exists());
        assert_eq!(used(top, is_own), 7000);
        assert!(make_room(top, None, 1000, is_own));
        assert!(!make_room(top, None, u64::MAX, is_own));
        assert!((0..10).all(|i| !name(i).exists()) && other.iter().all(|path| path.exists()));
        assert!(make_room(top, Some(1000), 1000, is_own) && !make_room(top, Some(999), 1000, is_own));
    }

    #[test]
    fn a_twentieth_of_the_disk_stays_free_or_a_gigabyte_if_that_is_less() {
        for (size, free, need, want) in [
            (2000, 100, 0, 0),
            (2000, 99, 0, 1),
            (2000, 100, 7, 7),
            (100 << 30, FREE_BYTES, 0, 0),
            (100 << 30, FREE_BYTES - 1, 5, 6),
            (2000, 50, u64::MAX, u64::MAX - 50),
        ] {
            assert_eq!(lacking(size, free, need), want, "{need} on {size} with {free}");
        }
    }
}
