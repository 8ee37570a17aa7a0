//! Tests of `folder`.

use super::*;
use crate::platform::testing::{make_fifo, symlink};
use std::path::Path;

/// A change made to a file.
type Step<'a> = (&'static str, &'a dyn Fn(&Path));

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{i:05}")).collect()
}

/// A pinned directory of `n` files, each containing its number in 8 bytes.
fn folder(n: usize) -> (tempfile::TempDir, Arc<Folder>) {
    let tmp = tempfile::tempdir().unwrap();
    for (i, name) in names(n).iter().enumerate() {
        std::fs::write(tmp.path().join(name), i.to_le_bytes()).unwrap();
    }
    let folder = pin(tmp.path(), n);
    (tmp, folder)
}

fn pin(path: &Path, n: usize) -> Arc<Folder> {
    // With duplicates.
    let names = names(n).into_iter().chain(names(n.min(3)));
    Folder::pin(&Dir::open(path).unwrap(), names.map(Ok), &Account::new(1 << 20, 0)).unwrap()
}

fn read(folder: &Arc<Folder>, i: usize) -> Result<usize> {
    let bytes = folder.source(format!("{i:05}"))?.get(FileOffset(0), 8, "x")?;
    Ok(usize::from_le_bytes(bytes.try_into().unwrap()))
}

#[test]
fn files_at_any_depth_are_pinned_and_a_new_one_is_a_change() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(tmp.path().join("a/b")).unwrap();
    std::fs::write(tmp.path().join("a/b/file"), [7; 8]).unwrap();
    std::fs::write(tmp.path().join("top"), [8; 8]).unwrap();
    symlink("a/b/file", tmp.path().join("link")).unwrap();
    symlink("a", tmp.path().join("dir")).unwrap();
    let pin = || Folder::pin_below(&Dir::open(tmp.path()).unwrap(), &Account::new(1 << 20, 0)).unwrap();
    let folder = pin();
    let mut names: Vec<_> = (0..folder.len()).map(|i| folder.name(i).to_vec()).collect();
    names.sort();
    assert_eq!(names, [&b"/"[..], b"a/", b"a/b/", b"a/b/file", b"top"]);
    assert_eq!(folder.source("a/b/file").unwrap().get(FileOffset(0), 8, "x").unwrap(), [7; 8]);
    folder.check_some(5).unwrap();
    for name in ["link", "dir/b/file", "a/../top", "../x", "a/b", "/top"] {
        assert!(folder.source(name).is_err(), "{name}");
    }
    // A directory on the way that is a link now.
    std::fs::rename(tmp.path().join("a"), tmp.path().join("c")).unwrap();
    symlink("c", tmp.path().join("a")).unwrap();
    let folder = {
        folder.open.clear();
        assert!(folder.source("a/b/file").unwrap().get(FileOffset(0), 8, "x").is_err());
        pin()
    };
    std::fs::write(tmp.path().join("c/b/new"), []).unwrap();
    assert!(matches!(folder.check_some(5).unwrap_err().kind(), Kind::Changed));
}

#[test]
fn all_files_are_read_and_few_are_open() {
    let (_tmp, folder) = folder(500);
    assert_eq!(folder.len(), 500);
    assert!(!folder.is_same_in_memory(0), "it is not open");
    for i in (0..500).chain([7, 499, 0]) {
        assert_eq!(read(&folder, i).unwrap(), i);
        assert!(folder.open.len() <= OPEN);
    }
    assert_eq!(folder.open.len(), descriptors().get());
    assert!(matches!(folder.source("00500").unwrap_err().kind(), Kind::NotFound));
    folder.check_some(500).unwrap();
}

#[test]
fn a_folder_takes_an_eighth_of_the_descriptors_at_most_64_and_at_least_one() {
    for (most, want) in [(0, 1), (7, 1), (8, 1), (80, 10), (512, 64), (1024, 64), (usize::MAX, 64)] {
        assert_eq!(share(most).get(), want, "{most}");
    }
    assert_eq!(descriptors(), share(most_descriptors()));
}

#[test]
fn a_file_that_cannot_be_read_or_looked_at_has_not_changed_for_that() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    std::fs::create_dir(at("in")).unwrap();
    std::fs::write(at("in/file"), [7; 8]).unwrap();
    let (dir, account) = (Dir::open(tmp.path()).unwrap(), Account::new(1 << 20, 0));
    // Without its directory, which changes below.
    let folder = Folder::pinned_in(&dir, PinnedNames::new(&dir, [Ok("in/file")], &account).unwrap());
    let is_io = |result: Result<()>| matches!(result.unwrap_err().kind(), Kind::Io(_));
    // No file has such an offset.
    assert!(is_io(folder.read(0, FileOffset(1 << 63), &mut [0], "x")));
    folder.open.clear();
    std::fs::rename(at("in"), at("moved")).unwrap();
    std::fs::write(at("in"), b"a file").unwrap();
    assert!(is_io(folder.check(0)) && is_io(folder.read(0, FileOffset(0), &mut [0], "x")));
    folder.check_some(1).unwrap();
    folder.unchanged().unwrap();
    std::fs::remove_file(at("in")).unwrap();
    assert!(matches!(folder.check_some(1).unwrap_err().kind(), Kind::Changed));
}

#[test]
fn the_list_of_files_is_charged_and_goes_to_the_disk_without_memory() {
    let tmp = tempfile::tempdir().unwrap();
    let names = (0..20_000).map(|i| format!("{i:05}"));
    for name in names.clone() {
        std::fs::hard_link(tmp.path().join("00000"), tmp.path().join(&name))
            .or_else(|_| std::fs::write(tmp.path().join(&name), [7; 8]))
            .unwrap();
    }
    for (memory, disk) in [(64 << 20, 0), (0, 64 << 20)] {
        let account = Account::new(memory, disk);
        let folder = Folder::pin(&Dir::open(tmp.path()).unwrap(), names.clone().map(Ok), &account).unwrap();
        let used = account.memory().used() + account.disk().used();
        assert!(used >= 500_000, "{used}");
        assert_eq!(folder.source("12345").unwrap().get(FileOffset(0), 8, "x").unwrap(), [7; 8]);
        drop(folder);
        assert_eq!(account.memory().used() + account.disk().used(), 0);
    }
}

#[test]
fn any_change_of_a_file_is_one_of_all_whether_it_is_open_or_not() {
    let restored = |path: &Path, bytes: &[u8]| {
        let was = path.metadata().unwrap().modified().unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.set_modified(was).unwrap();
    };
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), [0xEE; 8]).unwrap();
    let steps: [Step<'_>; 9] = [
        ("written in place", &|at| std::fs::write(at, [1; 8]).unwrap()),
        ("written in place, time restored", &|at| restored(at, &[1; 8])),
        ("cut", &|at| File::options().write(true).open(at).unwrap().set_len(3).unwrap()),
        ("renamed over", &|at| {
            let other = at.with_file_name("other");
            std::fs::write(&other, [1; 8]).unwrap();
            std::fs::rename(other, at).unwrap();
        }),
        ("deleted", &|at| std::fs::remove_file(at).unwrap()),
        ("renamed", &|at| std::fs::rename(at, at.with_file_name("other")).unwrap()),
        ("replaced by a link", &|at| {
            std::fs::remove_file(at).unwrap();
            symlink(secret.path(), at).unwrap();
        }),
        ("replaced by a link to the same bytes", &|at| {
            std::fs::rename(at, at.with_file_name("other")).unwrap();
            symlink("other", at).unwrap();
        }),
        ("replaced by a FIFO", &|at| {
            std::fs::remove_file(at).unwrap();
            make_fifo(at).unwrap();
        }),
    ];
    for (what, step) in steps {
        for (is_open, by_reading) in [(false, true), (true, true), (false, false), (true, false)] {
            let (tmp, folder) = folder(5);
            if is_open {
                assert_eq!(read(&folder, 3).unwrap(), 3);
            }
            step(&tmp.path().join("00003"));
            let seen = match (by_reading, is_open) {
                // The old bytes can be read through the open descriptor until the change is detected.
                (true, true) => {
                    read(&folder, 3).map_or_else(Err, |i| if i == 3 { folder.check_some(5) } else { Ok(()) })
                }
                (true, false) => read(&folder, 3).map(drop),
                (false, _) => folder.check_some(5),
            };
            let e = seen.expect_err(what);
            assert!(matches!(e.kind(), Kind::Changed), "{what}: {e}");
            assert!(folder.unchanged().is_err() && read(&folder, 1).is_err(), "{what}");
            assert_eq!(folder.changed(), Some(tmp.path().join("00003")));
            assert!(folder.open.is_empty());
        }
    }
}

#[test]
fn links_and_fifos_are_not_in_the_folder_and_what_comes_later_is_a_change() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("00000"), [0; 8]).unwrap();
    symlink("00000", tmp.path().join("00001")).unwrap();
    std::fs::create_dir(tmp.path().join("00002")).unwrap();
    let folder = pin(tmp.path(), 5);
    assert_eq!(folder.len(), 1);
    let why = |name: &str| folder.source(name).unwrap_err();
    assert!(why("00001").to_string().contains("symbolic link, which is not followed"));
    assert!(why("00002").to_string().contains("a directory"));
    assert!(matches!(why("00003").kind(), Kind::NotFound));
    assert!(matches!(why("../x").kind(), Kind::Unsupported(_)));
    std::fs::write(tmp.path().join("00003"), [0; 8]).unwrap();
    assert!(matches!(why("00003").kind(), Kind::Changed));
}

#[test]
fn repeated_checks_of_some_files_reach_all() {
    for changed in [0, 1, 41, 99] {
        let (tmp, folder) = folder(100);
        std::fs::write(tmp.path().join(format!("{changed:05}")), b"x").unwrap();
        let rounds = (0..20).take_while(|_| folder.check_some(9).is_ok()).count();
        assert_eq!(rounds, changed / 9);
    }
}

#[test]
fn the_directory_may_move() {
    let (tmp, folder) = folder(3);
    let inside = tmp.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::rename(tmp.path().join("00000"), inside.join("00000")).unwrap();
    let other = pin(&inside, 1);
    std::fs::rename(&inside, tmp.path().join("moved")).unwrap();
    assert_eq!(read(&other, 0).unwrap(), 0);
    assert!(read(&folder, 0).is_err());
}
