//! Eviction from a directory of `remote_cache`: what was not used for the longest time is removed.
//!
//! Processes that share the directory do this side by side: a file that another one has removed is no error.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::stored_name::{PART, parse};

/// A file that is being written for this time was left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);
/// This part of the disk stays free, or so many bytes if they are fewer.
const FREE: u64 = 20;
const FREE_BYTES: u64 = 1 << 30;

struct Found {
    used: SystemTime,
    size: u64,
    path: PathBuf,
}

/// Makes room in `top` for `need` bytes within `most`, and with a twentieth of the disk left free; returns whether
/// there is room now.
pub(super) fn make_room(top: &Path, most: Option<u64>, need: u64) -> bool {
    let mut found = found(top);
    found.sort_by_key(|file| file.used);
    let all = found.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if most.is_some_and(|most| need > most) {
        return false;
    }
    let excess = most.map_or(0, |most| all.saturating_add(need).saturating_sub(most));
    let mut remove = excess.max(lacking(top, need));
    for file in found {
        if remove == 0 {
            break;
        }
        if fs::remove_file(&file.path).is_ok() {
            remove = remove.saturating_sub(file.size);
        }
    }
    remove == 0
}

/// The files below `top` that this program has made.
fn found(top: &Path) -> Vec<Found> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let is_object = |name: &str| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let mut found = Vec::new();
    for object in entries(top).filter(|entry| entry.file_name().to_str().is_some_and(is_object)) {
        for entry in entries(&object.path()) {
            let (name, about) = (entry.file_name(), entry.metadata());
            let Some((name, about)) = name.to_str().zip(about.ok().filter(fs::Metadata::is_file)) else { continue };
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let is_abandoned = || used.elapsed().is_ok_and(|age| age > ABANDONED);
            if parse(name).is_some() {
                found.push(Found { used, size: about.len(), path: entry.path() });
            } else if name.starts_with(PART) && is_abandoned() {
                fs::remove_file(entry.path()).ok();
            }
        }
    }
    found
}

/// How many bytes are missing for `need` bytes while a part of the disk stays free.
fn lacking(top: &Path, need: u64) -> u64 {
    let Ok(stat) = rustix::fs::statvfs(top) else { return u64::MAX };
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    (bytes(stat.f_blocks) / FREE).min(FREE_BYTES).saturating_add(need).saturating_sub(bytes(stat.f_bavail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_make_room_and_no_others_are_touched() {
        let tmp = tempfile::tempdir().unwrap();
        let object = tmp.path().join("0".repeat(64));
        fs::create_dir(&object).unwrap();
        let name = |i: u64| object.join(format!("{:016x}-{i:x}-{:x}", 7, i.saturating_add(1)));
        for i in 0..10 {
            fs::write(name(i), [0; 1000]).unwrap();
            let used = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(i ^ 1)).unwrap();
            fs::File::options().write(true).open(name(i)).unwrap().set_modified(used).unwrap();
        }
        let other = [object.join("version"), object.join("part-1-1"), tmp.path().join("mine")];
        for path in &other {
            fs::write(path, [0; 5000]).unwrap();
        }
        assert!(make_room(tmp.path(), Some(10_000), 2500));
        let left: Vec<u64> = (0..10).filter(|&i| name(i).exists()).collect();
        assert_eq!(left, [2, 4, 5, 6, 7, 8, 9]);
        assert!(other.iter().all(|path| path.exists()));
        assert!(make_room(tmp.path(), None, 1000));
        assert!(!make_room(tmp.path(), None, u64::MAX));
        assert!((0..10).all(|i| !name(i).exists()) && other.iter().all(|path| path.exists()));
    }
}
