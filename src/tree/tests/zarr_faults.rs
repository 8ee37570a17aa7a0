//! `data.zarr` of containers that are broken in places: what always fails is left out, what fails now is an error.

use std::sync::Mutex;

use serde_json::json;

use super::zarr::{U1, WithArrays, document};
use super::*;
use crate::format::about::Attributes;
use crate::format::{Arrays, Found};

/// The calls that fail.
#[derive(Clone, Default)]
struct Faults {
    /// To find the second array.
    find: Option<Error>,
    /// The attributes of arrays.
    attributes: Option<Error>,
    /// The attributes of groups.
    group: Option<Error>,
}

/// The arrays `g/a` and `g/b`, of this type.
struct Faulty(Arc<Mutex<Faults>>, &'static str);

impl Arrays for Faulty {
    fn count(&self) -> u64 {
        2
    }

    fn find(&self, index: u64) -> Result<Found> {
        match self.0.lock().unwrap().find.clone() {
            Some(error) if index == 1 => Err(error),
            _ => Ok(Found::of([b"g/a", b"g/b"][index as usize].to_vec(), None, &self.file(index)?)),
        }
    }

    fn file(&self, _: u64) -> Result<File> {
        let (faults, array) = (Arc::clone(&self.0), Array { descr: self.1.into(), itemsize: 1, shape: vec![4] });
        let about = move || faults.lock().unwrap().attributes.clone().map_or_else(|| Ok(Attributes::new()), Err);
        Ok(File::new(Content::Zeros(4)).typed(Some(array)).about(about))
    }

    fn group(&self, _: &[u8]) -> Result<Attributes> {
        let said = || Ok(json!({ "title": "group" }).as_object().unwrap().clone());
        self.0.lock().unwrap().group.clone().map_or_else(said, Err)
    }
}

fn faulty(descr: &'static str) -> (Tree, Arc<Mutex<Faults>>) {
    let faults = Arc::new(Mutex::default());
    let arrays = Arc::new(Faulty(Arc::clone(&faults), descr));
    (Tree::new(Arc::new(WithArrays(arrays, Attributes::new())), OsStr::new("x.zt")).unwrap(), faults)
}

/// An error that the next reader may not get, and one that all get.
fn errors() -> [Error; 2] {
    [Error::io(os_error(libc::EIO), "read"), Error::corrupt("bad", "name")]
}

/// Whether the document at `path` can be made now.
fn is_made(tree: &Tree, path: &str) -> bool {
    let made = tree.resolve(path).and_then(|ino| tree.file(ino)?.view(&Plain));
    made.inspect_err(|error| assert_eq!(error.errno(), libc::EIO, "{path}: {error}")).is_ok()
}

#[test]
fn attributes_that_cannot_be_read_now_fail_what_needs_them_until_they_can_be() {
    let [now, always] = errors();
    let (tree, faults) = faulty(U1);
    tree.resolve("data.zarr/g/a").unwrap();
    let all = ["data.zarr/zarr.json", "data.zarr/g/zarr.json", "data.zarr/g/a/zarr.json"];
    faults.lock().unwrap().attributes = Some(now.clone());
    assert_eq!(all.map(|path| is_made(&tree, path)), [false; 3]);
    // The directory of an array has the length of its document, if that is not broken for good.
    assert!(tree.entry(tree.resolve("data.zarr/g/a").unwrap(), 0).is_err());
    faults.lock().unwrap().attributes = Some(always);
    assert_eq!(all.map(|path| is_made(&tree, path)), [true, true, false]);
    faults.lock().unwrap().attributes = None;
    assert_eq!(all.map(|path| is_made(&tree, path)), [true; 3]);

    // Of an array whose document is not in that of the root, the attributes may still be the reason to leave it out.
    let (tree, faults) = faulty("[('a', '<f4'), ('b', '<i2')]");
    tree.resolve("data.zarr/g").unwrap();
    faults.lock().unwrap().attributes = Some(now);
    assert!(!is_made(&tree, "data.zarr/zarr.json"));
}

#[test]
fn a_group_has_no_attributes_if_they_are_broken_and_no_document_if_they_cannot_be_read_now() {
    let [now, always] = errors();
    let (tree, faults) = faulty(U1);
    let path = "data.zarr/g/zarr.json";
    assert_eq!(document(&tree, path)["attributes"], json!({ "title": "group" }));
    faults.lock().unwrap().group = Some(always);
    assert_eq!(document(&tree, path)["attributes"], json!({}));
    faults.lock().unwrap().group = Some(now);
    assert!(!is_made(&tree, path));
}

#[test]
fn an_array_that_is_broken_is_left_out_and_one_that_cannot_be_found_now_is_an_error() {
    let [now, always] = errors();
    let (tree, faults) = faulty(U1);
    faults.lock().unwrap().find = Some(now);
    assert_eq!(tree.resolve("data.zarr/g").unwrap_err().errno(), libc::EIO);
    faults.lock().unwrap().find = Some(always);
    let root = document(&tree, "data.zarr/zarr.json");
    assert_eq!(root["attributes"]["left_out"], json!({ "1": "bad (name)" }));
    let all = root["consolidated_metadata"]["metadata"].as_object().unwrap();
    assert_eq!(all.keys().collect::<Vec<_>>(), ["g", "g/a"]);
}
