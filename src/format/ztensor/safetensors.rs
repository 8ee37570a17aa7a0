//! `model.safetensors`: all dense tensors as one file of the safetensors format.
//!
//! An 8-byte length, a JSON header padded to a multiple of 8, then the tensors without gaps, widest elements first, so
//! that each is aligned to its element size. Omitted are tensors of types that the format lacks, tensors with an
//! unknown encoding, and repeated names after the first.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::{Content, Spool};

use super::component::decoded_len;
use super::content::TensorFile;
use super::footer::Dialect;
use super::manifest::{Encoding, Tensor};

/// Memory per tensor of the file, charged from [`FREE`] tensors on.
const PER_TENSOR: u64 = 400;
const FREE: usize = 100_000;

/// A tensor in the file; everything else is in the manifest.
struct Included {
    index: usize,
    part: usize,
    width: u64,
    len: u64,
}

/// The entry for `tensor` and the name of its type; `None` if it is omitted.
fn include(index: usize, tensor: &Tensor<'_>) -> Option<(Included, &'static str)> {
    let place = TensorFile::role(tensor, "data").filter(|_| tensor.is_dense())?;
    let part = tensor.components.get(place)?;
    let element = part.element().filter(|e| !e.safetensors.is_empty())?;
    let len = decoded_len(tensor, part).ok()??;
    // The key of the header's own entry cannot name a tensor.
    let out = matches!(part.encoding, Encoding::Unknown(_)) || tensor.name == "__metadata__";
    (!out).then(|| (Included { index, part: place, width: element.width(), len }, element.safetensors))
}

fn included(store: &TensorFile) -> Result<Vec<Included>> {
    let mut all = Vec::new();
    // Only dialect 0.1 may repeat names; they are found by a keyed hash and then compared.
    let hash = RandomState::new();
    let mut names: HashMap<u64, Vec<usize>> = HashMap::new();
    for index in 0..store.manifest.len() {
        let tensor = store.manifest.tensor(index)?;
        let Some((included, _)) = include(index, &tensor) else { continue };
        if store.manifest.dialect == Dialect::V01 {
            let same = names.entry(hash.hash_one(&*tensor.name)).or_default();
            if same.iter().any(|&i| store.manifest.tensor(i).is_ok_and(|other| other.name == tensor.name)) {
                continue;
            }
            same.push(index);
        }
        all.push(included);
    }
    all.sort_by_key(|t| Reverse(t.width));
    Ok(all)
}

/// The file; building it decodes no tensor.
///
/// # Errors
/// Fails if the total size overflows or the account is exhausted.
pub(super) fn content(store: &Arc<TensorFile>) -> Result<Content> {
    let TensorFile { manifest, options, .. } = &**store;
    let charged = to_u64(manifest.len().saturating_sub(FREE)).saturating_mul(PER_TENSOR);
    let charge = Arc::new(options.account.charge(charged, "tensors of model.safetensors")?);
    let tensors = included(store)?;
    let mut header = Spool::new(&options.account, options.limits.structure, "header of model.safetensors");
    let mut end = 0_u64;
    for t in &tensors {
        let start = end;
        let too_large = || Error::new(Kind::TooLarge { value: t.len, limit: u64::MAX - start }, "model.safetensors");
        end = start.checked_add(t.len).ok_or_else(too_large)?;
        let tensor = manifest.tensor(t.index)?;
        let dtype = include(t.index, &tensor).map_or("", |(_, dtype)| dtype);
        header.push(if header.is_empty() { b"{" } else { b"," })?;
        header.json(&Value::String(tensor.name.into_owned()))?;
        header.push(b":")?;
        header.json(&json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end] }))?;
    }
    header.push(if header.is_empty() { b"{}" } else { b"}" })?;
    while !header.len().is_multiple_of(8) {
        header.push(b" ")?;
    }
    let mut parts = Vec::with_capacity(tensors.len().saturating_add(2));
    parts.push(Content::bytes(header.len().to_le_bytes()));
    parts.push(header.content());
    for t in tensors {
        let (store, charge) = (Arc::clone(store), Arc::clone(&charge));
        let make = move || {
            let _charge = &charge;
            store.content(t.index, t.part)
        };
        parts.push(Content::Deferred { len: Some(t.len), make: Arc::new(make) });
    }
    Ok(Content::Join(parts.into()))
}
