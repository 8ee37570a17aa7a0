//! Files that are swapped or rewritten under a mount in ways that are hard to see.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::made::bytes;
use crate::support::mounts::{Mounted, can_mount, is_alive, wait_until};
use crate::support::opened::data;

const SIZE: u64 = 6_000_000;

fn mounted() -> (Mounted, PathBuf, tempfile::TempDir) {
    let dir = tempfile::TempDir::new().unwrap();
    let source = dir.path().join("source");
    fs::write(&source, bytes(9, 0, SIZE)).unwrap();
    (Mounted::made(&[&format!("source={}", source.display())]), source, dir)
}

fn errno(path: &Path) -> Option<i32> {
    File::open(path).err().and_then(|e| e.raw_os_error())
}

#[test]
fn a_write_whose_time_is_set_back_is_noticed() {
    if !can_mount() {
        return;
    }
    // A change of the rights explains that the time of the status change moved, and does not hide the write.
    for mode in [None, Some(0o600)] {
        let (mounted, source, _dir) = mounted();
        let open = File::open(mounted.path("stored.bin")).unwrap();
        let was = source.metadata().unwrap().modified().unwrap();
        let file = File::options().write(true).open(&source).unwrap();
        file.write_all_at(&bytes(10, 0, 100_000), SIZE / 2).unwrap();
        file.set_modified(was).unwrap();
        if let Some(mode) = mode {
            fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut got = vec![0; 100];
        let e = open.read_exact_at(&mut got, SIZE / 2 + 5000).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EIO), "{mode:?}");
        assert_eq!(errno(&mounted.path("stored.bin")), Some(libc::ESTALE));
        assert!(is_alive(mounted.daemon()));
    }
}

#[test]
fn names_and_rights_of_the_file_may_change() {
    if !can_mount() {
        return;
    }
    let (mounted, source, dir) = mounted();
    let other = dir.path().join("other");
    let steps: [&dyn Fn(); 5] = [
        &|| fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap(),
        &|| fs::hard_link(&source, &other).unwrap(),
        &|| fs::remove_file(&source).unwrap(),
        &|| fs::rename(&other, &source).unwrap(),
        &|| fs::remove_file(&source).unwrap(),
    ];
    for (n, step) in (0..).zip(steps) {
        step();
        let at = n * 500_000;
        let mut got = vec![0; 200_000];
        let file = File::open(mounted.path("stored.bin")).unwrap_or_else(|e| panic!("step {n}: {e}"));
        file.read_exact_at(&mut got, at).unwrap_or_else(|e| panic!("step {n}: {e}"));
        assert!(got == bytes(9, at, 200_000), "step {n}");
    }
    assert_eq!(mounted.logged().matches("changed").count(), 0, "{}", mounted.logged());
}

fn sparse() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(data("blosc2/s01_sframe.b2frame")).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    dir
}

#[test]
fn a_chunk_file_that_is_swapped_for_a_link_gives_none_of_its_bytes() {
    if !can_mount() {
        return;
    }
    let frame = sparse();
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "TOP SECRET ".repeat(1000)).unwrap();
    let mounted = Mounted::of(frame.path());
    // Opened, so that its length is known, and not yet read.
    let open = File::open(mounted.path("stored/000001.bin")).unwrap();
    let chunk = frame.path().join("00000001.chunk");
    fs::remove_file(&chunk).unwrap();
    symlink(secret.path(), &chunk).unwrap();
    let e = open.read_exact_at(&mut [0; 60], 0).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EIO));
}

#[test]
fn chunk_files_that_change_are_noticed_without_a_read_and_nothing_is_mixed() {
    if !can_mount() {
        return;
    }
    let replace = |path: &Path| {
        fs::copy(path.with_file_name("00000002.chunk"), path.with_extension("new")).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    let rewrite = |path: &Path| {
        let other = fs::read(path.with_file_name("00000002.chunk")).unwrap();
        File::options().write(true).open(path).unwrap().write_all_at(&other, 0).unwrap();
    };
    let delete = |path: &Path| fs::remove_file(path).unwrap();
    for (n, change) in [&replace as &dyn Fn(&Path), &rewrite, &delete].into_iter().enumerate() {
        let frame = sparse();
        let mounted = Mounted::of(frame.path());
        let open = File::open(mounted.path("data.raw")).unwrap();
        let mut first = vec![0; 4096];
        open.read_exact_at(&mut first, 0).unwrap();
        change(&frame.path().join("00000001.chunk"));
        let stale = || errno(&mounted.path("chunks/000003.raw")) == Some(libc::ESTALE);
        wait_until(&format!("change {n} is noticed"), stale);
        let mut got = vec![0; 4096];
        wait_until(&format!("pages after change {n} are no longer served"), || {
            open.read_exact_at(&mut got, 0).is_err() || got != first
        });
        assert!(open.read_exact_at(&mut got, 0).is_err(), "change {n}: other bytes are served");
        assert!(is_alive(mounted.daemon()));
    }
}

#[test]
fn a_shard_that_changes_is_noticed_without_a_read() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["model.zt", "model-00001-of-00002.zt", "model-00002-of-00002.zt"] {
        fs::copy(data("ztensor/v20-sharded").join(name), dir.path().join(name)).unwrap();
    }
    let mounted = Mounted::of(&dir.path().join("model.zt"));
    // Files beside it are none of its business.
    fs::write(dir.path().join("note"), b"x").unwrap();
    fs::rename(dir.path().join("note"), dir.path().join("model-00003-of-00002.zt")).unwrap();
    assert_eq!(errno(&mounted.path("model.safetensors")), None);
    let shard = dir.path().join("model-00002-of-00002.zt");
    File::options().write(true).open(&shard).unwrap().write_all_at(b"x", 100).unwrap();
    wait_until("the change is noticed", || errno(&mounted.path("model.safetensors")) == Some(libc::ESTALE));
}
