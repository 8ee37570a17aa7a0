//! Directories of numbered files, of any size and with gaps.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::format::IndexedDir;

/// Indexes with gaps: every third one is missing.
struct Gaps(u64);

impl IndexedDir for Gaps {
    fn count(&self) -> u64 {
        self.0
    }

    fn suffix(&self) -> &'static str {
        ".raw"
    }

    fn next(&self, index: u64) -> Result<Option<u64>> {
        Ok(Some(index + u64::from(index % 3 == 1)).filter(|&next| next < self.0))
    }

    fn file(&self, index: u64) -> Result<File> {
        Ok(File::new(Content::bytes(index.to_string().into_bytes())).stored(1))
    }
}

pub(super) fn numbered(name: &'static str, count: u64) -> Entry {
    Entry::own(name, Node::IndexedDir(Arc::new(Gaps(count))))
}

#[test]
fn a_numbered_directory_has_a_file_for_each_existing_number() {
    let tree = tree(vec![numbered("chunks", 8), numbered("more", 1), numbered("none", 0)]);
    assert_eq!(
        walk(&tree, ROOT, "")[1..],
        ["chunks/", "chunks/000000.raw", "chunks/000002.raw", "chunks/000003.raw", "chunks/000005.raw"]
            .into_iter()
            .chain(["chunks/000006.raw", "more/", "more/000000.raw", "none/"])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    );
    assert_eq!(read(&tree, "chunks/000005.raw"), b"5");
    let dir = tree.resolve("chunks").unwrap();
    for name in ["5.raw", "00005.raw", "0000005.raw", "000001.raw", "000008.raw", "000005", "+00005.raw", ".raw", ""] {
        assert_eq!(tree.lookup(dir, name.as_bytes()).unwrap(), None, "{name}");
    }
    assert_eq!(tree.cheap_attr(ROOT).unwrap().nlink, 5);
    assert_eq!(tree.cheap_attr(dir).unwrap().nlink, 2);
    let gap = Ino(tree.lookup(dir, b"000000.raw").unwrap().unwrap().0 + 1);
    assert_eq!(tree.attr(gap, &Plain).unwrap_err().errno(), libc::ENOENT);
    assert_eq!(tree.file(gap).unwrap_err().errno(), libc::ENOENT);
}

/// Two files among 2^31 indexes; counts the calls for the next one.
struct Sparse(AtomicU64);

impl IndexedDir for Sparse {
    fn count(&self) -> u64 {
        1 << 31
    }

    fn suffix(&self) -> &'static str {
        ".bin"
    }

    fn next(&self, index: u64) -> Result<Option<u64>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok([5, 2_000_000_000].into_iter().find(|&n| n >= index))
    }

    fn file(&self, _: u64) -> Result<File> {
        Ok(bytes("x"))
    }
}

#[test]
fn a_gap_of_two_thousand_million_numbers_is_one_step_of_a_listing() {
    let sparse = Arc::new(Sparse(AtomicU64::new(0)));
    let tree = tree(vec![Entry::own("stored", Node::IndexedDir(sparse.clone()))]);
    let dir = tree.resolve("stored").unwrap();
    let names: Vec<String> = tree.entries(dir).map(|entry| entry.unwrap().name).collect();
    assert_eq!(names, ["000005.bin", "2000000000.bin"]);
    assert_eq!(sparse.0.load(Ordering::Relaxed), 3);
    assert_eq!(tree.lookup(dir, b"000006.bin").unwrap(), None);
    assert!(tree.lookup(dir, b"2000000000.bin").unwrap().is_some());
}

#[test]
fn a_directory_of_a_hundred_million_files_is_not_materialized() {
    let tree = tree(vec![numbered("chunks", 100_000_000), numbered("huge", 1 << 62), file("after", "")]);
    let dir = tree.resolve("chunks").unwrap();
    let last = tree.lookup(dir, b"99999999.raw").unwrap().unwrap();
    assert_eq!(tree.entry(dir, 99_999_999).unwrap().unwrap().ino, last);
    assert_eq!(tree.entry(dir, 100_000_000).unwrap(), None);
    let huge = tree.resolve("huge").unwrap();
    assert!(tree.lookup(huge, b"4000000000000000001.raw").unwrap().is_some());
    assert!(tree.resolve("after").unwrap() < last);
}

#[test]
fn running_out_of_inode_numbers_is_an_error() {
    let tree = tree(vec![numbered("a", 1 << 62), numbered("b", 1 << 62), numbered("c", u64::MAX)]);
    let dir = |name| tree.entry(tree.lookup(ROOT, name).unwrap().unwrap(), 0);
    assert!(dir(b"a").is_ok());
    assert!(matches!(dir(b"b").unwrap_err().kind(), Cause::TooLarge { .. }));
    assert!(matches!(dir(b"c").unwrap_err().kind(), Cause::TooLarge { .. }));
}

#[test]
fn a_number_past_the_last_is_not_a_file_of_the_next_directory() {
    let tree = tree(vec![numbered("a", 3), numbered("b", 3)]);
    let [last, next] = ["a/000002.raw", "b/000000.raw"].map(|path| tree.resolve(path).unwrap());
    assert_eq!(next.0, last.0 + 1);
    assert_eq!(tree.attr(next, &Plain).unwrap().size, 1);
    assert!(tree.known_child(tree.parent(last), b"000003.raw").is_none());
}

/// Three files, of a format that tells of one more.
struct TooMany;

impl IndexedDir for TooMany {
    fn count(&self) -> u64 {
        3
    }

    fn suffix(&self) -> &'static str {
        ""
    }

    fn next(&self, index: u64) -> Result<Option<u64>> {
        Ok(Some(index))
    }

    fn file(&self, _: u64) -> Result<File> {
        Ok(bytes("x"))
    }
}

#[test]
fn a_directory_ends_after_as_many_files_as_it_has() {
    let tree = tree(vec![Entry::own("many", Node::IndexedDir(Arc::new(TooMany)))]);
    assert_eq!(walk(&tree, ROOT, "")[1..], ["many/", "many/000000", "many/000001", "many/000002"]);
    assert_eq!(tree.lookup(tree.resolve("many").unwrap(), b"000003").unwrap(), None);
}
