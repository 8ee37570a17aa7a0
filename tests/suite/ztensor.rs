//! zTensor files of every dialect: the corpus by its hashes, broken files by where they break, and views
//! that other programs open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fzmfs::error::{Error, Result};
use fzmfs::format::{self, Container, Directory, Input, Node, Options};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::opened as support;

/// The corpus of this repository, or the one in `$FZMFS_CORPORA`.
fn corpus() -> PathBuf {
    std::env::var_os("FZMFS_CORPORA").map_or_else(|| support::data("ztensor"), |dir| Path::new(&dir).join("ztensor"))
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn open(path: &Path) -> Result<Arc<dyn Container>> {
    format::open(&Input::open(path)?, None, &Options::default())
}

fn sha(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn tensors(container: &dyn Container) -> Arc<dyn Directory> {
    let entries = container.entries().unwrap();
    let node = entries.into_iter().find(|e| &*e.stem == b"tensors").unwrap().node;
    let Node::Dir(dir) = node else { panic!("tensors is not a directory") };
    dir
}

/// The decoded bytes of a component: a file of its own, or in the directory of its tensor.
fn component(tensors: &Arc<dyn Directory>, name: &str, role: &str, nth: usize) -> Result<Vec<u8>> {
    let find = |dir: &dyn Directory, stem: &str, suffix: &str, nth: usize| {
        let mut named = dir.entries()?.into_iter().filter(|e| &*e.stem == stem.as_bytes() && e.suffix == suffix);
        Ok::<_, Error>(named.nth(nth).map(|e| e.node))
    };
    let (dir, node) = match (find(&**tensors, name, ".raw", nth)?, find(&**tensors, name, "", nth)?) {
        (Some(node), _) => (Arc::clone(tensors), node),
        (None, Some(Node::LazyDir(number))) => {
            let dir = tensors.dir(number)?;
            (Arc::clone(&dir), find(&*dir, role, ".raw", 0)?.unwrap())
        }
        _ => panic!("{name} is not there"),
    };
    let Node::LazyFile(file) = node else { panic!("{name} is not a file") };
    support::read(&dir.file(file.number)?)
}

#[test]
fn every_component_of_the_corpus_decodes_to_its_hash() {
    let manifest = json(&corpus().join("MANIFEST.json"));
    let (mut files, mut count) = (0, 0);
    for case in manifest["files"].as_array().unwrap() {
        let name = case["file"].as_str().unwrap();
        let container = open(&corpus().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(container.info().format_version, case["dialect"].as_str().unwrap(), "{name}");
        let entries = tensors(&*container);
        let mut seen = std::collections::HashMap::new();
        for tensor in case["tensors"].as_array().unwrap() {
            let title = tensor["name"].as_str().unwrap();
            let nth = seen.entry(title).or_insert(0);
            for (role, want) in tensor["components"].as_object().unwrap() {
                let bytes =
                    component(&entries, title, role, *nth).unwrap_or_else(|e| panic!("{name} {title} {role}: {e}"));
                assert_eq!(bytes.len() as u64, want["decoded_length"].as_u64().unwrap(), "{name} {title} {role}");
                // Where the stored byte order is big, the file shows little-endian elements.
                let swapped = tensor["stored_byte_order"] == "big";
                let want = if swapped { &tensor["dense_sha256"] } else { &want["sha256"] };
                assert_eq!(sha(&bytes), *want, "{name} {title} {role}");
                count += 1;
            }
            *nth += 1;
        }
        support::verify(&*container).unwrap_or_else(|e| panic!("verify {name}: {e}"));
        files += 1;
    }
    println!("{files} files, {count} components");
}

#[test]
fn every_broken_file_fails_only_where_it_is_broken() {
    let bad = corpus().join("bad");
    let manifest = json(&bad.join("MANIFEST.json"));
    let mut files = 0;
    for case in manifest["files"].as_array().unwrap() {
        let (name, stage) = (case["file"].as_str().unwrap(), case["stage"].as_str().unwrap());
        files += 1;
        let opened = open(&bad.join(name));
        if stage == "open" {
            let e = opened.err().unwrap_or_else(|| panic!("{name} opens"));
            assert!(e.offset().is_some(), "{name}: {e}");
            continue;
        }
        let container = opened.unwrap_or_else(|e| panic!("{name}: {e}"));
        let entries = tensors(&*container);
        if stage == "sanitize" {
            support::verify(&*container).unwrap();
            continue;
        }
        let tensor = case["tensor"].as_str().unwrap();
        let role = case["component"].as_str().unwrap_or("data");
        let whole_component = ["components_ok", "lenient", "verify_only"].iter().all(|key| case[key] != true);
        if whole_component && case["rule"] != "R-SPARSE" {
            assert!(component(&entries, tensor, role, 0).is_err(), "{name} reads");
        }
        if let Some(ok) = case["ok_tensor"].as_str() {
            let bytes = component(&entries, ok, "data", 0).unwrap_or_else(|e| panic!("{name} {ok}: {e}"));
            assert_eq!(sha(&bytes), case["ok_sha256"], "{name}");
        }
        let e = support::verify(&*container).err().unwrap_or_else(|| panic!("{name} is found right"));
        assert!(e.offset().is_some(), "{name}: {e}");
        println!("{name}: {e}");
    }
    println!("{files} files");
}

#[test]
fn the_conformance_corpus_of_dialect_2_is_judged_as_it_expects() {
    let dir = corpus().join("conformance-v2");
    let cases = json(&dir.join("EXPECT.json"));
    let mut files = 0;
    for case in cases.as_array().unwrap() {
        let (file, op, expect) =
            (case["file"].as_str().unwrap(), case["op"].as_str().unwrap(), case["expect"].as_str().unwrap());
        let opened = open(&dir.join(file));
        let refused = expect.starts_with("reject");
        match op {
            "open" => assert_eq!(opened.is_err(), refused, "{file}: {:?}", opened.err()),
            "verify" | "read_csr" => assert_eq!(support::verify(&*opened.unwrap()).is_err(), refused, "{file}"),
            _ => {
                let container = opened.unwrap();
                let name = case["object"].as_str().unwrap();
                let read = component(&tensors(&*container), name, case["part"].as_str().unwrap(), 0);
                assert_eq!(read.is_err(), expect != "valid", "{file}");
            }
        }
        files += 1;
    }
    println!("{files} files");
}

#[test]
fn a_model_as_safetensors_has_the_bytes_of_its_tensors() {
    let container = open(&corpus().join("v10-all-dtypes-raw.zt")).unwrap();
    let bytes = support::read_at(&*container, "model.safetensors").unwrap();
    let size = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert!(size.is_multiple_of(8));
    let header: Value = serde_json::from_slice(&bytes[8..8 + size]).unwrap();
    let entries = tensors(&*container);
    let mut end = 0;
    for (name, tensor) in header.as_object().unwrap() {
        let range = [&tensor["data_offsets"][0], &tensor["data_offsets"][1]].map(|n| n.as_u64().unwrap() as usize);
        assert_eq!(range[0], end, "{name}");
        end = range[1];
        assert_eq!(
            bytes[8 + size + range[0]..8 + size + range[1]],
            component(&entries, name, "data", 0).unwrap(),
            "{name}"
        );
    }
    assert_eq!(bytes.len(), 8 + size + end);
    assert!(header.as_object().unwrap().len() >= 12);
}
