//! The manifest: read and checked once, then kept as bytes with an index; a tensor is parsed on access.
//!
//! Reference: sections 3 to 6 and 10.
//!
//! Limits: 256 MiB of manifest, charged to the account; 4 million tensors, parts and shards; 4096 parts of a tensor;
//! rank 64. The index takes 4 bytes per tensor and shard.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::atomic::{self, AtomicUsize};

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

use crate::account::{Account, Buffer};
use crate::bytes::{FileOffset, to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::Source;

use super::cbor::{Profile, Reader};
use super::check;
use super::dtype::Element;
use super::footer::{Dialect, Footer};
use super::quoted::quoted;
use super::spool::Spool;

/// Maximum tensors and parts together; also maximum shards.
const MAX_ENTRIES: u64 = 4_000_000;
/// Maximum parts of one tensor: they are all in memory at once.
const MAX_PARTS: u64 = 4096;
const MAX_RANK: u64 = 64;
/// Bytes of a file-backed manifest that are parsed before its pages are released.
const RELEASE: usize = 8 << 20;

/// How the stored bytes of a part become its decoded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Encoding<'a> {
    /// Not encoded.
    Raw,
    /// Zstandard frames (0.1 to 1.2).
    Zstd,
    /// Zstandard frames of equal size with a seek table (2).
    Seekable,
    /// An unknown encoding, by its name.
    Unknown(Cow<'a, str>),
}

/// One component of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Part<'a> {
    /// Its role: `data`, `values`, `indices`.
    pub(super) role: Cow<'a, str>,
    /// The name of its stored element type.
    pub(super) dtype: Cow<'a, str>,
    /// The name of its logical type, if it has one.
    pub(super) logical: Option<Cow<'a, str>>,
    /// Its offset in its file.
    pub(super) at: FileOffset,
    /// Stored size in bytes.
    pub(super) len: u64,
    /// Decoded size in bytes, if the manifest states it.
    pub(super) decoded: Option<u64>,
    /// How it is encoded.
    pub(super) encoding: Encoding<'a>,
    /// Its checksum: `crc32c:0x1A2B3C4D`.
    pub(super) digest: Option<Cow<'a, str>>,
    /// The name of the shard that contains it, if it is in another file.
    pub(super) shard: Option<Cow<'a, str>>,
    /// The byte order, in 0.1.
    pub(super) endianness: Option<Cow<'a, str>>,
    /// Offset of its description in the file.
    pub(super) described_at: FileOffset,
}

impl Part<'_> {
    /// Its element type: the logical type if it has one, else the stored type. `None` for an unknown type.
    pub(super) fn element(&self) -> Option<Element> {
        match &self.logical {
            Some(name) => Element::logical(name),
            None => Element::stored(&self.dtype),
        }
    }
}

/// One tensor.
#[derive(Debug, Clone)]
pub(super) struct Tensor<'a> {
    /// Its name; any text.
    pub(super) name: Cow<'a, str>,
    /// Elements per dimension, slowest first.
    pub(super) shape: Vec<u64>,
    /// How its parts represent it: `dense`, `sparse_csr`.
    pub(super) layout: Cow<'a, str>,
    /// Its parts, in manifest order.
    pub(super) parts: Vec<Part<'a>>,
    /// Range of its attributes in the manifest.
    pub(super) attributes: Option<Range<usize>>,
    /// Offset of its description in the file.
    pub(super) described_at: FileOffset,
}

impl<'a> Tensor<'a> {
    /// The part with role `role`.
    pub(super) fn part(&self, role: &str) -> Option<&Part<'a>> {
        self.parts.iter().find(|p| p.role == role)
    }

    /// The number of elements; `None` on overflow.
    pub(super) fn count(&self) -> Option<u64> {
        // Even with a dimension of 0, the product of the dimensions before it must fit.
        self.shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d))
    }

    /// Whether it is one array in one part.
    pub(super) fn is_dense(&self) -> bool {
        self.layout == "dense" && self.part("data").is_some()
    }

    /// Whether its layout is compressed sparse rows.
    pub(super) fn is_csr(&self) -> bool {
        matches!(&*self.layout, "sparse_csr" | "zt.sparse_csr/1")
    }

    /// Whether its layout is a coordinate list.
    pub(super) fn is_coo(&self) -> bool {
        matches!(&*self.layout, "sparse_coo" | "zt.sparse_coo/1")
    }
}

/// Another file that holds parts.
#[derive(Debug, Clone)]
pub(super) struct Shard<'a> {
    /// Its name.
    pub(super) name: Cow<'a, str>,
    /// Its size in bytes.
    pub(super) size: u64,
    /// Its checksum.
    pub(super) digest: Cow<'a, str>,
}

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
    /// The number of parts of all tensors.
    pub(super) parts: u64,
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
            parts: 0,
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
        let mut reader = Reader::new(bytes, self.at, self.profile()).comparing_keys(&account);
        let mut rules = check::Rules::new(footer, &account)?;
        if self.dialect == Dialect::V01 {
            reader.array("index", |r| {
                let at = r.pos();
                let tensor = tensor_01(r)?;
                Self::add(&mut self.index, &mut self.parts, at, &tensor, &mut rules, &|_| Ok(None))?;
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

    fn root(&mut self, bytes: &Buffer, reader: &mut Reader<'_>, rules: &mut check::Rules) -> Result<()> {
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
                    let find: check::FindShard<'_> =
                        &|name| Ok(find(name)?.map(|(number, shard)| (number, shard.size)));
                    Self::add(&mut self.index, &mut self.parts, at, &tensor, rules, find)?;
                    self.has_parsed(bytes, r.pos().saturating_sub(at));
                    Ok(())
                })
            }
            "version" if dialect < Dialect::V2 => {
                let at = r.here();
                let version = r.text("version")?.into_owned();
                check::version(&version).map_err(|e| e.at(at))?;
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
            return Err(Error::corrupt("there is none", "version").at(start));
        }
        if !listed {
            return Err(Error::corrupt(format!("there is no map of {list}"), "manifest").at(start));
        }
        Ok(())
    }

    fn add(
        index: &mut Vec<u32>,
        parts: &mut u64,
        at: usize,
        tensor: &Tensor<'_>,
        rules: &mut check::Rules,
        shards: check::FindShard<'_>,
    ) -> Result<()> {
        *parts = parts.saturating_add(to_u64(tensor.parts.len()));
        let entries = parts.saturating_add(to_u64(index.len()));
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

    fn reader(&self, pos: usize, depth: u32) -> Reader<'_> {
        Reader::new(&self.bytes, self.at, self.profile()).at(pos, depth)
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

/// The shard whose key is at `pos`.
fn shard_at(reader: Reader<'_>, pos: u32) -> Result<Shard<'_>> {
    let mut reader = reader.at(to_usize(u64::from(pos), "shard")?, 2);
    let name = reader.text("shards")?;
    shard(&mut reader, name)
}

/// Finds shard `name` by binary search. Its keys at `places` are in the order of dialect 2: by length, then by bytes.
fn find_shard<'a>(reader: &Reader<'a>, places: &[u32], name: &str) -> Result<Option<(usize, Shard<'a>)>> {
    let mut range = 0..places.len();
    while !range.is_empty() {
        let middle = range.start.midpoint(range.end);
        let Some(&pos) = places.get(middle) else { return Ok(None) };
        let key = reader.clone().at(to_usize(u64::from(pos), "shard")?, 2).text("shards")?;
        match (key.len(), &*key).cmp(&(name.len(), name)) {
            Ordering::Equal => return Ok(Some((middle, shard_at(reader.clone(), pos)?))),
            Ordering::Less => range.start = middle.saturating_add(1),
            Ordering::Greater => range.end = middle,
        }
    }
    Ok(None)
}

/// Skips attributes; returns their range.
fn attributes(r: &mut Reader<'_>, dialect: Dialect) -> Result<Range<usize>> {
    let start = r.pos();
    r.map("attributes", true, |r, key, _| {
        check::attribute_name(&key, dialect).map_err(|e| e.at(r.here()))?;
        r.skip_free("attribute")
    })?;
    Ok(start..r.pos())
}

fn shape(r: &mut Reader<'_>) -> Result<Vec<u64>> {
    let at = r.here();
    let mut shape = Vec::new();
    r.array("shape", |r| {
        Limits::check(to_u64(shape.len()).saturating_add(1), MAX_RANK, "rank").map_err(|e| e.at(at))?;
        shape.push(r.unsigned("shape")?);
        Ok(())
    })?;
    Ok(shape)
}

fn need<T>(field: Option<T>, what: &'static str, at: FileOffset) -> Result<T> {
    field.ok_or_else(|| Error::corrupt("is missing", what).at(at))
}

/// An object of dialects 1.0 to 2, after its key.
fn tensor<'a>(r: &mut Reader<'a>, dialect: Dialect, name: Cow<'a, str>) -> Result<Tensor<'a>> {
    let described_at = r.here();
    let (parts_key, layout_key) = if dialect == Dialect::V2 { ("parts", "layout") } else { ("components", "format") };
    let (mut dims, mut layout, mut parts, mut attrs, mut dtype) = (None, None, None, None, None);
    r.map("tensor", false, |r, key, _| {
        match &*key {
            "shape" => dims = Some(shape(r)?),
            "dtype" if dialect == Dialect::V10 => dtype = Some(r.text("dtype")?),
            "attributes" if dialect > Dialect::V10 => attrs = Some(attributes(r, dialect)?),
            key if key == layout_key => layout = Some(r.text("layout")?),
            key if key == parts_key => {
                let mut all = Vec::new();
                r.map("components", true, |r, role, _| {
                    Limits::check(to_u64(all.len()).saturating_add(1), MAX_PARTS, "number of components")
                        .map_err(|e| e.at(described_at))?;
                    all.push(part(r, dialect, role)?);
                    Ok(())
                })?;
                parts = Some(all);
            }
            _ => r.skip("unknown field")?,
        }
        Ok(())
    })?;
    let mut tensor = Tensor {
        name,
        shape: need(dims, "shape", described_at)?,
        layout: need(layout, "layout", described_at)?,
        parts: need(parts, "components", described_at)?,
        attributes: attrs,
        described_at,
    };
    if dialect == Dialect::V10 {
        // The tensor has one type; counts and indices are always 64-bit unsigned.
        let dtype = need(dtype, "dtype", described_at)?;
        let sparse = tensor.is_csr() || tensor.is_coo();
        for part in &mut tensor.parts {
            let index = sparse && matches!(&*part.role, "indices" | "indptr" | "coords");
            part.dtype = if index { Cow::Borrowed("u64") } else { dtype.clone() };
        }
    }
    Ok(tensor)
}

fn part<'a>(r: &mut Reader<'a>, dialect: Dialect, role: Cow<'a, str>) -> Result<Part<'a>> {
    let described_at = r.here();
    let (mut dtype, mut logical, mut at, mut len, mut decoded) = (None, None, None, None, None);
    let (mut encoding, mut digest, mut shard) = (None, None, None);
    r.map("component", false, |r, key, _| {
        match (&*key, dialect) {
            ("dtype", Dialect::V11 | Dialect::V12 | Dialect::V2) => dtype = Some(r.text("dtype")?),
            ("type", Dialect::V11 | Dialect::V12 | Dialect::V2) => logical = Some(r.text("type")?),
            ("offset", Dialect::V10 | Dialect::V11 | Dialect::V12) => at = Some(r.unsigned("offset")?),
            ("length", Dialect::V10 | Dialect::V11 | Dialect::V12) => len = Some(r.unsigned("length")?),
            ("uncompressed_length", Dialect::V11 | Dialect::V12) => decoded = Some(r.unsigned("uncompressed_length")?),
            ("decoded_length", Dialect::V2) => decoded = Some(r.unsigned("decoded_length")?),
            ("blob", Dialect::V2) => {
                let place = r.here();
                let mut pair = Vec::new();
                r.array("blob", |r| {
                    if pair.len() >= 2 {
                        return Err(Error::corrupt("more than two numbers", "blob").at(place));
                    }
                    pair.push(r.unsigned("blob")?);
                    Ok(())
                })?;
                let &[offset, length] = pair.as_slice() else {
                    return Err(Error::corrupt("not two numbers", "blob").at(place));
                };
                (at, len) = (Some(offset), Some(length));
            }
            ("encoding", _) => encoding = Some(r.text("encoding")?),
            ("digest", _) => digest = Some(r.text("digest")?),
            ("shard", Dialect::V2) => shard = Some(r.text("shard")?),
            _ => r.skip("unknown field")?,
        }
        Ok(())
    })?;
    if dialect == Dialect::V2 && encoding.is_some() != decoded.is_some() {
        return Err(Error::corrupt("encoding and decoded_length come together", "decoded_length").at(described_at));
    }
    // In 1.0 the tensor has the type; `tensor` fills it in.
    let dtype = if dialect == Dialect::V10 { Cow::Borrowed("") } else { need(dtype, "dtype", described_at)? };
    Ok(Part {
        role,
        dtype,
        logical,
        at: FileOffset(need(at, "offset", described_at)?),
        len: need(len, "length", described_at)?,
        decoded,
        encoding: encoding_of(encoding, dialect),
        digest,
        shard,
        endianness: None,
        described_at,
    })
}

fn encoding_of(name: Option<Cow<'_, str>>, dialect: Dialect) -> Encoding<'_> {
    match (name.as_deref(), dialect) {
        (None, _) => Encoding::Raw,
        (Some("raw"), d) if d < Dialect::V2 => Encoding::Raw,
        (Some("zstd"), d) if d < Dialect::V2 => Encoding::Zstd,
        (Some("zt.zstd-seekable/1"), Dialect::V2) => Encoding::Seekable,
        _ => name.map_or(Encoding::Raw, Encoding::Unknown),
    }
}

fn shard<'a>(r: &mut Reader<'a>, name: Cow<'a, str>) -> Result<Shard<'a>> {
    let at = r.here();
    let (mut size, mut digest) = (None, None);
    r.map("shard", false, |r, key, _| {
        match &*key {
            "size" => size = Some(r.unsigned("shard size")?),
            "digest" => digest = Some(r.text("shard digest")?),
            _ => r.skip("unknown field")?,
        }
        Ok(())
    })?;
    let shard = Shard { name, size: need(size, "shard size", at)?, digest: need(digest, "shard digest", at)? };
    check::shard(&shard).map_err(|e| e.at(at))?;
    Ok(shard)
}

/// A tensor of dialect 0.1: one map, one part.
fn tensor_01<'a>(r: &mut Reader<'a>) -> Result<Tensor<'a>> {
    let described_at = r.here();
    let (mut name, mut at, mut len, mut dtype, mut dims) = (None, None, None, None, None);
    let (mut layout, mut encoding, mut endianness, mut digest) = (None, None, None, None);
    r.map("tensor", false, |r, key, _| {
        match &*key {
            "name" => name = Some(r.text("name")?),
            "offset" => at = Some(r.unsigned("offset")?),
            "size" => len = Some(r.unsigned("size")?),
            "dtype" => dtype = Some(r.text("dtype")?),
            "shape" => dims = Some(shape(r)?),
            "layout" => layout = Some(r.text("layout")?),
            "encoding" => encoding = Some(r.text("encoding")?),
            "data_endianness" => endianness = Some(r.text("data_endianness")?),
            "checksum" => digest = Some(r.text("checksum")?),
            _ => r.skip_free("custom field")?,
        }
        Ok(())
    })?;
    let part = Part {
        role: Cow::Borrowed("data"),
        dtype: need(dtype, "dtype", described_at)?,
        logical: None,
        at: FileOffset(need(at, "offset", described_at)?),
        len: need(len, "size", described_at)?,
        decoded: None,
        encoding: encoding_of(encoding, Dialect::V01),
        digest,
        shard: None,
        endianness,
        described_at,
    };
    Ok(Tensor {
        name: need(name, "name", described_at)?,
        shape: need(dims, "shape", described_at)?,
        layout: layout.filter(|l| !l.is_empty()).unwrap_or(Cow::Borrowed("dense")),
        parts: vec![part],
        attributes: None,
        described_at,
    })
}
