//! The first listing of a directory: once for all threads, and again after a failure.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::bytes::FileOffset;
use crate::format::Directory;

/// A directory that cannot be listed, and counts the attempts.
#[derive(Default)]
pub(super) struct Broken(AtomicU64);

impl Directory for Broken {
    fn entries(&self) -> Result<Vec<Entry>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::corrupt("broken on purpose", "table").at(FileOffset(7)))
    }
}

#[test]
fn a_broken_directory_has_attributes_and_fails_to_list() {
    let tree = tree(vec![Entry::own("bad", Node::Dir(Arc::new(Broken::default()))), file("good", "")]);
    let bad = tree.resolve("bad").unwrap();
    assert_eq!(tree.cheap_attr(bad).unwrap().nlink, 2);
    assert!(tree.entry(bad, 0).is_err());
    assert_eq!(tree.entries(bad).count(), 1);
    assert!(tree.resolve("good").is_ok());
}

#[test]
fn many_threads_list_a_directory_once() {
    struct Counted(Arc<AtomicU64>);
    impl Directory for Counted {
        fn entries(&self) -> Result<Vec<Entry>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok((0..1000).map(|i| file(&format!("f{i}"), ".raw")).collect())
        }
    }
    let count = Arc::new(AtomicU64::new(0));
    let tree = tree(vec![Entry::own("dir", Node::Dir(Arc::new(Counted(count.clone()))))]);
    let inodes: Vec<Ino> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| tree.resolve("dir/f500.raw").unwrap())).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(inodes.iter().all(|&ino| ino == inodes[0]));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_group_whose_first_listing_fails_is_listed_by_the_next_reader() {
    let nested = Entry { nested: true, ..file("group/x", ".raw") };
    let tree = tree(vec![nested]);
    let group = tree.resolve("group").unwrap();
    let free = std::mem::replace(&mut tree.ranges.write().unwrap().next, u64::MAX >> 1);
    for _ in 0..2 {
        assert!(matches!(tree.lookup(group, b"x.raw").unwrap_err().kind(), Cause::TooLarge { .. }));
    }
    tree.ranges.write().unwrap().next = free;
    assert!(tree.lookup(group, b"x.raw").unwrap().is_some());
}
