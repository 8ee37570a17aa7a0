//! Names: escaped, nested, numbered after a collision; and paths.

use proptest::prelude::*;

use super::first_listing::Broken;
use super::*;
use crate::format::Directory;

#[test]
fn names_of_a_directory_follow_the_contract() {
    let rows: [(Vec<Entry>, &[&str]); 15] = [
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
        (vec![nested("a", ""), nested("a/b", ""), nested("a/c", "")], &["a", "a~2/", "a~2/b", "a~2/c"]),
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

/// A directory with a name of 301 components, of an entry that is made again or not, or with such a directory.
#[derive(Clone, Copy)]
enum Deep {
    Kept,
    MadeAgain,
    Below,
}

impl Directory for Deep {
    fn entries(&self) -> Result<Vec<Entry>> {
        let deep = nested(&"a/".repeat(300), ".raw");
        Ok(match self {
            Self::Kept => vec![deep],
            Self::MadeAgain => vec![Entry { item: Some(0), ..deep }],
            Self::Below => vec![Entry::own("below", Node::LazyDir(0))],
        })
    }

    fn item(&self, _: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.entries()?.into_iter().try_for_each(each)
    }

    fn dir(&self, _: u64) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(Self::Kept))
    }
}

#[test]
fn no_entry_is_below_more_than_256_directories_however_they_are_made() {
    for deep in [Deep::Kept, Deep::MadeAgain, Deep::Below] {
        let all = paths(vec![Entry::own("all", Node::Dir(Arc::new(deep)))]);
        assert_eq!(all.last().unwrap().matches('/').count(), 256);
    }
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
    let dangling = super::tree(vec![Entry::own("x", Node::Link("y".into()))]);
    assert_eq!(dangling.file(dangling.resolve("x").unwrap()).unwrap_err().errno(), libc::ENOENT);
    let circle = super::tree(vec![Entry::own("x", Node::Link("x".into()))]);
    assert_eq!(circle.file(circle.resolve("x").unwrap()).unwrap_err().errno(), libc::ELOOP);
}

#[test]
fn a_typed_raw_file_has_an_npy_of_its_first_elements() {
    let t = tree(vec![typed("a", 10, 2), typed("short", 7, 2), Entry::own("other.bin", bytes("x"))]);
    assert_eq!(walk(&t, ROOT, ""), ["info.json", "a.raw", "a.npy", "short.raw", "other.bin"]);
    let names = t.names(ROOT).unwrap().unwrap();
    assert_eq!([0, 1, 2, 3, 9].map(|position| names.is_array(position)), [false, false, true, false, false]);
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
    for ino in [0, 99, u64::MAX].map(Ino) {
        assert_eq!(tree.attr(ino, &Plain).unwrap_err().errno(), libc::ENOENT);
    }
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

#[test]
fn a_link_through_a_file_leads_nowhere_and_one_through_a_broken_directory_says_why() {
    let link = |name, to: &str| Entry::own(name, Node::Link(to.into()));
    let bad = Entry::own("bad", Node::Dir(Arc::new(Broken::default())));
    let tree = tree(vec![file("plain", ""), bad, link("a", "plain/x"), link("b", "bad/x")]);
    let follow = |name: &str| tree.follow(tree.resolve(name).unwrap()).unwrap_err().to_string();
    assert_eq!(follow("a"), "no such entry (link)");
    assert_eq!(follow("b"), "broken on purpose (table, at byte 0x7)");
}

#[test]
fn an_npy_file_is_not_the_part_of_a_larger_content_that_its_raw_file_is() {
    let array = File::new(Content::bytes(noise(8))).typed(Some(array(2))).part_of(Content::Zeros(8));
    let tree = tree(vec![Entry::own("a.raw", array)]);
    let is_part = |name: &str| tree.file(tree.resolve(name).unwrap()).unwrap().file.part_of.is_some();
    assert_eq!(["a.raw", "a.npy"].map(is_part), [true, false]);
}

#[test]
fn a_header_beside_a_principal_array_names_the_file_that_ends_with_its_elements() {
    for (bytes, elements) in [(8, "encoding: raw\ndata file: a.raw\n"), (10, "byte skip: -1\ndata file: a.npy\n")] {
        let array = File::new(Content::bytes(noise(bytes))).typed(Some(array(2))).principal();
        let tree = tree(vec![Entry::own("a.raw", array)]);
        let want = ["info.json", "a.raw", "a.npy", "a.nhdr", "a.mhd", "preview.png"];
        assert_eq!(walk(&tree, ROOT, ""), want);
        let header = String::from_utf8(read(&tree, "a.nhdr")).unwrap();
        assert!(header.ends_with(elements), "{header}");
    }
}
