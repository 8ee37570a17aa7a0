//! `model.safetensors`: all dense tensors as one file of the safetensors format.
//!
//! A header of 8 bytes, a JSON object padded to a multiple of 8, then the tensors without gaps, those of
//! the widest elements first, so that each starts at a multiple of its element. Left out are tensors
//! that the format has no type for, that cannot be decoded, and later ones of a name.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::bytes::wide;
use crate::error::{Error, Kind, Result};
use crate::format::Content;

use super::content::Store;
use super::manifest::Encoding;
use super::part::decoded_len;

/// A tensor that is in.
struct Included {
    index: usize,
    part: usize,
    name: String,
    dtype: &'static str,
    width: u64,
    shape: Vec<u64>,
    len: u64,
}

fn included(store: &Store) -> Result<Vec<Included>> {
    let mut all = Vec::new();
    let mut names = HashSet::new();
    for index in 0..store.manifest.len() {
        let tensor = store.manifest.tensor(index)?;
        let Some(place) = Store::role(&tensor, "data").filter(|_| tensor.is_dense()) else { continue };
        let Some(part) = tensor.parts.get(place) else { continue };
        let Some(element) = part.element().filter(|e| !e.safetensors.is_empty()) else { continue };
        let Ok(Some(len)) = decoded_len(&tensor, part) else { continue };
        // The key of the header's own entry cannot name a tensor.
        if matches!(part.encoding, Encoding::Unknown(_)) || tensor.name == "__metadata__" {
            continue;
        }
        let name = tensor.name.into_owned();
        if !names.insert(name.clone()) {
            continue;
        }
        let (dtype, width) = (element.safetensors, element.width());
        all.push(Included { index, part: place, name, dtype, width, shape: tensor.shape, len });
    }
    all.sort_by_key(|t| std::cmp::Reverse(t.width));
    Ok(all)
}

/// The file; nothing of the tensors is decoded for it.
///
/// # Errors
/// When the tensors are more bytes than can be counted.
pub(super) fn content(store: &Arc<Store>) -> Result<Content> {
    let tensors = included(store)?;
    let mut header = Map::new();
    let mut end = 0_u64;
    for t in &tensors {
        let start = end;
        let too_large = || Error::new(Kind::TooLarge { value: t.len, limit: u64::MAX - start }, "model.safetensors");
        end = start.checked_add(t.len).ok_or_else(too_large)?;
        header.insert(t.name.clone(), json!({ "dtype": t.dtype, "shape": t.shape, "data_offsets": [start, end] }));
    }
    let mut text = serde_json::Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let head = [&wide(text.len()).to_le_bytes()[..], &text].concat();
    let mut parts = vec![Content::bytes(head)];
    for t in tensors {
        let store = Arc::clone(store);
        let make = move || store.content(t.index, t.part);
        parts.push(Content::Late { len: Some(t.len), make: Arc::new(make) });
    }
    Ok(Content::Join(parts.into()))
}
