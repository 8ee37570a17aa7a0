//! The checks of `verify` for a zTensor file: decodes every component and verifies its digest, validates sparse
//! tensors, and hashes shards.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Error, Result, UnknownParts};
use crate::format::{Check, Content};

use super::content::{Direct, TensorFile};
use super::digest::UnknownDigests;
use super::footer::Dialect;
use super::manifest::Tensor;
use super::quoted::quoted;
use super::sparse;

/// Maximum stored bytes and tensors per check.
const GROUP: u64 = 4 << 20;
const GROUP_TENSORS: usize = 256;
/// Maximum shards that are checked one by one.
const MOST_SHARDS: usize = 4096;

pub(super) fn checks(store: &Arc<TensorFile>) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut from = 0;
    while from < store.manifest.len() {
        let (mut to, mut bytes) = (from, 0_u64);
        while to < store.manifest.len() && bytes < GROUP && to - from < GROUP_TENSORS {
            let parts =
                store.manifest.tensor(to).map(|t| t.components.iter().map(|p| p.len).fold(0, u64::saturating_add));
            bytes = bytes.saturating_add(parts.unwrap_or(0));
            to += 1;
        }
        let own = Arc::clone(store);
        let run = Box::new(move || {
            let mut unknown = UnknownParts::default();
            (from..to).try_for_each(|index| unknown.keep(tensor(&own, index)))?;
            unknown.result()
        });
        checks.push(Check::Run { name: "tensors".to_owned(), bytes, run });
        from = to;
    }
    // Every check takes memory, so many shards are grouped.
    let shards = store.manifest.shards();
    let group = if shards > MOST_SHARDS { GROUP_TENSORS } else { 1 };
    for from in (0..shards).step_by(group) {
        let numbers = from..shards.min(from + group);
        let size = |number| store.manifest.shard(number).map_or(0, |shard| shard.size);
        let bytes = numbers.clone().map(size).fold(0, u64::saturating_add);
        let own = Arc::clone(store);
        let run = Box::new(move || numbers.clone().try_for_each(|number| shard(&own, number)));
        checks.push(Check::Run { name: "shards".to_owned(), bytes, run });
    }
    checks
}

/// The digests of a file that cannot be verified.
pub(super) fn unknown_digests(store: &TensorFile) -> UnknownDigests {
    let manifest = &store.manifest;
    let mut unknown = UnknownDigests::default();
    for tensor in (0..manifest.len()).filter_map(|index| manifest.tensor(index).ok()) {
        tensor.components.iter().filter_map(|part| part.digest.as_deref()).for_each(|digest| unknown.add(digest));
    }
    (0..manifest.shards()).filter_map(|n| manifest.shard(n).ok()).for_each(|shard| unknown.add(&shard.digest));
    unknown
}

fn shard(store: &TensorFile, number: usize) -> Result<()> {
    let shard = store.manifest.shard(number)?;
    let checked = store.shard(&shard.name).and_then(|shard| shard.gate.map_or(Ok(()), |gate| gate.check()));
    checked.map_err(|e| e.within(format_args!("shard {}", shard.name)))
}

fn tensor(store: &TensorFile, index: usize) -> Result<()> {
    let tensor = store.manifest.tensor(index)?;
    let mut unknown = UnknownParts::default();
    for (place, part) in tensor.components.iter().enumerate() {
        let named = |e: Error| e.at(part.at).within(format_args!("{} {:.80}", quoted(&tensor.name), part.role));
        if part.element().is_none() && part.logical.is_none() && tensor.is_dense() {
            let e = Error::unknown(format!("the element type {}", quoted(&part.dtype)), "dtype").at(part.described_at);
            unknown.keep(Err(e.within(quoted(&tensor.name))))?;
        }
        unknown.keep(match store.content_of(index, &tensor, place) {
            // Named already.
            Err(e) => Err(e.at(part.at)),
            // Raw bytes need no decoding: only their digest is checked.
            Ok(Content::FileExtent(stored)) => stored.gate.map_or(Ok(()), |gate| gate.check()).map_err(named),
            Ok(content) => super::content::each(&content, &Direct, &mut |_| Ok(())).map_err(named),
        })?;
    }
    unknown.keep(elements(store, index, &tensor).map_err(|e| e.within(quoted(&tensor.name))))?;
    unknown.keep(sparse::check(store, index, &Direct))?;
    unknown.result()
}

/// Checks the elements of a dense tensor of dialect 2: booleans must be 0 or 1, and the unused half byte after an odd
/// number of 4-bit elements must be 0.
fn elements(store: &TensorFile, index: usize, tensor: &Tensor<'_>) -> Result<()> {
    let Some(part) = tensor.component("data").filter(|_| tensor.is_dense() && store.manifest.dialect == Dialect::V2)
    else {
        return Ok(());
    };
    let content = |store: &TensorFile| store.content(index, 0);
    let wrong = |why: &'static str| Err(Error::corrupt(why, "elements").at(part.at));
    match part.logical.as_deref() {
        Some("bool") => super::content::each(&content(store)?, &Direct, &mut |bytes| {
            if bytes.iter().all(|&b| b <= 1) { Ok(()) } else { wrong("a boolean is neither 0 nor 1") }
        }),
        Some("f4_e2m1") if tensor.count().is_some_and(|n| n % 2 == 1) => {
            let mut last = 0;
            super::content::each(&content(store)?, &Direct, &mut |bytes| {
                last = bytes.last().copied().unwrap_or(last);
                Ok(())
            })?;
            if last >> 4 == 0 { Ok(()) } else { wrong("the unused half byte after the last element is not 0") }
        }
        _ => Ok(()),
    }
}
