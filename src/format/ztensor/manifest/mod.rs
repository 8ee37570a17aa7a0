//! The manifest: read and checked once, then kept as bytes with an index; a tensor is parsed on access.
//!
//! Reference: sections 3 to 6 and 10.
//!
//! Limits: 256 MiB of manifest, charged to the account; 4 million tensors, components and shards; 4096
//! components of a tensor; rank 64. The index takes 4 bytes per tensor and shard.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod shard;
mod tensor;
mod validate;

use std::ops::Range;
use std::sync::atomic::{self, AtomicUsize};

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

use crate::account::{Account, Buffer};
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::format::Spool;
use crate::limits::Limits;
use crate::source::Source;

use super::cbor::{CborReader, Profile};
use super::footer::{Dialect, Footer};
use super::quoted::quoted;
use super::syntax;

use shard::{find_shard, shard, shard_at};
use tensor::{attributes, tensor, tensor_01};

pub(super) use shard::Shard;
pub(super) use tensor::{Component, Encoding, Tensor};

/// Maximum tensors and components together; also maximum shards.
const MAX_ENTRIES: u64 = 4_000_000;
/// Bytes of a file-backed manifest that are parsed before its pages are released.
const RELEASE: usize = 4 << 20;

/// A checked manifest.
#[derive(Debug)]
pub(super) struct Manifest {
    /// The dialect.
    pub(super) dialect: Dialect,
    account: Account,
    bytes: Buffer,
    /// Bytes parsed since pages were last released.
    parsed: AtomicUsize,
    /// Its offset in the file.
    pub(super) at: FileOffset,
    /// Where each tensor's description starts: the key in its map, or (0.1) the tensor's own map.
    index: Vec<u32>,
    /// Where each shard's description starts: its key. Ordered by name.
    shards: Vec<u32>,
    attributes: Option<Range<usize>>,
    /// The version that it states, in 1.x.
    pub(super) version: Option<String>,
    /// The number of components of all tensors.
    pub(super) components: u64,
}

impl Manifest {
    /// Reads the manifest that `footer` points to, and checks everything that needs no tensor data.
    ///
    /// # Errors
    /// Fails if it is malformed or violates a rule of its dialect.
    pub(super) fn read(source: &Source, footer: &Footer, account: &Account) -> Result<Self> {
        let bytes = stored(source, footer, account)?;
        let mut manifest = Self {
            dialect: footer.dialect,
            account: account.clone(),
            bytes: account.buffer(0, "manifest")?,
            parsed: AtomicUsize::new(0),
            at: footer.at,
            index: Vec::new(),
            shards: Vec::new(),
            attributes: None,
            version: None,
            components: 0,
        };
        let empty = match footer.dialect {
            Dialect::V01 | Dialect::V2 => footer.len == 0,
            _ => false,
        };
        if !empty {
            manifest.index(&bytes, footer)?;
        }
        bytes.release(0..bytes.len());
        manifest.bytes = bytes;
        Ok(manifest)
    }

    fn index(&mut self, bytes: &Buffer, footer: &Footer) -> Result<()> {
        let account = self.account.clone();
        let mut reader = CborReader::new(bytes, self.at, self.profile()).comparing_keys(&account);
        let mut rules = validate::Rules::new(footer, &account)?;
        if self.dialect == Dialect::V01 {
            reader.array("index", |r| {
                let at = r.pos();
                let tensor = tensor_01(r)?;
                Self::add(&mut self.index, &mut self.components, at, &tensor, &mut rules, &|_| Ok(None))?;
                self.has_parsed(bytes, r.pos().saturating_sub(at));
                Ok(())
            })?;
        } else {
            self.root(bytes, &mut reader, &mut rules)?;
        }
        reader.end("manifest")?;
        rules.finish()?;
        self.index.shrink_to_fit();
        self.shards.shrink_to_fit();
        Ok(())
    }

    /// Releases pages regularly, so that a scan over all tensors does not keep the whole manifest resident.
    fn has_parsed(&self, bytes: &Buffer, len: usize) {
        let before = self.parsed.fetch_add(len, atomic::Ordering::Relaxed);
        if before.saturating_add(len) > RELEASE && self.parsed.swap(0, atomic::Ordering::Relaxed) > 0 {
            bytes.release(0..bytes.len());
        }
    }

    fn profile(&self) -> Profile {
        if self.dialect == Dialect::V2 { Profile::Strict } else { Profile::Lenient }
    }

    fn root(&mut self, bytes: &Buffer, reader: &mut CborReader<'_>, rules: &mut validate::Rules) -> Result<()> {
        let start = reader.here();
        let list = if self.dialect == Dialect::V10 { "tensors" } else { "objects" };
        let mut listed = false;
        let dialect = self.dialect;
        reader.map("manifest", false, |r, key, _| match &*key {
            key if key == list => {
                listed = true;
                r.map("tensors", true, |r, name, at| {
                    let tensor = tensor(r, dialect, name)?;
                    let find = |name: &str| find_shard(r, &self.shards, name);
                    let find: validate::FindShard<'_> =
                        &|name| Ok(find(name)?.map(|(number, shard)| (number, shard.size)));
                    Self::add(&mut self.index, &mut self.components, at, &tensor, rules, find)?;
                    self.has_parsed(bytes, r.pos().saturating_sub(at));
                    Ok(())
                })
            }
            "version" if dialect < Dialect::V2 => {
                let at = r.here();
                let version = r.text("version")?.into_owned();
                syntax::version(&version).map_err(|e| e.at(at))?;
                if dialect == Dialect::V11 && version.starts_with("1.2") {
                    self.dialect = Dialect::V12;
                }
                self.version = Some(version);
                Ok(())
            }
            "attributes" => {
                self.attributes = Some(attributes(r, dialect)?);
                Ok(())
            }
            "shards" if dialect == Dialect::V2 => r.map("shards", true, |r, name, at| {
                shard(r, name)?;
                push_place(&mut self.shards, at)?;
                Limits::check(to_u64(self.shards.len()), MAX_ENTRIES, "number of shards").map(drop)
            }),
            _ => r.skip("unknown field"),
        })?;
        if dialect < Dialect::V2 && self.version.is_none() {
            return Err(Error::corrupt("is missing", "version").at(start));
        }
        if !listed {
            return Err(Error::corrupt(format!("the map {list} is missing"), "manifest").at(start));
        }
        Ok(())
    }

    fn add(
        index: &mut Vec<u32>,
        components: &mut u64,
        at: usize,
        tensor: &Tensor<'_>,
        rules: &mut validate::Rules,
        shards: validate::FindShard<'_>,
    ) -> Result<()> {
        *components = components.saturating_add(to_u64(tensor.components.len()));
        let entries = components.saturating_add(to_u64(index.len()));
        Limits::check(entries, MAX_ENTRIES, "number of tensors").map_err(|e| e.at(tensor.described_at))?;
        rules.tensor(tensor, shards).map_err(|e| e.at(tensor.described_at).within(quoted(&tensor.name)))?;
        push_place(index, at)
    }

    /// The number of tensors.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The manifest as it is stored.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn reader(&self, pos: usize, depth: u32) -> CborReader<'_> {
        CborReader::new(&self.bytes, self.at, self.profile()).at(pos, depth)
    }

    /// Parses tensor `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if `index` is out of range.
    pub(super) fn tensor(&self, index: usize) -> Result<Tensor<'_>> {
        let pos = self.index.get(index).ok_or_else(|| Error::new(Kind::NotFound, "tensor"))?;
        let pos = usize::try_from(*pos).unwrap_or(usize::MAX);
        let mut reader = self.reader(pos, if self.dialect == Dialect::V01 { 1 } else { 2 });
        let tensor = if self.dialect == Dialect::V01 {
            tensor_01(&mut reader)
        } else {
            let name = reader.text("name")?;
            tensor(&mut reader, self.dialect, name)
        };
        self.has_parsed(&self.bytes, reader.pos().saturating_sub(pos));
        tensor
    }

    /// The number of shards.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Parses shard `number`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if `number` is out of range.
    pub(super) fn shard(&self, number: usize) -> Result<Shard<'_>> {
        let pos = self.shards.get(number).ok_or_else(|| Error::new(Kind::NotFound, "shard"))?;
        shard_at(self.reader(0, 2), *pos)
    }

    /// Finds a shard by name; returns its index and the shard.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub(super) fn shard_named(&self, name: &str) -> Result<(usize, Shard<'_>)> {
        find_shard(&self.reader(0, 2), &self.shards, name)?.ok_or_else(|| Error::new(Kind::NotFound, "shard"))
    }

    /// The attributes of the file as JSON, or a note if they take more than `most` bytes of the manifest.
    pub(super) fn own_attributes(&self, most: usize) -> Option<Value> {
        let range = self.attributes.as_ref()?;
        if range.len() > most {
            return Some(format!("{} bytes, in manifest.json", range.len()).into());
        }
        self.reader(range.start, 1).json(&self.account, "attributes").ok()
    }

    /// Writes the attributes at `range` as JSON, at nesting level `depth`.
    ///
    /// # Errors
    /// Fails if the text exceeds its limit or the account is exhausted.
    pub(super) fn attributes_text(&self, range: &Range<usize>, depth: usize, out: &mut Spool) -> Result<()> {
        self.reader(range.start, 3).json_text(depth, out, "attributes")
    }

    /// The whole manifest as JSON.
    ///
    /// # Errors
    /// Fails if it is longer than `most` bytes or the account is exhausted.
    pub(super) fn json(&self, most: u64) -> Result<Spool> {
        let mut out = Spool::new(&self.account, most, "manifest.json");
        if self.bytes.is_empty() {
            out.json(&Value::Null)?;
        } else {
            self.reader(0, 0).json_text(0, &mut out, "manifest")?;
            self.bytes.release(0..self.bytes.len());
        }
        out.push(b"\n")?;
        Ok(out)
    }
}

/// Reads the stored manifest and verifies it against its hash, if it has one.
fn stored(source: &Source, footer: &Footer, account: &Account) -> Result<Buffer> {
    let have = source.len().saturating_sub(footer.at.0);
    if footer.len > have {
        return Err(Error::new(Kind::Truncated { need: footer.len, have }, "manifest").at(footer.at));
    }
    let mut bytes = account.buffer(footer.len, "manifest")?;
    let mut hasher = Xxh3Default::new();
    let mut at = 0_usize;
    while at < bytes.len() {
        let range = at..bytes.len().min(at.saturating_add(RELEASE));
        let window = bytes.get_mut(range.clone()).unwrap_or_default();
        source.read(footer.at.plus(to_u64(at)), window, "manifest")?;
        hasher.update(window);
        bytes.release(range.clone());
        at = range.end;
    }
    if let Some(stored) = footer.hash {
        let computed = if bytes.is_empty() { 0 } else { hasher.digest() };
        if stored != computed {
            return Err(Error::new(Kind::Checksum { stored, computed }, "manifest hash").at(footer.at));
        }
    }
    Ok(bytes)
}

/// Adds a manifest position to an index.
fn push_place(index: &mut Vec<u32>, at: usize) -> Result<()> {
    let too_far = || Error::new(Kind::TooLarge { value: to_u64(at), limit: u64::from(u32::MAX) }, "manifest");
    index.push(u32::try_from(at).map_err(|_| too_far())?);
    Ok(())
}
