//! Names, collisions, inode numbers and sizes in synthetic trees.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::bytes::FileOffset;
use crate::format::testing::{Memory, Plain, noise};
use crate::format::{
    Array, Attrs, Check, Content, Directory, Entry, Fetch, File, FileExtent, IndexedDir, Info, LazyFile, Node,
};
use crate::source::Source;
use crate::view::Effort;

/// A container with the entries that a test gives it.
struct Computed(Vec<Entry>);

impl Container for Computed {
    fn info(&self) -> Info {
        Info {
            format: "made",
            format_version: "1".into(),
            file_size: 5,
            decoded_size: None,
            checksums: Value::Null,
            details: Map::new(),
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.0.clone())
    }

    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![Source::from_bytes(b"bytes".to_vec())]
    }
}

fn tree(entries: Vec<Entry>) -> Tree {
    Tree::new(Arc::new(Computed(entries)), OsStr::new("x.txt.zst")).unwrap()
}

fn bytes(text: &'static str) -> File {
    File::new(Content::bytes(text.as_bytes()))
}

fn file(stem: &str, suffix: &'static str) -> Entry {
    Entry::named(stem, suffix, bytes("x"))
}

fn nested(stem: &str, suffix: &'static str) -> Entry {
    Entry { nested: true, ..file(stem, suffix) }
}

fn array(len: u64) -> Array {
    Array { descr: "'<f4'".into(), itemsize: 4, shape: vec![len] }
}

fn typed(stem: &str, bytes: usize, len: u64) -> Entry {
    Entry::named(stem, ".raw", File::new(Content::bytes(noise(bytes))).typed(Some(array(len))))
}

/// All paths below `dir`; directories end with a slash.
fn walk(tree: &Tree, dir: Ino, prefix: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in tree.entries(dir) {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.name);
        let attr = tree.cheap_attr(entry.ino).unwrap();
        assert_eq!((attr.ino, attr.kind), (entry.ino, entry.kind), "{path}");
        assert_eq!(tree.lookup(dir, entry.name.as_bytes()).unwrap(), Some(entry.ino), "{path}");
        assert_eq!(tree.parent(entry.ino), dir, "{path}");
        if entry.kind == Kind::Dir {
            paths.push(format!("{path}/"));
            paths.extend(walk(tree, entry.ino, &format!("{path}/")));
        } else {
            paths.push(path);
        }
    }
    paths
}

fn paths(entries: Vec<Entry>) -> Vec<String> {
    let tree = tree(entries);
    let all = walk(&tree, ROOT, "");
    assert_eq!(all[0], "info.json");
    all[1..].to_vec()
}

fn read(tree: &Tree, path: &str) -> Vec<u8> {
    let view = tree.file(tree.resolve(path).unwrap()).unwrap().view(&Plain).unwrap();
    view.get(0..view.len(), &Plain).unwrap().to_vec()
}

#[test]
fn names_of_a_directory_follow_the_contract() {
    let rows: [(Vec<Entry>, &[&str]); 14] = [
        (vec![file("a", ".raw"), file("b", ".json"), file("c", "")], &["a.raw", "b.json", "c"]),
        (vec![file("a/b", ".raw")], &["a%2Fb.raw"]),
        (vec![file("", ".raw"), file(".", ""), file("..", "")], &["%.raw", "%2E", "%2E%2E"]),
        // Collisions: the later entry gets a number, before its suffix.
        (vec![file("a", ".raw"), file("a", ".raw"), file("a", ".raw")], &["a.raw", "a~2.raw", "a~3.raw"]),
        (vec![file("a~2", ".raw"), file("a", ".raw"), file("a", ".raw")], &["a~2.raw", "a.raw", "a~3.raw"]),
        (vec![file("a", ".raw"), file("a", ".raw"), file("a~2", ".raw")], &["a.raw", "a~2.raw", "a~2~2.raw"]),
        (vec![file("info", ".json")], &["info~2.json"]),
        // Entries that belong together get the same number.
        (
            vec![file("a", ".raw"), file("a", ".json"), file("a", ".raw"), file("a", ".json")],
            &["a.raw", "a.json", "a~2.raw", "a~2.json"],
        ),
        (vec![file("a", ".raw"), typed("a", 8, 2)], &["a.raw", "a~2.raw", "a~2.npy"]),
        (
            vec![file("a", ".raw"), file("b", ""), file("a", ".json"), file("c", ""), file("a", ".json")],
            &["a.raw", "b", "a.json", "c", "a~2.json"],
        ),
        // Slashes in nested names create directories, shared by equal components.
        (
            vec![nested("w/q", ".raw"), nested("b", ".raw"), nested("w/k", ".raw"), nested("w/k", ".json")],
            &["w/", "w/q.raw", "w/k.raw", "w/k.json", "b.raw"],
        ),
        (
            vec![nested("/a", ".raw"), nested("a//b", ".raw"), nested("a/", ".raw"), nested("a/../b", ".raw")],
            &["%/", "%/a.raw", "a/", "a/%/", "a/%/b.raw", "a/%.raw", "a/%2E%2E/", "a/%2E%2E/b.raw"],
        ),
        // A file and a directory with the same name.
        (vec![nested("a", ""), nested("a/b", "")], &["a", "a~2/", "a~2/b"]),
        (vec![nested("a/b", ""), nested("a", ""), nested("a/c", "")], &["a/", "a/b", "a/c", "a~2"]),
    ];
    for (entries, want) in rows {
        assert_eq!(paths(entries), want);
    }
}

#[test]
fn a_name_as_deep_as_its_bytes_allow_ends_in_escaped_slashes() {
    let all = paths(vec![nested(&"a/".repeat(5000), ".raw")]);
    assert_eq!(all.len(), 257);
    assert!(all[256].contains("a%2Fa%2F"));
}

#[test]
fn many_entries_of_one_name_are_numbered_without_searching_again() {
    let tree = tree((0..50_000).map(|_| file("same", ".raw")).collect());
    assert!(tree.lookup(ROOT, b"same~50000.raw").unwrap().is_some());
    assert!(tree.lookup(ROOT, b"same~50001.raw").unwrap().is_none());
}

#[test]
fn a_link_named_after_the_container_points_to_its_data() {
    let entries = || vec![Entry::own("data.raw", bytes("data")), Entry::stem_link("data.raw")];
    let tree = tree(entries());
    assert_eq!(walk(&tree, ROOT, ""), ["info.json", "data.raw", "x.txt"]);
    let link = tree.resolve("x.txt").unwrap();
    assert_eq!(tree.link(link).unwrap(), "data.raw");
    assert_eq!(tree.cheap_attr(link).unwrap().size, 8);
    assert_eq!(read(&tree, "x.txt"), b"data");
    assert_eq!(tree.follow(link).unwrap(), tree.resolve("data.raw").unwrap());
    for name in ["data.raw.zst", "info.json.zst", "noextension", ".zst"] {
        let tree = Tree::new(Arc::new(Computed(entries())), OsStr::new(name)).unwrap();
        assert_eq!(walk(&tree, ROOT, ""), ["info.json", "data.raw"], "{name}");
    }
    let dangling = super::tests::tree(vec![Entry::own("x", Node::Link("y".into()))]);
    assert_eq!(dangling.file(dangling.resolve("x").unwrap()).unwrap_err().errno(), libc::ENOENT);
    let circle = super::tests::tree(vec![Entry::own("x", Node::Link("x".into()))]);
    assert_eq!(circle.file(circle.resolve("x").unwrap()).unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn a_typed_raw_file_has_an_npy_of_its_first_elements() {
    let t = tree(vec![typed("a", 10, 2), typed("short", 7, 2), Entry::own("other.bin", bytes("x"))]);
    assert_eq!(walk(&t, ROOT, ""), ["info.json", "a.raw", "a.npy", "short.raw", "other.bin"]);
    let npy = read(&t, "a.npy");
    assert_eq!(npy.len(), 128 + 8);
    assert_eq!(npy[128..], noise(10)[..8]);
    let attr = t.attr(t.resolve("a.npy").unwrap(), &Plain).unwrap();
    assert_eq!((attr.size, attr.kind), (136, Kind::File));
    let xattrs = t.xattrs(attr.ino).unwrap();
    let has = |name: &str, value: &str| xattrs.contains(&(name.to_owned(), value.to_owned()));
    assert!(has("user.fzmfs.dtype", "<f4") && has("user.fzmfs.shape", "2"), "{xattrs:?}");
    // A format that provides its own .npy keeps it.
    let own = Entry::named("a", ".npy", bytes("own"));
    let t = tree(vec![typed("a", 8, 2), own]);
    assert_eq!(walk(&t, ROOT, ""), ["info.json", "a.raw", "a.npy"]);
    assert_eq!(read(&t, "a.npy"), b"own");
}

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

fn numbered(name: &'static str, count: u64) -> Entry {
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
    let gap = tree.lookup(dir, b"000000.raw").unwrap().unwrap() + 1;
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
fn only_visited_directories_and_known_sizes_are_answered_from_memory() {
    let sub = Node::dir(Attrs::new(), vec![file("f", ".raw")]);
    let tree = tree(vec![Entry::own("sub", sub), numbered("many", 3), Entry::own("link", Node::Link("sub".into()))]);
    assert!(tree.known_child(ROOT, b"sub").is_none() && !tree.is_known(ROOT) && tree.known_attr(ROOT).is_none());
    let [sub, many, link] = ["sub", "many", "link"].map(|name| tree.resolve(name).unwrap());
    assert!(matches!(tree.known_child(ROOT, b"sub"), Some(Ok(Some(ino))) if ino == sub));
    assert!(matches!(tree.known_child(ROOT, b"none"), Some(Ok(None))));
    assert!(tree.known_attr(ROOT).is_some() && tree.known_attr(link).is_some());
    assert!(!tree.is_visited(sub) && tree.known_attr(sub).is_none() && tree.known_child(sub, b"f.raw").is_none());
    let inner = tree.resolve("sub/f.raw").unwrap();
    assert!(tree.is_visited(sub) && tree.is_known(sub) && tree.known_attr(inner).is_none());
    // The format creates a numbered file on every access, except for its attributes.
    let zero = tree.resolve("many/000000.raw").unwrap();
    assert!(tree.is_visited(many) && !tree.is_known(many) && tree.known_child(many, b"000000.raw").is_none());
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
fn the_error_for_a_missing_name_lists_the_existing_ones() {
    let tree = tree(vec![Entry::own("buffers", Node::dir(Attrs::new(), vec![file("output", ".raw")]))]);
    let say = |path: &str| tree.resolve(path).unwrap_err().to_string();
    assert_eq!(
        say("buffers/outptu.raw"),
        "no such entry (buffers/outptu.raw: no outptu.raw in buffers, which contains output.raw)"
    );
    assert_eq!(say("x"), "no such entry (x: no x in the root, which contains info.json, buffers)");
    assert_eq!(say("info.json/x"), "no such entry (info.json/x: info.json is not a directory)");
    for path in ["", "/", ".", "buffers/..", "./buffers//../"] {
        assert_eq!(tree.resolve(path).unwrap(), ROOT, "{path}");
    }
    assert_eq!(tree.resolve("/buffers/output.raw").unwrap(), tree.resolve("buffers/./output.raw").unwrap());
    assert_eq!(tree.file(ROOT).unwrap_err().errno(), libc::EISDIR);
    assert_eq!(tree.lookup(tree.resolve("info.json").unwrap(), b"x").unwrap_err().errno(), libc::ENOTDIR);
    assert_eq!(tree.link(ROOT).unwrap_err().errno(), libc::EINVAL);
    for ino in [0, 99, u64::MAX] {
        assert_eq!(tree.attr(ino, &Plain).unwrap_err().errno(), libc::ENOENT);
    }
}

/// A directory that cannot be listed, and counts the attempts.
struct Broken(AtomicU64);

impl Directory for Broken {
    fn entries(&self) -> Result<Vec<Entry>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::corrupt("broken on purpose", "table").at(FileOffset(7)))
    }
}

#[test]
fn a_broken_directory_has_attributes_and_fails_to_list() {
    let tree = tree(vec![Entry::own("bad", Node::Dir(Arc::new(Broken(AtomicU64::new(0))))), file("good", "")]);
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

/// Tensors `group/000`, ...: files that are created on access, and a directory of two files for each.
struct Lazy {
    count: u64,
    /// Files created so far.
    files: AtomicU64,
    /// Times that a small directory was listed.
    listed: Arc<AtomicU64>,
}

struct Small(u64, Arc<AtomicU64>);

fn lazy(number: u64, len: u64) -> Node {
    Node::LazyFile(LazyFile { number, len: Some(len), stored: 5, array: Some(len) })
}

impl Directory for Small {
    fn entries(&self) -> Result<Vec<Entry>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let unknown = LazyFile { number: 1, len: None, stored: 0, array: None };
        Ok(vec![Entry::named("data", ".bin", lazy(0, 1)), Entry::named("data", ".json", Node::LazyFile(unknown))])
    }

    fn file(&self, number: u64) -> Result<File> {
        let make = Arc::new(|_: &dyn Fetch| Ok(b"text".to_vec()));
        let unknown = Content::Computed { len: None, make };
        Ok(File::new(if number == 0 { Content::Zeros(1) } else { unknown }).attr("codec", self.0))
    }
}

impl Directory for Lazy {
    fn entries(&self) -> Result<Vec<Entry>> {
        let each = |n: u64| {
            let name = |stem: String, suffix, node| Entry { nested: true, ..Entry::named(stem, suffix, node) };
            let dir = Node::Dir(Arc::new(Small(n, Arc::clone(&self.listed))));
            [name(format!("group/{n:03}"), ".raw", lazy(n, n)), name(format!("small/{n:03}"), "", dir)]
        };
        Ok((0..self.count).flat_map(each).collect())
    }

    fn file(&self, number: u64) -> Result<File> {
        self.files.fetch_add(1, Ordering::Relaxed);
        let array = Array { descr: "'|u1'".into(), itemsize: 1, shape: vec![number] };
        Ok(File::new(Content::Zeros(number)).typed(Some(array)).attr("codec", "none"))
    }
}

#[test]
fn lazy_files_are_created_on_access_and_not_to_list_them() {
    let lazy = Arc::new(Lazy { count: 10, files: AtomicU64::new(0), listed: Arc::default() });
    let tree = tree(vec![Entry::own("all", Node::Dir(lazy.clone()))]);
    let group = tree.resolve("all/group").unwrap();
    let names: Vec<String> = tree.entries(group).map(|entry| entry.unwrap().name).collect();
    assert_eq!(names[..3], ["000.raw", "000.npy", "001.raw"]);
    let seven = tree.resolve("all/group/007.raw").unwrap();
    let attr = tree.known_attr(seven).unwrap();
    assert_eq!((attr.size, attr.blocks, lazy.files.load(Ordering::Relaxed)), (7, 1, 0));
    // The size of an array file needs the header, once.
    let npy = tree.resolve("all/group/007.npy").unwrap();
    for _ in 0..2 {
        assert_eq!(tree.cheap_attr(npy).unwrap().size, 128 + 7);
    }
    assert_eq!(lazy.files.load(Ordering::Relaxed), 1);
    assert_eq!(read(&tree, "all/group/007.npy")[128..], [0; 7]);
    assert!(tree.xattrs(seven).unwrap().contains(&("user.fzmfs.codec".into(), "none".into())));
}

#[test]
fn small_directories_are_listed_again_when_needed_and_keep_their_inode_numbers_and_sizes() {
    let lazy = Arc::new(Lazy { count: 1000, files: AtomicU64::new(0), listed: Arc::default() });
    let tree = tree(vec![Entry::own("all", Node::Dir(lazy.clone()))]);
    tree.kept().small.limit = 100_000;
    let dirs: Vec<DirEntry> = tree.entries(tree.resolve("all/small").unwrap()).map(Result::unwrap).collect();
    let list = || -> Vec<DirEntry> {
        let all = dirs.iter().flat_map(|dir| tree.entries(dir.ino).map(Result::unwrap));
        all.collect()
    };
    let first = list();
    assert_eq!((first.len(), lazy.listed.load(Ordering::Relaxed)), (2000, 1000));
    // The first ones are not kept any more.
    assert!(!tree.is_known(dirs[0].ino) && tree.is_visited(dirs[0].ino) && tree.is_known(dirs[999].ino));
    let json = first[1].ino;
    assert_eq!(tree.attr(json, &Plain).unwrap().size, 4);
    assert_eq!(lazy.listed.load(Ordering::Relaxed), 1001);
    assert_eq!(list(), first);
    assert_eq!(lazy.listed.load(Ordering::Relaxed), 2000);
    let decoded = tree.known_attr(json).unwrap();
    assert_eq!((decoded.size, decoded.kind), (4, Kind::File));
    assert_eq!(tree.parent(json), dirs[0].ino);
    assert_eq!(read(&tree, "all/small/000/data.json"), b"text");
    assert_eq!(tree.lookup(dirs[0].ino, b"data.bin").unwrap(), Some(json - 1));
}

/// Tensors of the names `names`, each with three entries; can be made again one by one.
struct Again {
    names: Vec<String>,
    /// Items made again so far.
    made: AtomicU64,
}

impl Directory for Again {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        for number in 0..self.names.len() {
            self.item(number as u32, &mut |entry| {
                all.push(entry);
                Ok(())
            })?;
        }
        self.made.store(0, Ordering::Relaxed);
        Ok(all)
    }

    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let stem = &self.names[number as usize];
        let small = Node::dir(Attrs::new(), vec![file("part", ".bin")]);
        for (suffix, node) in [(".raw", lazy(number.into(), 4)), (".json", lazy(0, 1)), ("", small)] {
            each(Entry { nested: true, item: Some(number), ..Entry::named(stem.clone(), suffix, node) })?;
        }
        Ok(())
    }

    fn file(&self, number: u64) -> Result<File> {
        let array = Array { descr: "'|u1'".into(), itemsize: 1, shape: vec![4] };
        Ok(File::new(Content::Zeros(4)).typed(Some(array)).attr("codec", number))
    }
}

/// The same entries without item numbers.
struct Entries(Vec<Entry>, Arc<Again>);

impl Directory for Entries {
    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.0.clone())
    }

    fn file(&self, number: u64) -> Result<File> {
        self.1.file(number)
    }
}

#[test]
fn groups_are_listed_again_when_needed_with_the_same_names_and_inode_numbers() {
    let names = (0..500).flat_map(|n| [format!("model/layers/{n:03}/mlp/weight"), format!("model/layers/{}/a", n / 2)]);
    let more = ["model", "model/layers", "x", "model/layers/000/mlp", "/", "model//a", "model/layers/001/mlp/weight"];
    let names: Vec<String> = names.chain(more.map(str::to_owned)).collect();
    // The same entries without item numbers are kept for ever.
    let again = Arc::new(Again { names, made: AtomicU64::new(0) });
    let plain: Vec<_> = again.entries().unwrap().into_iter().map(|entry| Entry { item: None, ..entry }).collect();
    let kept = tree(vec![Entry::own("all", Node::Dir(Arc::new(Entries(plain, again.clone()))))]);
    let tree = tree(vec![Entry::own("all", Node::Dir(again.clone()))]);
    let want = walk(&kept, ROOT, "");
    tree.kept().small.limit = 50_000;
    let list = || {
        let (mut all, mut left) = (Vec::new(), vec![ROOT]);
        while let Some(dir) = left.pop() {
            for entry in tree.entries(dir).map(Result::unwrap) {
                if entry.kind == Kind::Dir {
                    left.push(entry.ino);
                }
                all.push((dir, entry));
            }
        }
        all
    };
    let first = list();
    assert_eq!(first.len(), want.len());
    let dir = tree.resolve("all/model/layers/007/mlp").unwrap();
    let weight = tree.resolve("all/model/layers/007/mlp/weight.npy").unwrap();
    assert_eq!(list(), first);
    assert!(!tree.is_known(dir) && tree.is_visited(dir) && tree.known_attr(weight).is_none(), "evicted");
    assert_eq!((tree.parent(weight), tree.attr(weight, &crate::format::testing::Plain).unwrap().size), (dir, 128 + 4));
    assert_eq!(tree.resolve("all/model/layers/007/mlp/weight.npy").unwrap(), weight);
    let before = again.made.load(Ordering::Relaxed);
    assert_eq!(walk(&tree, ROOT, ""), want);
    assert!(again.made.load(Ordering::Relaxed) > before);
    assert_eq!(list(), first);
}

#[test]
fn inode_numbers_are_charged_to_the_account_and_listings_are_bounded() {
    let names = (0..200_000).map(|n| format!("{n}/x")).collect();
    let again = Arc::new(Again { names, made: AtomicU64::new(0) });
    let account = Account::new(100 << 20, 0);
    let entries = vec![Entry::own("all", Node::Dir(again))];
    let tree = Tree::charging(Arc::new(Computed(entries)), OsStr::new("x"), &account).unwrap();
    let all = tree.resolve("all").unwrap();
    let dirs = tree.entries(all).map(Result::unwrap);
    let listed = dirs.filter(|dir| tree.entry(dir.ino, 0).unwrap().is_some()).count();
    assert_eq!(listed, 200_000);
    // A slot for each directory, a range for each, a slot for each child of each; and the listing with their names.
    let used = account.memory().used();
    assert!((22 << 20..30 << 20).contains(&used), "{used}");
    let kept = tree.kept();
    assert!(kept.small.weight <= kept.small.limit, "{}", kept.small.weight);
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

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct("tests/suite/regressions/tree.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_names_make_a_tree_in_which_every_entry_is_found(
        names in prop::collection::vec(("[ab/.%~2]{0,6}", 0_usize..4, any::<bool>()), 0..30),
    ) {
        let suffixes = ["", ".raw", ".json", ".npy"];
        let entries: Vec<Entry> = names
            .iter()
            .map(|(stem, suffix, nested)| Entry { nested: *nested, ..file(stem, suffixes[*suffix]) })
            .collect();
        let count = entries.len();
        let all = paths(entries);
        prop_assert_eq!(all.iter().filter(|path| !path.ends_with('/')).count(), count);
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), all.len());
    }
}
