//! Tests of a directory mount without a kernel.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

use rustix::fs::{Timespec, Timestamps};

use super::*;
use crate::checksum::Threads;
use crate::error::Error;
use crate::format::Options;
use crate::mirror::{Layout, Rules};
use crate::source::Top;
use crate::tree::ROOT;

/// The mount of a directory with one container, of which the kernel knows nothing yet.
fn mounted(dir: &Path, layout: Layout) -> Arc<Directory> {
    std::fs::write(dir.join("x.fzm"), b"no container").unwrap();
    let rules = Rules { layout, ..Rules::default() };
    let containers = Containers::new(Top::open(dir).unwrap(), rules, Options::default());
    let cache = Cache::new(1 << 20, 1);
    let offload = Offload::new(cache.clone(), Threads::new(1));
    Directory::new(containers, &MountOptions::new(dir, "mnt"), cache, offload, Arc::default(), 7).unwrap()
}

/// Looks the container up and enters it: its number and its session.
fn entered(mount: &Arc<Directory>) -> (u64, Arc<Session>) {
    let number = mount.find(ROOT.0, OsStr::new("x.fzm"), 0).unwrap().unwrap().attr.ino.0;
    (number, mount.opened(mount.slot(number).unwrap()).unwrap())
}

#[test]
fn a_file_is_closed_with_its_container_if_the_kernel_forgets_that_before_it_releases_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mount = mounted(dir.path(), Layout::Replace);
    let (number, session) = entered(&mount);
    let shared = session.shared();
    let ino = shared.tree.lookup(ROOT, b"error.txt").unwrap().unwrap();
    let file = shared.tree.file(ino).unwrap();
    let view = file.view(&*mount.cache).unwrap();
    shared.keep(ino, file, view, shared.holders.hold(0, 0).unwrap());
    assert!(mount.watches().iter().any(|looked| Arc::ptr_eq(looked, &shared.watch)));
    assert_eq!(mount.activity.open_files(), 1);
    drop(session);
    mount.forget(number, 1);
    assert_eq!(mount.activity.open_files(), 0);
}

#[test]
fn a_check_that_fails_when_its_container_is_closed_already_makes_the_kernel_drop_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mount = mounted(dir.path(), Layout::Replace);
    let (number, session) = entered(&mount);
    let watch = session.shared().watch.clone();
    let fails = mount.failing(&watch, &mount.faults);
    let slot = mount.slot(number).unwrap();
    mount.state().open.pop(&slot);
    let (_, again) = entered(&mount);
    assert!(mount.watches().is_empty(), "no file is open");
    fails(&Error::corrupt("wrong", "checksum"));
    let is_looked_at = |mount: &Directory| mount.watches().iter().any(|looked| Arc::ptr_eq(looked, &watch));
    assert!(is_looked_at(&mount) && !is_looked_at(&mount), "once");
    assert!(!Arc::ptr_eq(&again.shared().watch, &watch));
}

#[test]
fn a_directory_of_any_time_is_listed_in_the_layout_flat() {
    // Some file systems keep any time.
    for parent in ["/dev/shm".into(), std::env::temp_dir()] {
        let Ok(dir) = tempfile::tempdir_in(parent) else { continue };
        let mount = mounted(dir.path(), Layout::Flat);
        for tv_sec in [i64::MIN, -1, i64::MAX] {
            let time = Timespec { tv_sec, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(File::open(dir.path()).unwrap(), &times).unwrap();
            let names = mount.flat_names(ROOT.0, &mount.below(ROOT.0).unwrap()).unwrap();
            assert_eq!(names.stem(b"x.fzm"), Some(&b"x"[..]), "{tv_sec}");
        }
    }
}
