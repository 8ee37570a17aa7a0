//! Attributes, sizes and open files: known from memory, or determined once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::numbered::numbered;
use super::*;
use crate::bytes::FileOffset;
use crate::format::FileExtent;
use crate::format::testing::Memory;
use crate::view::Effort;

#[test]
fn info_json_is_what_the_container_says() {
    let text = String::from_utf8(read(&tree(vec![]), "info.json")).unwrap();
    assert!(text.starts_with("{\n  \"format\": \"made\",\n  \"format_version\": \"1\""), "{text}");
    let root = tree(vec![]).xattrs(ROOT).unwrap();
    assert!(root.contains(&("user.fzmfs.format".into(), "made".into())));
}

#[test]
fn unknown_sizes_are_determined_once_and_not_by_listing() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let make = move |_: &dyn Fetch| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(vec![7; 1234])
    };
    let made = Content::Computed { len: None, make: Arc::new(make) };
    let (blob, _) = Memory { known: false, ..Memory::new(noise(99), 10) }.blob();
    let content = Content::Join(Arc::from([Content::Blob(blob), Content::Zeros(1)]));
    let tree =
        tree(vec![Entry::own("made.raw", File::new(made)), Entry::own("blob.raw", File::new(content).stored(513))]);
    let list: Vec<DirEntry> = tree.entries(ROOT).map(Result::unwrap).collect();
    assert_eq!(list.len(), 3);
    assert_eq!(tree.cheap_attr(list[1].ino), None);
    assert_eq!(tree.cheap_attr(list[2].ino), None);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let effort = |i: usize| tree.file(list[i].ino).unwrap().effort().unwrap();
    assert!(matches!((effort(0), effort(1), effort(2)), (Effort::Structure, Effort::Compute, Effort::Compute)));
    assert_eq!((tree.known_attr(list[1].ino), tree.known_attr(list[2].ino)), (None, None));
    for _ in 0..2 {
        assert_eq!(tree.attr(list[1].ino, &Plain).unwrap().size, 1234);
        let attr = tree.attr(list[2].ino, &Plain).unwrap();
        assert_eq!((attr.size, attr.blocks), (100, 2));
    }
    assert_eq!(tree.cheap_attr(list[1].ino).unwrap().size, 1234);
    assert_eq!(tree.known_attr(list[1].ino).unwrap().size, 1234);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn only_visited_directories_and_known_sizes_are_answered_from_memory() {
    let sub = Node::dir(Attrs::new(), vec![file("f", ".raw")]);
    let tree = tree(vec![Entry::own("sub", sub), numbered("many", 3), Entry::own("link", Node::Link("sub".into()))]);
    assert!(
        tree.known_child(ROOT, b"sub").is_none() && tree.known_dir(ROOT).is_none() && tree.known_attr(ROOT).is_none()
    );
    let [sub, many, link] = ["sub", "many", "link"].map(|name| tree.resolve(name).unwrap());
    assert!(matches!(tree.known_child(ROOT, b"sub"), Some(Ok(Some(ino))) if ino == sub));
    assert!(matches!(tree.known_child(ROOT, b"none"), Some(Ok(None))));
    assert!(tree.known_attr(ROOT).is_some() && tree.known_attr(link).is_some());
    assert!(!tree.is_visited(sub) && tree.known_attr(sub).is_none() && tree.known_child(sub, b"f.raw").is_none());
    let inner = tree.resolve("sub/f.raw").unwrap();
    assert!(tree.is_visited(sub) && tree.known_dir(sub).is_some() && tree.known_attr(inner).is_none());
    // The format creates a numbered file on every access, except for its attributes.
    let zero = tree.resolve("many/000000.raw").unwrap();
    assert!(tree.is_visited(many) && tree.known_dir(many).is_none() && tree.known_child(many, b"000000.raw").is_none());
    for ino in [sub, inner, zero] {
        let attr = tree.attr(ino, &Plain).unwrap();
        assert_eq!(tree.known_attr(ino), Some(attr));
    }
    let open = tree.file(inner).unwrap();
    assert!(tree.known_file(inner).is_none());
    open.view(&Plain).unwrap();
    assert!(Arc::ptr_eq(&tree.known_file(inner).unwrap(), &open));
}

#[test]
fn stored_files_have_an_offset_attribute_and_open_files_are_shared() {
    let source = Source::from_bytes(b"0123456789".to_vec());
    let stored = FileExtent { source, at: FileOffset(3), len: 4, gate: None };
    let entry = Entry::own("x.bin", File::new(Content::FileExtent(stored)).stored(4).attr("codec", "none"));
    let tree = tree(vec![entry]);
    let ino = tree.resolve("x.bin").unwrap();
    let xattrs = tree.xattrs(ino).unwrap();
    let want = [("codec", "none"), ("offset", "3"), ("stored_size", "4"), ("verified", "no")];
    assert_eq!(xattrs, want.map(|(name, value)| (format!("user.fzmfs.{name}"), value.to_owned())));
    assert_eq!(read(&tree, "x.bin"), b"3456");
    let first = tree.file(ino).unwrap();
    assert!(Arc::ptr_eq(&first, &tree.file(ino).unwrap()));
    assert!(Arc::ptr_eq(&first.view(&Plain).unwrap(), &tree.file(ino).unwrap().view(&Plain).unwrap()));
    drop(first);
    assert_eq!(tree.file(ino).unwrap().ino, ino);
}

#[test]
fn the_bytes_in_the_container_are_an_attribute_if_there_are_any() {
    let xattrs = |stored| {
        let tree = tree(vec![Entry::own("x", File::new(Content::Zeros(1)).stored(stored))]);
        let all = tree.xattrs(tree.resolve("x").unwrap()).unwrap();
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(xattrs(7), ["user.fzmfs.stored_size=7", "user.fzmfs.verified=no"]);
    assert_eq!(xattrs(0), ["user.fzmfs.verified=no"]);
}

#[test]
fn a_size_is_kept_beside_its_listing_only_if_that_may_be_dropped() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let make = Arc::new(move |_: &dyn Fetch| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(vec![7; 5])
    });
    let made = File::new(Content::Computed { len: None, make });
    let dir = |file: &File| Node::dir(Attrs::new(), vec![Entry::own("made", file.clone())]);
    let tree =
        tree(vec![Entry::own("small", dir(&made)), Entry::own("made", made), numbered("a", 1), numbered("b", 1)]);
    // The root has directories, so that it is not made again.
    for (path, is_beside) in [("made", false), ("small/made", true)] {
        let ino = tree.resolve(path).unwrap();
        assert_eq!((tree.attr(ino, &Plain).unwrap().size, tree.has_size(ino)), (5, is_beside), "{path}");
    }
    let small = tree.resolve("small/made").unwrap();
    tree.kept().small_limit = 0;
    for dir in ["a", "b"] {
        tree.open_dir(tree.resolve(dir).unwrap()).unwrap();
    }
    assert!(tree.known_dir(tree.parent(small)).is_none(), "dropped");
    assert_eq!((tree.attr(small, &Plain).unwrap().size, asked.load(Ordering::Relaxed)), (5, 2));
}

#[test]
fn closed_files_are_forgotten_once_their_table_is_full_and_open_ones_are_not() {
    let tree = tree((0..40).map(|n| file(&format!("f{n}"), "")).collect());
    let open = |n: u64| tree.file(tree.resolve(&format!("f{n}")).unwrap()).unwrap();
    let held = open(0);
    for n in 1..40 {
        let before = tree.open.lock().unwrap();
        let want = if before.len() == before.capacity() { 2 } else { before.len() + 1 };
        drop(before);
        drop(open(n));
        assert_eq!(tree.open.lock().unwrap().len(), want, "{n}");
    }
    assert!(Arc::ptr_eq(&open(0), &held));
}
