//! zTensor files of all five dialects: 0.1, 1.0, 1.1, 1.2 and 2.
//!
//! Reference: the zTensor reference, by section in each module.
//!
//! Shows as: `tensors/` with a file for each dense tensor and a directory for each other tensor, `stored/`,
//! `manifest.cbor`, `manifest.json`, `model.safetensors`; `.npz` for compressed sparse rows.
//! Piece: 1 MiB; raw components are served directly from the file.
//! Checked: the manifest at open; a component's digest before its first byte, or, if it has none, the digest of the
//! shard that contains it.
//! Limits: 256 MiB of manifest, 4 million entries, 4096 components of a tensor, 4 GiB for a component that does not
//! state its length. Memory that grows with the manifest or with a component is charged to the account.
//!
//! Invariants: an open file keeps the manifest's bytes and 4 bytes per tensor and shard; a tensor is parsed on access.
#![forbid(unsafe_code)]

mod arrays;
mod byte_swapped;
mod cbor;
mod component;
mod content;
mod covered;
mod digest;
mod dtype;
mod footer;
mod manifest;
mod npz;
mod quoted;
mod safetensors;
mod shards;
mod sort;
mod sparse;
mod sums;
mod syntax;
mod tree;
mod verify;
mod zstd_component;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::bytes::{FileOffset, to_u64};
use crate::error::Result;
use crate::source::{Folder, Source};

use super::{Arrays, Check, Container, Entry, Format, Info, Input, Options};

use content::TensorFile;
use digest::UnknownDigests;
use footer::{MAGIC_01, MAGIC_1, MAGIC_2};
use manifest::Manifest;
use quoted::{quoted, truncated};

/// Entry in the table of formats.
pub(super) const FORMAT: Format =
    Format { name: "ztensor", extensions: &["zt"], enclosed: &[], detect, open, kernels: &[] };

fn detect(input: &Input) -> bool {
    [MAGIC_01, MAGIC_1, MAGIC_2].into_iter().any(|magic| input.head.starts_with(magic))
}

/// Maximum layouts, shards and bytes of attributes in `info.json`, which is built in memory. `manifest.json` has all.
const LISTED: usize = 100;
const LISTED_SHARDS: usize = 10_000;
const LISTED_ATTRIBUTES: usize = 256 << 10;
/// Maximum bytes of a layout's name and of a digest there.
const LISTED_LAYOUT: usize = 4 << 10;
const LISTED_DIGEST: usize = 256;

struct ZTensor(Arc<TensorFile>);

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let source = input.file()?;
    let footer = footer::read(&source)?;
    let manifest = Manifest::read(&source, &footer, &options.account)?;
    let files = shards::pin_shards(input, &manifest, &options.account)?;
    Ok(Arc::new(ZTensor(TensorFile::new(source, manifest, files, options.clone()))))
}

impl Container for ZTensor {
    fn info(&self) -> Info {
        let manifest = &self.0.manifest;
        let (mut decoded, mut with_digest, mut layouts, mut others) = (Some(0_u64), 0_u64, Map::new(), 0_u64);
        let mut unknown = UnknownDigests::default();
        for tensor in (0..manifest.len()).filter_map(|i| manifest.tensor(i).ok()) {
            let layout = truncated(&tensor.layout, LISTED_LAYOUT);
            if layouts.len() < LISTED || layouts.contains_key(&*layout) {
                let count = layouts.entry(layout).or_insert(json!(0));
                *count = json!(count.as_u64().unwrap_or(0) + 1);
            } else {
                others += 1;
            }
            for part in &tensor.components {
                with_digest += u64::from(part.digest.is_some());
                part.digest.iter().for_each(|digest| unknown.add(digest));
                decoded = decoded
                    .zip(component::decoded_len(&tensor, part).ok().flatten())
                    .and_then(|(a, b)| a.checked_add(b));
            }
        }
        let version = manifest.version.as_deref().map(|version| truncated(version, LISTED_DIGEST));
        let mut details = Map::new();
        let mut add = |key: &str, value: Value| drop(details.insert(key.into(), value));
        add("tensors", manifest.len().into());
        add("components", manifest.components.into());
        add("layouts", layouts.into());
        if others > 0 {
            add("tensors_of_other_layouts", others.into());
        }
        add("manifest", json!({ "at": manifest.at.0, "size": manifest.bytes().len(), "version": version }));
        if manifest.shards() > 0 {
            let digest = |s: &manifest::Shard<'_>| truncated(&s.digest, LISTED_DIGEST).into_owned();
            let shard = |s: manifest::Shard<'_>| json!({ "name": s.name, "size": s.size, "digest": digest(&s) });
            let listed = (0..manifest.shards().min(LISTED_SHARDS)).filter_map(|i| manifest.shard(i).ok()).map(shard);
            add("shards", listed.collect());
            if manifest.shards() > LISTED_SHARDS {
                add("shards_not_listed", (manifest.shards() - LISTED_SHARDS).into());
            }
        }
        if let Some(attributes) = manifest.own_attributes(LISTED_ATTRIBUTES) {
            add("attributes", attributes);
        }
        let mut checksums = json!({ "components": format!("{with_digest} of {} have a digest", manifest.components) });
        if manifest.shards() > 0 {
            checksums["shards"] = "one digest for each shard, verified for components without their own".into();
        }
        let unverified = unknown.iter().map(|(_, count)| count).fold(0, u64::saturating_add);
        let checksum_count = with_digest.saturating_add(to_u64(manifest.shards())).saturating_sub(unverified);
        let named: Map<String, Value> = unknown.iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
        if !named.is_empty() {
            checksums["unknown_algorithms"] = named.into();
        }
        Info {
            format: FORMAT.name,
            format_version: manifest.dialect.name().to_owned(),
            file_size: self.0.source.len(),
            decoded_size: decoded,
            checksums,
            checksum_count: Some(checksum_count),
            details,
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(tree::root(&self.0))
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(Some(Arc::new(arrays::Dense(Arc::clone(&self.0)))))
    }

    fn checks(&self) -> Vec<Check> {
        verify::checks(&self.0)
    }

    fn unverifiable(&self) -> Vec<String> {
        let note = |(name, count): (&str, u64)| format!("{count} digests of the unknown algorithm {}", quoted(name));
        verify::unknown_digests(&self.0).iter().map(note).collect()
    }

    fn part_at(&self, at: FileOffset) -> Option<String> {
        let manifest = &self.0.manifest;
        (0..manifest.len()).filter_map(|index| manifest.tensor(index).ok()).find_map(|tensor| {
            let is_it = |part: &&manifest::Component<'_>| {
                part.shard.is_none() && (part.at..part.at.plus(part.len)).contains(&at)
            };
            let part = tensor.components.iter().find(is_it)?;
            Some(format!("{} {:.80}", quoted(&tensor.name), part.role))
        })
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![Arc::clone(&self.0.source)]
    }

    fn folder(&self) -> Option<Arc<Folder>> {
        self.0.files.as_ref()?.folder()
    }
}
