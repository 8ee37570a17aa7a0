//! The manifest: read and checked once, then kept as bytes with an index; a tensor is parsed when it is
//! asked for.
//!
//! Reference: sections 3 to 6 and 10.
//!
//! Limits: 256 MiB of manifest; 4 million tensors and parts; rank 64. An index costs 4 bytes a tensor.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use crate::bytes::{FileOffset, wide};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::Source;

use super::cbor::{Profile, Reader};
use super::check;
use super::dtype::Element;
use super::footer::{Dialect, Footer};

/// Tensors and parts together.
const MAX_ENTRIES: u64 = 4_000_000;
const MAX_RANK: u64 = 64;

/// How the stored bytes of a part become its decoded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Encoding<'a> {
    /// They are.
    Raw,
    /// Zstandard frames (0.1 to 1.2).
    Zstd,
    /// Zstandard frames of equal size with a table (2).
    Seekable,
    /// Something else, by its name.
    Unknown(Cow<'a, str>),
}

/// One stretch of bytes of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Part<'a> {
    /// What it is for: `data`, `values`, `indices`.
    pub(super) role: Cow<'a, str>,
    /// The name of its stored element type.
    pub(super) dtype: Cow<'a, str>,
    /// The name of its logical type, where it has one.
    pub(super) logical: Option<Cow<'a, str>>,
    /// Where it lies in its file.
    pub(super) at: FileOffset,
    /// Bytes as stored.
    pub(super) len: u64,
    /// Bytes when decoded, where the manifest says.
    pub(super) decoded: Option<u64>,
    /// How it is encoded.
    pub(super) encoding: Encoding<'a>,
    /// Its checksum: `crc32c:0x1A2B3C4D`.
    pub(super) digest: Option<Cow<'a, str>>,
    /// The name of the file it lies in, where that is another one.
    pub(super) shard: Option<Cow<'a, str>>,
    /// The byte order, in 0.1.
    pub(super) endianness: Option<Cow<'a, str>>,
    /// Where its description lies in the file.
    pub(super) described_at: FileOffset,
}

impl Part<'_> {
    /// Its elements: the logical type where it is a known one, else the stored type. `None` for an
    /// unknown type.
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
    /// How its parts make it up: `dense`, `sparse_csr`.
    pub(super) layout: Cow<'a, str>,
    /// Its parts, in manifest order.
    pub(super) parts: Vec<Part<'a>>,
    /// Where its attributes lie in the manifest.
    pub(super) attributes: Option<Range<usize>>,
    /// Where its description lies in the file.
    pub(super) described_at: FileOffset,
}

impl<'a> Tensor<'a> {
    /// The part for `role`.
    pub(super) fn part(&self, role: &str) -> Option<&Part<'a>> {
        self.parts.iter().find(|p| p.role == role)
    }

    /// How many elements there are, or `None` beyond `u64`.
    pub(super) fn count(&self) -> Option<u64> {
        // A dimension of 0 makes the others harmless, but they have to be numbers that a reader can multiply.
        self.shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d))
    }

    /// Whether it is one array in one part.
    pub(super) fn is_dense(&self) -> bool {
        self.layout == "dense" && self.part("data").is_some()
    }

    /// Whether its parts are those of compressed sparse rows.
    pub(super) fn is_csr(&self) -> bool {
        matches!(&*self.layout, "sparse_csr" | "zt.sparse_csr/1")
    }

    /// Whether its parts are those of a coordinate list.
    pub(super) fn is_coo(&self) -> bool {
        matches!(&*self.layout, "sparse_coo" | "zt.sparse_coo/1")
    }
}

/// Another file that holds parts.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    /// Its name.
    pub(super) name: String,
    /// Its bytes.
    pub(super) size: u64,
    /// Its checksum.
    pub(super) digest: String,
}

/// A checked manifest.
#[derive(Debug)]
pub(super) struct Manifest {
    /// The dialect.
    pub(super) dialect: Dialect,
    bytes: Vec<u8>,
    /// Where it lies in the file.
    pub(super) at: FileOffset,
    /// Where each tensor's description starts: at the key of its map, or (0.1) at the map itself.
    index: Vec<u32>,
    /// The other files.
    pub(super) shards: Vec<Shard>,
    attributes: Option<Range<usize>>,
    /// The version it gives itself, in 1.x.
    pub(super) version: Option<String>,
    /// Parts of all tensors.
    pub(super) parts: u64,
}

impl Manifest {
    /// Reads the manifest that `footer` points at, and checks all that can be checked without the data.
    ///
    /// # Errors
    /// When it is broken or breaks a rule of its dialect.
    pub(super) fn read(source: &Source, footer: &Footer) -> Result<Self> {
        let bytes = source.get(footer.at, footer.len, "manifest")?;
        if let Some(stored) = footer.hash {
            let computed = if bytes.is_empty() { 0 } else { xxhash_rust::xxh3::xxh3_64(&bytes) };
            if stored != computed {
                return Err(Error::new(Kind::Checksum { stored, computed }, "manifest hash").at(footer.at));
            }
        }
        let mut manifest = Self {
            dialect: footer.dialect,
            bytes: Vec::new(),
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
        manifest.bytes = bytes;
        Ok(manifest)
    }

    fn index(&mut self, bytes: &[u8], footer: &Footer) -> Result<()> {
        let profile = if self.dialect == Dialect::V2 { Profile::Strict } else { Profile::Lenient };
        let mut reader = Reader::new(bytes, self.at, profile);
        let mut rules = check::Rules::new(footer);
        if self.dialect == Dialect::V01 {
            reader.array("index", |r| {
                let at = r.pos();
                let tensor = tensor_01(r)?;
                self.add(at, &tensor, &mut rules)
            })?;
        } else {
            self.root(&mut reader, &mut rules)?;
        }
        reader.end("manifest")?;
        rules.finish(&self.shards)?;
        self.index.shrink_to_fit();
        Ok(())
    }

    fn root(&mut self, reader: &mut Reader<'_>, rules: &mut check::Rules) -> Result<()> {
        let start = reader.here();
        let list = if self.dialect == Dialect::V10 { "tensors" } else { "objects" };
        let mut listed = false;
        let dialect = self.dialect;
        reader.map("manifest", false, |r, key, _| match &*key {
            key if key == list => {
                listed = true;
                r.map("tensors", true, |r, name, at| {
                    let tensor = tensor(r, dialect, name)?;
                    self.add(at, &tensor, rules)
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
            "shards" if dialect == Dialect::V2 => r.map("shards", true, |r, name, _| {
                let shard = shard(r, name.into_owned())?;
                self.shards.push(shard);
                Ok(())
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

    fn add(&mut self, at: usize, tensor: &Tensor<'_>, rules: &mut check::Rules) -> Result<()> {
        self.parts = self.parts.saturating_add(wide(tensor.parts.len()));
        let entries = self.parts.saturating_add(wide(self.index.len()));
        Limits::check(entries, MAX_ENTRIES, "number of tensors").map_err(|e| e.at(tensor.described_at))?;
        rules.tensor(tensor).map_err(|e| e.at(tensor.described_at).within(format_args!("{:?}", tensor.name)))?;
        let too_far = || Error::new(Kind::TooLarge { value: wide(at), limit: u64::from(u32::MAX) }, "manifest");
        self.index.push(u32::try_from(at).map_err(|_| too_far())?);
        Ok(())
    }

    /// How many tensors there are.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The manifest as it is stored.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn reader(&self, pos: usize, depth: u32) -> Reader<'_> {
        let profile = if self.dialect == Dialect::V2 { Profile::Strict } else { Profile::Lenient };
        Reader::new(&self.bytes, self.at, profile).at(pos, depth)
    }

    /// Tensor `index`, parsed now.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there are fewer.
    pub(super) fn tensor(&self, index: usize) -> Result<Tensor<'_>> {
        let pos = self.index.get(index).ok_or_else(|| Error::new(Kind::NotFound, "tensor"))?;
        let pos = usize::try_from(*pos).unwrap_or(usize::MAX);
        if self.dialect == Dialect::V01 {
            return tensor_01(&mut self.reader(pos, 1));
        }
        let mut reader = self.reader(pos, 2);
        let name = reader.text("name")?;
        tensor(&mut reader, self.dialect, name)
    }

    /// Attributes that lie at `range`, as JSON.
    pub(super) fn attributes(&self, range: Option<&Range<usize>>) -> Option<Value> {
        let range = range?;
        self.reader(range.start, 3).json("attributes").ok()
    }

    /// The attributes of the file, as JSON.
    pub(super) fn own_attributes(&self) -> Option<Value> {
        self.attributes(self.attributes.as_ref())
    }

    /// The whole manifest as JSON.
    ///
    /// # Errors
    /// Never for a manifest that was read.
    pub(super) fn json(&self) -> Result<Value> {
        if self.bytes.is_empty() {
            return Ok(Value::Null);
        }
        self.reader(0, 0).json("manifest")
    }
}

/// Passes over attributes; gives where they lie.
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
        Limits::check(wide(shape.len()).saturating_add(1), MAX_RANK, "rank").map_err(|e| e.at(at))?;
        shape.push(r.unsigned("shape")?);
        Ok(())
    })?;
    Ok(shape)
}

fn need<T>(field: Option<T>, what: &'static str, at: FileOffset) -> Result<T> {
    field.ok_or_else(|| Error::corrupt("is missing", what).at(at))
}

/// An object of dialects 1.0 to 2, behind its key.
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
        // One type for the tensor; what counts and indexes is always unsigned and 64 bits wide.
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
    // In 1.0 the type is the tensor's; it is filled in there.
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

fn shard(r: &mut Reader<'_>, name: String) -> Result<Shard> {
    let at = r.here();
    let (mut size, mut digest) = (None, None);
    r.map("shard", false, |r, key, _| {
        match &*key {
            "size" => size = Some(r.unsigned("shard size")?),
            "digest" => digest = Some(r.text("shard digest")?.into_owned()),
            _ => r.skip("unknown field")?,
        }
        Ok(())
    })?;
    let shard = Shard { name, size: need(size, "shard size", at)?, digest: need(digest, "shard digest", at)? };
    check::shard(&shard).map_err(|e| e.at(at))?;
    Ok(shard)
}

/// A tensor of dialect 0.1: one map, one blob.
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
