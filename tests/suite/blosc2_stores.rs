//! Stores of python-blosc2: each leaf under its key.

use std::path::Path;

use fzmfs::error::{Error, Result};
use fzmfs::format::space::GivenSpace;
use fzmfs::format::{Input, Options};
use fzmfs::source::Source;
use serde_json::{Value, json};

use crate::blosc2::Opened;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/stores").join(name)).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<Opened> {
    Opened::of(&Input::of(Source::from_bytes(bytes))?, None, &Options::default())
}

fn document(opened: &Opened, path: &str) -> Value {
    serde_json::from_slice(&opened.read(path).unwrap()).unwrap()
}

/// The arrays of `data.zarr`, sorted.
fn arrays(opened: &Opened) -> Vec<String> {
    let group = document(opened, "data.zarr/zarr.json");
    let members = group["consolidated_metadata"]["metadata"].as_object().unwrap();
    let arrays = members.iter().filter(|(_, document)| document["node_type"] == "array");
    let mut names: Vec<_> = arrays.map(|(name, _)| name.clone()).collect();
    names.sort();
    names
}

#[test]
fn a_tree_has_its_embedded_leaves_beside_the_others_and_no_helpers() {
    let opened = open(data("tree.b2z")).unwrap();
    opened.verify().unwrap();
    assert_eq!(opened.names("").unwrap(), ["info.json", "data.zarr", "a", "top", "b"]);
    assert_eq!(opened.names("a").unwrap(), ["large", "small"]);
    let small: Vec<u8> = (0..6_i32).flat_map(i32::to_le_bytes).collect();
    let large: Vec<u8> = (0..4000).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    assert!(opened.read("a/small/data.raw").unwrap() == small && opened.read("a/large/data.raw").unwrap() == large);
    assert_eq!(document(&opened, "a/small/info.json")["array"]["shape"], json!([2, 3]));
    assert_eq!(arrays(&opened), ["a/large", "a/small", "b/units", "top"]);
    assert!(opened.read("data.zarr/a/small/c/0/0").unwrap().starts_with(&small));
    assert_eq!(document(&opened, "data.zarr/b/units/zarr.json")["attributes"], json!({"units": "K"}));
    let root = document(&opened, "data.zarr/zarr.json");
    assert_eq!(root["attributes"]["title"], "a tree");
    assert_eq!(root["consolidated_metadata"]["metadata"]["a"]["attributes"], json!({"note": [1, 2]}));
    assert_eq!(document(&opened, "data.zarr/a/zarr.json")["attributes"], json!({"note": [1, 2]}));
    assert_eq!(document(&opened, "info.json")["attributes"], json!({"title": "a tree"}));
}

#[test]
fn a_directory_is_one_store_with_its_files_and_its_embedded_leaves() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/stores/tree.b2d");
    let opened = Opened::open(&path).unwrap();
    opened.verify().unwrap();
    assert_eq!(opened.names("").unwrap(), ["info.json", "data.zarr", "a", "top"]);
    assert_eq!(opened.names("a").unwrap(), ["large", "notes.txt", "small"]);
    let large: Vec<u8> = (0..4000).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    assert!(opened.read("a/large/data.raw").unwrap() == large);
    assert_eq!(opened.read("a/notes.txt").unwrap(), b"hello\n");
    assert_eq!(arrays(&opened), ["a/large", "a/small", "top"]);
    assert_eq!(document(&opened, "data.zarr/a/zarr.json")["attributes"], json!({"note": [1, 2]}));
    let info = document(&opened, "info.json");
    assert_eq!((&info["kind"], &info["attributes"]), (&json!("store"), &json!({"title": "a tree"})));

    // Whatever the extension of a frame is, it is not part of the key.
    let copy = tempfile::tempdir().unwrap();
    for (from, to) in [("embed.b2e", "embed.b2e"), ("a/large.b2nd", "v1.odd"), ("a/notes.txt", ".hidden")] {
        std::fs::copy(path.join(from), copy.path().join(to)).unwrap();
    }
    let names = Opened::open(copy.path()).unwrap().names("").unwrap();
    assert_eq!(names, ["info.json", "data.zarr", ".hidden", "v1", "a", "top"]);

    // A file that is called as the embedded store of one is none by itself; a link leads nowhere.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(path.join("embed.b2e"), copy.path().join("embed.b2e")).unwrap();
    std::os::unix::fs::symlink(path.join("a"), copy.path().join("link")).unwrap();
    std::os::unix::fs::symlink(path.join("a/notes.txt"), copy.path().join("notes.txt")).unwrap();
    let opened = Opened::open(copy.path()).unwrap();
    assert_eq!(opened.names("").unwrap(), ["info.json", "data.zarr", "a", "top"]);
    std::fs::write(copy.path().join("embed.b2e"), data("store.b2e")).unwrap();
    assert!(Opened::open(copy.path()).is_err());
}

#[test]
fn the_identity_of_a_store_is_that_of_all_its_files() {
    let (path, copy) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"), tempfile::tempdir().unwrap());
    std::fs::create_dir(copy.path().join("a")).unwrap();
    for name in ["embed.b2e", "a/large.b2nd"] {
        std::fs::copy(path.join("blosc2/stores/tree.b2d").join(name), copy.path().join(name)).unwrap();
    }
    let identity = || fzmfs::Archive::open(copy.path(), &fzmfs::Options::new()).unwrap().identity();
    let first = identity();
    assert_eq!(identity(), first);
    std::fs::copy(path.join("blosc2/n05_5d_f4.b2nd"), copy.path().join("a/large.b2nd")).unwrap();
    assert_ne!(identity(), first);
}

#[test]
fn an_embed_store_has_each_leaf_under_its_key() {
    let opened = open(data("store.b2e")).unwrap();
    opened.verify().unwrap();
    assert_eq!(opened.names("").unwrap(), ["info.json", "data.zarr", "x", "z", "bytes"]);
    assert_eq!(arrays(&opened), ["bytes", "x/y", "z"]);
    let want: Vec<u8> = (0..5_i64).flat_map(i64::to_le_bytes).collect();
    assert!(opened.read("x/y/data.raw").unwrap() == want);
    assert!(opened.read("z/data.raw").unwrap() == 1_f32.to_le_bytes().repeat(4));
    assert_eq!(opened.read("bytes/data.raw").unwrap(), b"hello");
    // With more behind it, it is one of several frames.
    let opened = open(data("store.b2e").repeat(2)).unwrap();
    assert!(opened.names("").unwrap().contains(&"frames".to_owned()));
}

#[test]
fn a_leaf_of_as_many_dimensions_is_in_the_space_that_the_user_gives() {
    let space = GivenSpace { spacing: "2x0.5".parse().ok(), units: "um".parse().ok() };
    let options = Options { space, ..Options::default() };
    let opened = Opened::of(&Input::of(Source::from_bytes(data("tree.b2z"))).unwrap(), None, &options).unwrap();
    let header = |leaf: &str| String::from_utf8(opened.read(&format!("{leaf}/data.nhdr")).unwrap()).unwrap();
    assert!(header("a/small").contains("spacings: 0.5 2\n") && header("top").contains("spacings: 1\n"));
    assert_eq!(document(&opened, "info.json")["space"]["spacing"], json!([2.0, 0.5]));
}

#[test]
fn a_leaf_that_lies_breaks_alone() {
    let opened = open(data("hostile.b2e")).unwrap();
    let want: Vec<u8> = (0..5_i64).flat_map(i64::to_le_bytes).collect();
    for good in ["good", "%", "%2E%2E/%2E%2E"] {
        assert!(opened.read(&format!("{good}/data.raw")).unwrap() == want, "{good}");
    }
    let what = |e: &Error| e.what().rsplit(": ").next().unwrap().to_owned();
    for (broken, field) in [
        ("outside", "embed_map"),
        ("overflow", "embed_map"),
        ("negative", "embed_map"),
        ("nothing", "embed_map"),
        ("server", "embed_map"),
        ("no frame", "magic"),
        ("short", "frame_len"),
        ("empty", "frame header"),
    ] {
        assert_eq!(opened.names(broken).unwrap(), ["data.raw"], "{broken}");
        let e = opened.read(&format!("{broken}/data.raw")).unwrap_err();
        assert!(what(&e) == field && e.offset().is_some() && e.errno() == libc::EIO, "{broken}: {e}");
    }
    assert_eq!(arrays(&opened), ["%", "%2E%2E/%2E%2E", "good", "store"]);
    assert!(opened.verify().is_err());
    // A store in a store is a frame, so that none can contain itself.
    assert!(opened.names("store").unwrap().contains(&"vlmetalayers".to_owned()));
}

#[test]
fn a_store_with_a_changed_byte_is_opened_or_refused_and_a_checksum_finds_it() {
    let bytes = data("hostile.b2e");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        let Ok(opened) = open(changed) else { continue };
        for name in opened.names("").unwrap_or_default() {
            drop(opened.read(&format!("{name}/data.raw")));
        }
    }
    let tree = data("tree.b2z");
    let start = tree.windows(9).position(|window| window == b"embed.b2e").unwrap() + 9;
    let mut changed = tree.clone();
    changed[start + 0x60] ^= 1;
    let opened = open(changed).unwrap();
    assert!(opened.read("a/small/data.raw").is_err() && opened.verify().is_err());
    assert!(opened.read("a/large/data.raw").is_ok());
}
