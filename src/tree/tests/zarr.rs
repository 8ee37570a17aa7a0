//! `data.zarr`: names, documents, and chunks by number, however many there are.

use serde_json::json;

use super::*;
use crate::format::about::Attributes;
use crate::format::{ArrayList, Arrays, NamedArray, Tiles};

/// A container with arrays, and attributes.
pub(super) struct WithArrays(pub(super) Arc<dyn Arrays>, pub(super) Attributes);

impl Container for WithArrays {
    fn info(&self) -> Info {
        let mut info = Computed(Vec::new()).info();
        info.details.insert("attributes".into(), self.1.clone().into());
        info
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(Some(Arc::clone(&self.0)))
    }

    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        Computed(Vec::new()).sources()
    }
}

/// A name, names of dimensions, `descr` and shape.
type Row<'a> = (&'a [u8], Option<&'a str>, &'a str, &'a [u64]);

fn tree_of(rows: &[Row<'_>]) -> Tree {
    let arrays = rows.iter().map(|&(name, dimensions, descr, shape)| {
        let array = Array { descr: descr.into(), itemsize: 1, shape: shape.to_vec() };
        let content = Content::Zeros(array.byte_len().unwrap());
        let names = dimensions.map(|names| names.split(' ').map(str::to_owned).collect());
        (name.to_vec(), names, File::new(content).typed(Some(array)))
    });
    let list = Arc::new(ArrayList::new(arrays.collect()));
    Tree::new(Arc::new(WithArrays(list, Attributes::new())), OsStr::new("x.zt")).unwrap()
}

pub(super) fn document(tree: &Tree, path: &str) -> Value {
    serde_json::from_slice(&read(tree, path)).unwrap()
}

/// All paths below `dir`; directories end with a slash. Sizes of documents are not known before they are made.
fn below(tree: &Tree, dir: Ino, prefix: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in tree.entries(dir).map(Result::unwrap) {
        let path = format!("{prefix}{}", entry.name);
        assert_eq!(tree.lookup(dir, entry.name.as_bytes()).unwrap(), Some(entry.ino), "{path}");
        assert_eq!(tree.parent(entry.ino), dir, "{path}");
        let attr = tree.attr(entry.ino, &Plain).unwrap();
        assert_eq!((attr.ino, attr.kind), (entry.ino, entry.kind), "{path}");
        if entry.kind == Kind::Dir {
            paths.extend(below(tree, entry.ino, &format!("{path}/")));
            paths.push(format!("{path}/"));
        } else {
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

pub(super) const U1: &str = "'|u1'";

#[test]
fn a_group_has_its_documents_and_those_of_all_below() {
    let tree = tree_of(&[
        (b"data", Some("y x"), U1, &[2, 3]),
        (b"buffers/codes", None, "'<f16'", &[7]),
        (b"pairs", None, "[('a', '<f4'), ('b', '<i2')]", &[1]),
        (b"buffers/more", None, U1, &[7]),
        (b"scalar", None, U1, &[]),
        (b"none", Some("y x"), U1, &[0, 3]),
    ]);
    let paths = below(&tree, tree.resolve("data.zarr").unwrap(), "");
    let want = [
        "buffers/",
        "buffers/more/",
        "buffers/more/c/",
        "buffers/more/c/0",
        "buffers/more/zarr.json",
        "buffers/zarr.json",
        "data/",
        "data/c/",
        "data/c/0/",
        "data/c/0/0",
        "data/zarr.json",
        "none/",
        "none/c/",
        "none/zarr.json",
        "pairs/",
        "pairs/c/",
        "pairs/c/0",
        "pairs/zarr.json",
        "scalar/",
        "scalar/c",
        "scalar/zarr.json",
        "zarr.json",
    ];
    assert_eq!(paths, want);

    let root = document(&tree, "data.zarr/zarr.json");
    let container = json!({ "format": "made", "format_version": "1", "file_size": 5, "modified": "0.000000000" });
    let left_out = json!({ "buffers/codes": "Zarr has no data type for <f16" });
    let pairs = document(&tree, "data.zarr/pairs/zarr.json");
    assert_eq!(pairs["data_type"]["name"], "struct");
    // zarr-python 3.1 would not open a group with it.
    let apart = json!({ "pairs": pairs["data_type"] });
    let attributes = json!({ "container": container, "not_consolidated": apart, "left_out": left_out });
    assert_eq!(root["attributes"], attributes);
    let all = root["consolidated_metadata"]["metadata"].as_object().unwrap();
    assert_eq!(all.keys().collect::<Vec<_>>(), ["data", "buffers", "scalar", "none", "buffers/more"]);
    for (path, said) in all.iter().filter(|(path, _)| *path != "buffers") {
        assert_eq!(*said, document(&tree, &format!("data.zarr/{path}/zarr.json")), "{path}");
    }
    let buffers = document(&tree, "data.zarr/buffers/zarr.json");
    assert_eq!(buffers["consolidated_metadata"]["metadata"], json!({ "more": all["buffers/more"] }));
    // The same name has another size: that array's dimensions are named by their sizes.
    assert_eq!(all["data"]["dimension_names"], json!(["y", "x"]));
    assert_eq!(all["none"]["dimension_names"], json!(["size_0", "size_3"]));
    assert_eq!(read(&tree, "data.zarr/scalar/c"), [0]);
    let c = tree.resolve("data.zarr/data/c/0").unwrap();
    for name in [".zarray", "1", "00", "-0", "+0", "0x0", "", "zarr.json"] {
        assert_eq!(tree.lookup(c, name.as_bytes()).unwrap(), None, "{name}");
        assert!(matches!(tree.known_child(c, name.as_bytes()), Some(Ok(None))), "{name}");
    }
}

#[test]
fn names_are_safe_and_belong_to_one_array_or_group() {
    let rows: [(&[u8], &str); 13] = [
        (b"a", "a"),
        (b"a/b", "a~2/b"),
        (b"a/c", "a~2/c"),
        (b"a", "a~3"),
        (b"g/x", "g/x"),
        (b"g", "g~2"),
        (b"a/b/c", "a~2/b~2/c"),
        (b"zarr.json", "zarr%2Ejson"),
        (b"__reserved/..", "%5F_reserved/%2E%2E"),
        (b"...", "%2E%2E%2E"),
        (b"\xff%/", "%FF%25/%"),
        (b"a~2", "a~2~2"),
        (b"back\\slash", "back%5Cslash"),
    ];
    let arrays: Vec<Row<'_>> = rows.iter().map(|&(name, _)| (name, None, U1, &[1][..])).collect();
    let tree = tree_of(&arrays);
    let root = document(&tree, "data.zarr/zarr.json");
    let all = root["consolidated_metadata"]["metadata"].as_object().unwrap();
    for (name, path) in rows {
        assert_eq!(all[path]["node_type"], "array", "{name:?}");
        assert_eq!(read(&tree, &format!("data.zarr/{path}/c/0")), [0], "{name:?}");
    }
    for (path, said) in all {
        assert_eq!(document(&tree, &format!("data.zarr/{path}/zarr.json"))["node_type"], said["node_type"], "{path}");
    }
    // The members of a group follow each other.
    let parents: Vec<_> = all.keys().map(|path| path.rsplit_once('/').map_or("", |(parent, _)| parent)).collect();
    let runs = parents.chunk_by(|a, b| a == b).count();
    assert_eq!(runs, parents.iter().collect::<std::collections::HashSet<_>>().len(), "{parents:?}");
    assert_eq!(all.len(), rows.len() + 5, "a~2, a~2/b~2, g, %5F_reserved, %FF%25: {:?}", all.keys());
}

fn object(value: &Value) -> Attributes {
    value.as_object().unwrap().clone()
}

#[test]
fn attributes_are_in_every_document_and_an_array_whose_attributes_are_broken_is_left_out() {
    let array = |about: fn() -> Result<Attributes>| {
        let array = Array { descr: "'<f4'".into(), itemsize: 4, shape: vec![2] };
        File::new(Content::Zeros(8)).typed(Some(array)).about(about)
    };
    let said = || Ok(object(&json!({ "units": "K", "_FillValue": -999.0, "a": "\u{202e}" })));
    let reserved = json!({ "left_out": "by hand", "container": 7, "ome": {}, "not_consolidated": null });
    let attributes = [object(&json!({ "z": 1, "title": "b" })), object(&reserved)].into_iter().flatten().collect();
    let list = ArrayList::new(vec![
        (b"t".to_vec(), None, array(said)),
        (b"odd".to_vec(), None, array(|| Err(crate::error::Error::corrupt("bad", "metalayer value")))),
    ]);
    let tree = Tree::new(Arc::new(WithArrays(Arc::new(list), attributes)), OsStr::new("x.zt")).unwrap();
    let root = document(&tree, "data.zarr/zarr.json");
    assert_eq!((&root["attributes"]["z"], &root["attributes"]["title"]), (&json!(1), &json!("b")));
    assert_eq!(root["attributes"]["container"]["attributes"], reserved);
    assert_eq!(root["attributes"].get("ome"), None);
    assert_eq!(root["attributes"]["left_out"], json!({ "odd": "its attributes are broken: bad (metalayer value)" }));
    let all = root["consolidated_metadata"]["metadata"].as_object().unwrap();
    assert_eq!(all.keys().collect::<Vec<_>>(), ["t"]);
    assert_eq!(all["t"], document(&tree, "data.zarr/t/zarr.json"));
    // As xarray reads a fill value.
    assert_eq!(all["t"]["attributes"], json!({ "units": "K", "_FillValue": "AAAAAAA4j8A=", "a": "\u{202e}" }));
    let odd = tree.resolve("data.zarr/odd/zarr.json").unwrap();
    assert!(tree.file(odd).unwrap().view(&Plain).is_err());
    assert_eq!(read(&tree, "data.zarr/odd/c/0"), [0; 8]);
}

/// One array of any size.
struct Huge(Vec<u64>);

impl Arrays for Huge {
    fn count(&self) -> u64 {
        1
    }

    fn find(&self, _: u64) -> Result<crate::format::Found> {
        let array = Array { descr: U1.into(), itemsize: 1, shape: self.0.clone() };
        let tiles = Tiles::default();
        let name = b"huge".to_vec();
        Ok(crate::format::Found::Array(NamedArray { name, array, type_name: None, tiles, stored: 9, dimensions: None }))
    }

    fn file(&self, _: u64) -> Result<File> {
        Ok(File::new(Content::Zeros(self.0.iter().product())))
    }
}

#[test]
fn chunks_beyond_number_are_found_without_being_listed() {
    let account = Account::new(1 << 20, 0);
    let container: Arc<dyn Container> =
        Arc::new(WithArrays(Arc::new(Huge(vec![1 << 30, 1 << 10, 1 << 22])), Attributes::new()));
    let tree = Tree::charging(container, OsStr::new("x.zt"), &account).unwrap();
    let before = account.memory().used();
    for path in ["0/0/0", "1073741823/1023/1", "12345/67/1"] {
        let path = format!("data.zarr/huge/c/{path}");
        let ino = tree.resolve(&path).unwrap();
        assert_eq!(tree.known_attr(ino).map(|attr| attr.size), Some(2 << 20), "{path}");
        assert_eq!(tree.file(ino).unwrap().view(&Plain).unwrap().len(), 2 << 20);
        let mut dir = ino;
        for name in path.rsplit('/') {
            let (parent, position) = tree.position(dir).unwrap();
            assert_eq!(tree.lookup(parent, name.as_bytes()).unwrap(), Some(dir), "{name}");
            assert_eq!(tree.entry(parent, position).unwrap().unwrap().name, name);
            dir = parent;
        }
        assert_eq!(dir, ROOT);
    }
    assert!(account.memory().used() - before < 4096, "{} bytes", account.memory().used() - before);
    let c = tree.resolve("data.zarr/huge/c").unwrap();
    assert_eq!(tree.attr(c, &Plain).unwrap().nlink, (1 << 30) + 2);
    for path in ["1073741824", "0/1024", "0/0/2", "01"] {
        assert!(tree.resolve(&format!("data.zarr/huge/c/{path}")).is_err(), "{path}");
    }
}

#[test]
fn the_first_array_is_an_image_if_it_is_known_where_it_is() {
    let array = |space| {
        let array = Array { descr: U1.into(), itemsize: 1, shape: vec![2, 3] };
        File { space, ..File::new(Content::Zeros(6)).typed(Some(array)) }
    };
    let image = array(crate::format::Space::new(vec![2.0, 0.5], None, Vec::new()));
    let root = |files: &[&File]| {
        let named = files.iter().enumerate().map(|(i, &file)| (format!("a{i}").into(), None, file.clone()));
        let list = Arc::new(ArrayList::new(named.collect()));
        let tree = Tree::new(Arc::new(WithArrays(list, Attributes::new())), OsStr::new("x.zt")).unwrap();
        document(&tree, "data.zarr/zarr.json")["attributes"].clone()
    };
    let ome = root(&[&image, &array(None)])["ome"]["multiscales"][0].clone();
    let scale = json!([{ "type": "scale", "scale": [2.0, 0.5] }]);
    assert_eq!(ome["datasets"], json!([{ "path": "a0", "coordinateTransformations": scale }]));
    assert_eq!((&ome["axes"][0]["name"], &ome["axes"][1]["name"]), (&json!("y"), &json!("x")));
    assert_eq!(root(&[&array(None), &image]).get("ome"), None);
    assert_eq!(root(&[]).get("ome"), None);
}

#[test]
fn the_document_of_a_group_of_few_arrays_is_made_for_its_length() {
    for (count, is_known) in [(16, true), (17, false)] {
        let names: Vec<String> = (0..count).map(|n| format!("g/{n}")).collect();
        let tree = tree_of(&names.iter().map(|name| (name.as_bytes(), None, U1, &[1][..])).collect::<Vec<_>>());
        for dir in ["data.zarr", "data.zarr/g"].map(|path| tree.resolve(path).unwrap()) {
            let open = tree.open_dir(dir).unwrap();
            let document = tree.lookup(dir, b"zarr.json").unwrap().unwrap();
            let known = tree.known_entry_attr(&open, document);
            assert_eq!(matches!(known, Some(KnownAttr::All(_))), is_known, "{known:?}");
        }
    }
}

#[test]
fn the_entries_of_a_group_are_those_that_it_passes_on() {
    let container = WithArrays(Arc::new(Huge(vec![1])), Attributes::new());
    let root = crate::tree::zarr::root(
        container.arrays().unwrap().unwrap(),
        &container.info(),
        &container.sources(),
        &Account::new(1 << 20, 0),
    );
    let stems: Vec<_> = root.entries().unwrap().into_iter().map(|entry| entry.stem).collect();
    assert_eq!(stems, [&b"zarr"[..], b"huge"]);
}
