//! Prepared entries are answered from memory, and no more is prepared than a walk in order needs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::listed_again::Again;
use super::numbered::numbered;
use super::*;
use crate::format::{Directory, Subdirs};

/// Directories `00`, `01`, ... that are made on access: as many as the first number says, and in each of them those of
/// the next numbers; and a file.
#[derive(Clone, Copy)]
struct Made(&'static [u64], Subdirs);

impl Directory for Made {
    fn entries(&self) -> Result<Vec<Entry>> {
        let count = self.0.first().copied().unwrap_or(0);
        let dirs = (0..count).map(|n| Entry::named(format!("{n:02}"), "", Node::LazyDir(n)));
        Ok(dirs.chain([file("f", ".raw")]).collect())
    }

    fn subdirs(&self) -> Subdirs {
        self.1
    }

    fn dir(&self, _: u64) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(Self(self.0.get(1..).unwrap_or_default(), self.1)))
    }
}

fn open(tree: &Tree, path: &str) -> (Ino, OpenDir) {
    let dir = tree.resolve(path).unwrap();
    (dir, tree.open_dir(dir).unwrap())
}

#[test]
fn directories_and_those_below_are_answered_from_memory_once_prepared() {
    let names = (0..100).map(|n| format!("g{n:02}/a/x")).collect();
    let again = Arc::new(Again { names, made: AtomicU64::new(0) });
    let tree = tree(vec![Entry::own("all", Node::Dir(again.clone()))]);
    let (all, open) = open(&tree, "all");
    let group = tree.lookup(all, b"g07").unwrap().unwrap();
    assert_eq!((tree.known_entry_attr(&open, group), tree.known_attr(group)), (None, None));
    let (_, at) = tree.position(group).unwrap();
    assert_eq!(tree.prepare(&open, at).unwrap(), Some(at + 1));
    let made = again.made.load(Ordering::Relaxed);
    let attr = tree.known_attr(group).unwrap();
    assert_eq!((tree.known_entry_attr(&open, group), attr.nlink), (Some(KnownAttr::All(attr)), 3));
    let mut names = Vec::new();
    for dir in ["all/g07", "all/g07/a"] {
        let dir = tree.resolve(dir).unwrap();
        let inside = tree.known_dir(dir).unwrap();
        for index in 0.. {
            let Some(entry) = inside.entry(index).unwrap() else { break };
            assert!(matches!(tree.known_child(dir, entry.name.as_bytes()), Some(Ok(Some(ino))) if ino == entry.ino));
            // A directory that is kept for ever is not listed ahead.
            let known = tree.known_entry_attr(&inside, entry.ino).is_some();
            assert_eq!(known, entry.name != "x", "{entry:?}");
            names.push(entry.name);
        }
    }
    assert_eq!(names, ["a", "x.raw", "x.npy", "x.json", "x"]);
    assert_eq!(again.made.load(Ordering::Relaxed), made, "from memory");
    let next = tree.lookup(all, b"g08").unwrap().unwrap();
    assert!(tree.known_attr(next).is_none() && !tree.is_visited(next));
    assert_eq!(tree.prepare(&open, 1000).unwrap(), None);
}

#[test]
fn large_directories_and_those_that_are_kept_for_ever_are_not_listed_ahead() {
    let names = (0..17).map(|n| format!("large/{n:02}")).chain((0..16).map(|n| format!("small/{n:02}"))).collect();
    let again = Arc::new(Again { names, made: AtomicU64::new(0) });
    let sub = Node::dir(Attrs::new(), vec![file("f", ".raw")]);
    let tree = tree(vec![Entry::own("all", Node::Dir(again)), Entry::own("sub", sub)]);
    for (parent, name, listed) in [("", "sub", false), ("all", "large", false), ("all", "small", true)] {
        let (dir, open) = open(&tree, parent);
        let ino = tree.lookup(dir, name.as_bytes()).unwrap().unwrap();
        tree.prepare(&open, tree.position(ino).unwrap().1).unwrap();
        assert_eq!(tree.is_visited(ino), listed, "{name}");
    }
}

#[test]
fn numbered_files_are_found_and_opened_in_memory_once_prepared() {
    let tree = tree(vec![numbered("many", 10)]);
    let (many, open) = open(&tree, "many");
    // The one at position 1 is missing.
    assert_eq!(tree.prepare(&open, 1).unwrap(), Some(3));
    let two = match tree.known_child(many, b"000002.raw") {
        Some(Ok(Some(two))) => two,
        other => panic!("{other:?}"),
    };
    assert_eq!(tree.known_attr(two).unwrap().size, 1);
    for name in ["000001.raw", "000003.raw", "2.raw", "none", "000010.raw"] {
        assert!(tree.known_child(many, name.as_bytes()).is_none(), "{name}");
    }
    let (next, file) = tree.prepare_file(&open, 4, &Plain).unwrap();
    assert_eq!(next, Some(6));
    let five = tree.resolve("many/000005.raw").unwrap();
    assert_eq!(tree.known_attr(five).unwrap().size, 1);
    assert!(Arc::ptr_eq(&tree.known_file(five).unwrap(), &file.unwrap()));
    let file = tree.prepare_file(&open, 2, &Plain).unwrap().1.unwrap();
    assert!(Arc::ptr_eq(&tree.known_file(two).unwrap(), &file));
    drop(file);
    assert!(tree.known_file(two).is_none());
}

#[test]
fn a_file_whose_length_needs_decoding_is_not_prepared() {
    let make = Arc::new(|_: &dyn Fetch| -> Result<Vec<u8>> { panic!("not to be computed") });
    let tree = tree(vec![Entry::own("made.raw", File::new(Content::Computed { len: None, make }))]);
    let (_, open) = open(&tree, "");
    assert_eq!(tree.prepare(&open, 1).unwrap(), Some(2));
    assert!(matches!(tree.prepare_file(&open, 1, &Plain), Ok((Some(2), None))));
    let ino = tree.resolve("made.raw").unwrap();
    assert!(tree.known_file(ino).is_none());
    assert_eq!((tree.known_entry_attr(&open, ino), tree.entry_attr(&open, ino)), (None, KnownAttr::NoSize));
}

#[test]
fn of_directories_that_are_made_on_access_eight_are_listed_ahead_if_that_costs_little() {
    for (subdirs, listed) in [(Subdirs::Listed, 8), (Subdirs::Unknown, 0), (Subdirs::Known(10), 0)] {
        let tree = tree(vec![Entry::own("all", Node::Dir(Arc::new(Made(&[1, 10], subdirs))))]);
        let (_, open) = open(&tree, "all");
        let first = open.entry(0).unwrap().unwrap().ino;
        assert_eq!(tree.prepare(&open, 0).unwrap(), Some(1));
        let below: Vec<Ino> = match tree.known_dir(first) {
            Some(dir) => (0..10).map(|index| dir.entry(index).unwrap().unwrap().ino).collect(),
            None => Vec::new(),
        };
        let visited = [first].iter().chain(&below).filter(|&&dir| tree.is_visited(dir)).count();
        assert_eq!(visited, listed, "{subdirs:?}");
    }
}

#[test]
fn a_file_of_a_mebibyte_is_opened_ahead_and_a_longer_one_is_not() {
    let zeros = |name, len| Entry::own(name, File::new(Content::Zeros(len)));
    let tree = tree(vec![zeros("a", 1 << 20), zeros("b", (1 << 20) + 1)]);
    let (_, open) = open(&tree, "");
    for (index, is_opened) in [(1, true), (2, false)] {
        let (next, file) = tree.prepare_file(&open, index, &Plain).unwrap();
        assert_eq!((next, file.is_some()), (Some(index + 1), is_opened));
        let ino = open.entry(index).unwrap().unwrap().ino;
        assert!(tree.known_attr(ino).is_some_and(|attr| attr.size >= 1 << 20), "its size is known");
    }
}
