//! Tests of a directory mount without a kernel.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Timespec, Timestamps};

use super::*;
use crate::checksum::Threads;
use crate::clock::{PATIENCE, wait_until};
use crate::error::Error;
use crate::format::Options;
use crate::mirror::{Layout, Rules};
use crate::source::Top;
use crate::tree::{Kind, ROOT};

/// The mount of a directory with one container, for all users; the kernel knows nothing of it yet.
fn mounted(dir: &Path, layout: Layout) -> Arc<MirroredDir> {
    std::fs::write(dir.join("x.fzm"), b"no container").unwrap();
    mount(dir, layout)
}

fn mount(dir: &Path, layout: Layout) -> Arc<MirroredDir> {
    let rules = Rules { layout, ..Rules::default() };
    let containers = Containers::new(Top::open(dir).unwrap(), rules, Options::default());
    let cache = Cache::new(1 << 20, 1);
    let offload = Offload::new(cache.clone(), Threads::new(1));
    let request = MountOptions { access: Access::AllUsers, ..MountOptions::new(dir, "mnt") };
    MirroredDir::new(containers, &request, cache, offload, Arc::default(), 7).unwrap()
}

/// Looks a container up; its number.
fn found(mount: &Arc<MirroredDir>, name: &str) -> u64 {
    mount.find(ROOT.0, OsStr::new(name), 0).unwrap().unwrap().ino.0
}

/// Looks the container up and enters it: its number and its session.
fn entered(mount: &Arc<MirroredDir>) -> (u64, Arc<Session>) {
    let number = found(mount, "x.fzm");
    (number, mount.opened(mount.slot(number).unwrap()).unwrap())
}

/// A directory with a file of tensors and its shards, which all may read.
fn sharded() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ztensor/v20-sharded");
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = dir.path().join(path.file_name().unwrap());
        std::fs::copy(&path, &to).unwrap();
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    dir
}

/// The mode with which the files of a container are shown.
fn mode(session: &Session) -> u16 {
    session.shared().attributes.unknown(Ino(9), Kind::File).perm
}

#[test]
fn a_container_whose_shard_gets_other_rights_while_it_is_closed_is_another_one() {
    let dir = sharded();
    let mount = mount(dir.path(), Layout::Replace);
    let number = found(&mount, "model.zt");
    let slot = mount.slot(number).unwrap();
    assert_eq!(mode(&mount.opened(slot).unwrap()), 0o444);
    mount.state().open.remove(&slot);
    assert_eq!(mode(&mount.opened(slot).unwrap()), 0o444, "it can be opened again");
    mount.state().open.remove(&slot);
    let shard = dir.path().join("model-00002-of-00002.zt");
    std::fs::set_permissions(shard, std::fs::Permissions::from_mode(0o600)).unwrap();
    // The kernel keeps the attributes of the files in it.
    assert!(matches!(mount.opened(slot).unwrap_err().kind(), crate::error::Kind::Changed));
    let other = found(&mount, "model.zt");
    assert!(other != number && found(&mount, "model.zt") == other);
    assert_eq!(mode(&mount.opened(mount.slot(other).unwrap()).unwrap()), 0o400);
}

#[test]
fn a_container_whose_shard_was_replaced_is_another_one_and_is_served() {
    let dir = sharded();
    let mount = mount(dir.path(), Layout::Replace);
    let number = found(&mount, "model.zt");
    let session = mount.opened(mount.slot(number).unwrap()).unwrap();
    let shard = dir.path().join("model-00002-of-00002.zt");
    std::fs::copy(&shard, dir.path().join("new")).unwrap();
    std::fs::rename(dir.path().join("new"), shard).unwrap();
    mount.give_up();
    assert_eq!(found(&mount, "model.zt"), number, "not seen yet");
    let watch = &session.shared().watch;
    session.shared().tree.container().folder().unwrap().check_some(9).unwrap_err();
    assert!(watch.unchanged().is_err());
    mount.give_up();
    let other = found(&mount, "model.zt");
    assert!(other != number);
    mount.opened(mount.slot(other).unwrap()).unwrap().shared().watch.unchanged().unwrap();
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
    mount.state().open.remove(&slot);
    let (_, again) = entered(&mount);
    assert!(mount.watches().is_empty(), "no file is open");
    assert!(mount.failed().is_empty());
    fails(&Error::corrupt("wrong", "checksum"));
    let is_looked_at = |mount: &MirroredDir| mount.failed().iter().any(|looked| Arc::ptr_eq(looked, &watch));
    assert!(is_looked_at(&mount) && !is_looked_at(&mount), "once");
    assert!(!Arc::ptr_eq(&again.shared().watch, &watch));
}

/// Ten arrays, `0.b2nd` to `9.b2nd`.
fn series() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/n13_str_U7.b2nd");
    for i in 0..10 {
        std::fs::copy(&from, dir.path().join(format!("{i}.b2nd"))).unwrap();
    }
    dir
}

/// Enters a container of a [`series`], as a program does that reads its `data.raw`.
fn read_whole(mount: &Arc<MirroredDir>, i: u32) -> Arc<Session> {
    let number = found(mount, &format!("{i}.b2nd"));
    let slot = mount.slot(number).unwrap();
    let session = mount.opened(slot).unwrap();
    let shared = session.shared();
    let ino = shared.tree.lookup(ROOT, b"data.raw").unwrap().unwrap();
    let file = shared.tree.file(ino).unwrap();
    let view = file.view(&*mount.cache).unwrap();
    shared.keep(ino, file, view, shared.holders.hold(0, 0).unwrap());
    mount.entered(slot, &session);
    // Work that runs ahead has run.
    let (tx, rx) = std::sync::mpsc::channel();
    mount.offload.run_in_turn(JobTurn::Ahead, On::Opening, Box::new(move || tx.send(()).unwrap()));
    rx.recv_timeout(PATIENCE).unwrap();
    session
}

#[test]
fn the_containers_that_follow_are_open_and_the_same_file_is_decoded_before_they_are_entered() {
    let dir = series();
    let mount = mount(dir.path(), Layout::Replace);
    let sessions: Vec<_> = (0..4).map(|i| read_whole(&mount, i)).collect();
    assert_eq!(mount.ahead.open(), ["4.b2nd", "5.b2nd"]);
    // Three pieces each.
    wait_until(|| mount.cache.stats().ahead == 6);
    let session = read_whole(&mount, 4);
    assert_eq!(mount.ahead.open(), ["5.b2nd", "6.b2nd"]);
    let numbers = |session: &Session| session.shared().tree.lookup(ROOT, b"data.raw").unwrap();
    assert!(sessions.iter().all(|other| numbers(other) == numbers(&session)));
    // Elsewhere.
    read_whole(&mount, 9);
    assert!(mount.ahead.open().is_empty());
}

#[test]
fn a_container_that_was_replaced_after_it_was_opened_ahead_is_served_as_it_is_now() {
    let dir = series();
    let mount = mount(dir.path(), Layout::Replace);
    (0..4).for_each(|i| _ = read_whole(&mount, i));
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/n19_special.b2nd");
    std::fs::copy(&other, dir.path().join("new")).unwrap();
    std::fs::rename(dir.path().join("new"), dir.path().join("4.b2nd")).unwrap();
    let len = read_whole(&mount, 4).shared().tree.container().info().file_size;
    assert_eq!(len, std::fs::metadata(other).unwrap().len());
    // Written to, not replaced.
    std::fs::write(dir.path().join("5.b2nd"), b"no container").unwrap();
    let session = mount.opened(mount.slot(found(&mount, "5.b2nd")).unwrap()).unwrap();
    assert!(session.shared().tree.lookup(ROOT, b"error.txt").unwrap().is_some());
    // Removed.
    std::fs::remove_file(dir.path().join("6.b2nd")).unwrap();
    assert!(mount.find(ROOT.0, OsStr::new("6.b2nd"), 0).unwrap().is_none());
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
