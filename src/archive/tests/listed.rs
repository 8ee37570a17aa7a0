//! Entries of an archive: names, kinds, sizes and links, one directory at a time or all.

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::format::{Attrs, Node as DescribedNode};

fn described(name: &'static str, len: usize) -> Described {
    Described::own(name, DescribedFile::new(Content::bytes(noise(len))).attr("codec", "none"))
}

/// `a`, `dir/b`, `dir/deep/c`, and links to `dir/b`, to a directory and to nothing.
fn archive() -> Archive {
    let dir = |name, entries| Described::own(name, DescribedNode::dir(Attrs::new(), entries));
    let link = |name, to: &str| Described::own(name, DescribedNode::Link(to.to_owned()));
    let deep = dir("deep", vec![described("c", 30)]);
    let entries = vec![
        described("a", 10),
        dir("dir", vec![described("b", 20), deep, link("to-b", "b")]),
        link("to-a", "a"),
        link("to-dir", "dir"),
    ];
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_modified(UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
    let sources = vec![Source::open(file.path()).unwrap()];
    Made { sources, ..Made::new(entries) }.archive(&Options::new(), Access::Random)
}

#[test]
fn entries_have_names_paths_kinds_and_sizes() {
    let archive = archive();
    for (path, name, kind, size) in [
        ("", "", EntryKind::Directory, None),
        ("a", "a", EntryKind::File, Some(10)),
        ("dir", "dir", EntryKind::Directory, None),
        ("dir/deep/c", "c", EntryKind::File, Some(30)),
        ("dir/to-b", "to-b", EntryKind::Link, Some(1)),
    ] {
        let entry = archive.entry(path).unwrap();
        assert_eq!((entry.path(), entry.name(), entry.kind(), entry.size()), (path, name, kind, size));
        assert_eq!(entry.open().is_ok(), kind != EntryKind::Directory, "{path}");
        assert_eq!(entry.target().is_some(), kind == EntryKind::Link, "{path}");
        assert_eq!(entry.list().is_ok(), kind == EntryKind::Directory, "{path}");
    }
    assert_eq!(archive.entry("dir/to-b").unwrap().target().as_deref(), Some("b"));
    assert_eq!(archive.entry("/dir/../a").unwrap().path(), "a");
    let missing = archive.file("dir/x").unwrap_err();
    assert!(matches!(missing.kind(), Kind::NotFound) && missing.to_string().contains("deep"), "{missing}");
    assert_eq!(archive.file("dir/to-b").unwrap().read().unwrap(), noise(20));
}

#[test]
fn a_directory_is_listed_and_a_tree_walked_with_or_without_what_is_skipped() {
    let archive = archive();
    let names = |entries: Entries| entries.map(|entry| entry.unwrap().path().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(archive.list("dir").unwrap()), ["dir/b", "dir/deep", "dir/to-b"]);
    let below = ["dir/b", "dir/deep", "dir/deep/c", "dir/to-b"];
    assert_eq!(names(archive.walk("dir").unwrap()), below);
    let all = names(archive.walk("").unwrap());
    assert!(["info.json", "a", "to-a", "to-dir"].iter().chain(&below).all(|path| all.contains(&(*path).to_owned())));
    for (at, want) in [("dir/deep", &["dir/b", "dir/deep", "dir/to-b"][..]), ("dir/b", &["dir/b"])] {
        let (mut walk, mut seen) = (archive.entry("dir").unwrap().walk().unwrap(), Vec::new());
        while let Some(entry) = walk.next().map(Result::unwrap) {
            seen.push(entry.path().to_owned());
            if entry.path() == at {
                walk.skip_directory();
            }
        }
        assert_eq!(seen, want);
    }
    assert!(archive.list("a").is_err() && archive.walk("none").is_err());
}

#[cfg(feature = "serve")]
#[test]
fn an_entry_has_attributes_and_times_and_is_what_it_leads_to() {
    let archive = archive();
    let attributes = archive.entry("a").unwrap().attributes().unwrap();
    assert!(attributes.contains(&("codec".to_owned(), "none".to_owned())), "{attributes:?}");
    assert_eq!(archive.entry("a").unwrap().modified(), Some(1000));
    for (path, kind, size) in [
        ("to-a", EntryKind::File, Some(10)),
        ("dir/to-b", EntryKind::File, Some(20)),
        ("to-dir", EntryKind::Directory, None),
        ("a", EntryKind::File, Some(10)),
    ] {
        let followed = archive.entry(path).unwrap().followed().unwrap();
        assert_eq!((followed.path(), followed.kind(), followed.size()), (path, kind, size));
    }
}

#[cfg(feature = "cli")]
#[test]
fn the_number_of_an_entry_is_that_of_the_tree() {
    let archive = archive();
    let entry = archive.entry("dir/deep/c").unwrap();
    assert_eq!(entry.ino(), archive.tree().resolve("dir/deep/c").unwrap());
}
