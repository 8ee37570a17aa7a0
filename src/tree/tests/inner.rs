//! Containers inside containers: opened when they are listed, and dropped if they are some of many.

use std::sync::atomic::{AtomicBool, Ordering};

use super::numbered::numbered;
use super::*;
use crate::format::{Directory, Enclosed};

/// A container with a file and a directory.
struct Inner {
    is_open: AtomicBool,
    decodes: bool,
}

impl Inner {
    fn new(decodes: bool) -> Arc<Self> {
        Arc::new(Self { is_open: AtomicBool::new(false), decodes })
    }

    fn container() -> Arc<dyn Container> {
        let sub = Node::dir(Attrs::new(), vec![file("g", "")]);
        Arc::new(Computed(vec![file("f", ""), Entry::own("sub", sub)]))
    }
}

impl Enclosed for Inner {
    fn open(&self) -> Result<Arc<dyn Container>> {
        self.is_open.store(true, Ordering::Relaxed);
        Ok(Self::container())
    }

    fn known(&self) -> Option<Arc<dyn Container>> {
        self.is_open.load(Ordering::Relaxed).then(Self::container)
    }

    fn lists_by_decoding(&self) -> bool {
        self.decodes
    }
}

/// An archive with one member, which is a container.
struct Archive(Arc<Inner>);

impl Directory for Archive {
    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(vec![Entry::own("inner", Node::LazyDir(0))])
    }

    fn dir(&self, _: u64) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }

    fn container(&self) -> Option<Arc<dyn Enclosed>> {
        Some(Arc::clone(&self.0) as Arc<dyn Enclosed>)
    }
}

#[test]
fn a_container_inside_another_one_is_opened_once_it_is_listed() {
    for (is_member, decodes, nlink) in [(false, false, 3), (false, true, 1), (true, false, 1), (true, true, 1)] {
        let inner = Inner::new(decodes);
        let (path, node) =
            if is_member { ("x/inner", Node::Dir(Arc::new(Archive(inner)))) } else { ("x", Node::Container(inner)) };
        let tree = tree(vec![Entry::own("x", node), numbered("a", 1), numbered("b", 1)]);
        let ino = tree.resolve(path).unwrap();
        assert!(tree.xattrs(ino).unwrap().is_empty(), "not open");
        // The number of subdirectories is not worth opening many, nor decoding one.
        assert_eq!((tree.cheap_attr(ino).unwrap().nlink, tree.is_visited(ino)), (nlink, nlink == 3), "{path}");
        let names: Vec<_> = tree.entries(ino).map(|entry| entry.unwrap().name).collect();
        assert_eq!((names.join(" "), tree.cheap_attr(ino).unwrap().nlink), ("info.json f sub".to_owned(), 3));
        assert!(tree.xattrs(ino).unwrap().contains(&("user.fzmfs.format".into(), "made".into())));
        // One of many does not stay in memory.
        tree.kept().small_limit = 0;
        for other in ["a", "b"] {
            tree.open_dir(tree.resolve(other).unwrap()).unwrap();
        }
        assert_eq!(tree.known_dir(ino).is_none(), is_member);
        assert_eq!(read(&tree, &format!("{path}/sub/g")), b"x");
    }
}

#[test]
fn the_entries_of_an_inner_root_are_those_that_it_passes_on() {
    let root = crate::tree::root::InnerRoot::new(Inner::new(false), &Account::new(1 << 20, 0));
    let stems = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.stem).collect::<Vec<_>>();
    let passed = stems(crate::format::collected(&root).unwrap());
    assert_eq!((stems(root.entries().unwrap()), passed.len()), (passed, 3));
}
