//! Tests of synthetic trees.

mod ahead;
mod attributes;
mod first_listing;
mod inner;
mod kept;
mod listed_again;
mod names;
mod numbered;
mod zarr;
mod zarr_faults;

use serde_json::{Map, Value};

use super::*;
use crate::format::testing::{Plain, noise};
use crate::format::{Array, Attrs, Check, Content, Entry, Fetch, File, Info, Node};
use crate::source::Source;

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
            checksum_count: None,
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
