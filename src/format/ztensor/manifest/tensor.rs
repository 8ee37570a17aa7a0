//! Tensors of a manifest and their components: how each dialect describes them.
//!
//! Reference: sections 3 to 6.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::ops::Range;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::format::ztensor::cbor::CborReader;
use crate::format::ztensor::dtype::TensorElement;
use crate::format::ztensor::footer::Dialect;
use crate::format::ztensor::syntax::attribute_name;
use crate::limits::Limits;

/// Maximum components of one tensor: they are all in memory at once.
const MAX_COMPONENTS: u64 = 4096;
const MAX_RANK: u64 = 64;

/// How the stored bytes of a component become its decoded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::format::ztensor) enum Encoding<'a> {
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
pub(in crate::format::ztensor) struct Component<'a> {
    /// Its role: `data`, `values`, `indices`.
    pub(in crate::format::ztensor) role: Cow<'a, str>,
    /// The name of its stored element type.
    pub(in crate::format::ztensor) dtype: Cow<'a, str>,
    /// The name of its logical type, if it has one.
    pub(in crate::format::ztensor) logical: Option<Cow<'a, str>>,
    /// Its offset in its file.
    pub(in crate::format::ztensor) at: FileOffset,
    /// Stored size in bytes.
    pub(in crate::format::ztensor) len: u64,
    /// Decoded size in bytes, if the manifest states it.
    pub(in crate::format::ztensor) decoded: Option<u64>,
    /// How it is encoded.
    pub(in crate::format::ztensor) encoding: Encoding<'a>,
    /// Its checksum: `crc32c:0x1A2B3C4D`.
    pub(in crate::format::ztensor) digest: Option<Cow<'a, str>>,
    /// The name of the shard that contains it, if it is in another file.
    pub(in crate::format::ztensor) shard: Option<Cow<'a, str>>,
    /// The byte order, in 0.1.
    pub(in crate::format::ztensor) endianness: Option<Cow<'a, str>>,
    /// Offset of its description in the file.
    pub(in crate::format::ztensor) described_at: FileOffset,
}

impl Component<'_> {
    /// Its element type: the logical type if it has one, else the stored type. `None` for an unknown type.
    pub(in crate::format::ztensor) fn element(&self) -> Option<TensorElement> {
        match &self.logical {
            Some(name) => TensorElement::logical(name),
            None => TensorElement::stored(&self.dtype),
        }
    }
}

/// One tensor.
#[derive(Debug, Clone)]
pub(in crate::format::ztensor) struct Tensor<'a> {
    /// Its name; any text.
    pub(in crate::format::ztensor) name: Cow<'a, str>,
    /// Elements per dimension, slowest first.
    pub(in crate::format::ztensor) shape: Vec<u64>,
    /// How its components represent it: `dense`, `sparse_csr`.
    pub(in crate::format::ztensor) layout: Cow<'a, str>,
    /// Its components, in manifest order.
    pub(in crate::format::ztensor) components: Vec<Component<'a>>,
    /// Range of its attributes in the manifest.
    pub(in crate::format::ztensor) attributes: Option<Range<usize>>,
    /// Offset of its description in the file.
    pub(in crate::format::ztensor) described_at: FileOffset,
}

impl<'a> Tensor<'a> {
    /// The component with role `role`.
    pub(in crate::format::ztensor) fn component(&self, role: &str) -> Option<&Component<'a>> {
        self.components.iter().find(|p| p.role == role)
    }

    /// The number of elements; `None` on overflow.
    pub(in crate::format::ztensor) fn count(&self) -> Option<u64> {
        // Even with a dimension of 0, the product of the dimensions before it must fit.
        self.shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d))
    }

    /// Whether it is one array in one component.
    pub(in crate::format::ztensor) fn is_dense(&self) -> bool {
        self.layout == "dense" && self.component("data").is_some()
    }

    /// Whether its layout is compressed sparse rows.
    pub(in crate::format::ztensor) fn is_csr(&self) -> bool {
        matches!(&*self.layout, "sparse_csr" | "zt.sparse_csr/1")
    }

    /// Whether its layout is a coordinate list.
    pub(in crate::format::ztensor) fn is_coo(&self) -> bool {
        matches!(&*self.layout, "sparse_coo" | "zt.sparse_coo/1")
    }
}

/// Skips attributes; returns their range.
pub(super) fn attributes(r: &mut CborReader<'_>, dialect: Dialect) -> Result<Range<usize>> {
    let start = r.pos();
    r.map("attributes", true, |r, key, _| {
        attribute_name(&key, dialect).map_err(|e| e.at(r.here()))?;
        r.skip_free("attribute")
    })?;
    Ok(start..r.pos())
}

pub(super) fn need<T>(field: Option<T>, what: &'static str, at: FileOffset) -> Result<T> {
    field.ok_or_else(|| Error::corrupt("is missing", what).at(at))
}

fn shape(r: &mut CborReader<'_>) -> Result<Vec<u64>> {
    let at = r.here();
    let mut shape = Vec::new();
    r.array("shape", |r| {
        Limits::check(to_u64(shape.len()).saturating_add(1), MAX_RANK, "rank").map_err(|e| e.at(at))?;
        shape.push(r.unsigned("shape")?);
        Ok(())
    })?;
    Ok(shape)
}

/// An object of dialects 1.0 to 2, after its key.
pub(super) fn tensor<'a>(r: &mut CborReader<'a>, dialect: Dialect, name: Cow<'a, str>) -> Result<Tensor<'a>> {
    let described_at = r.here();
    let (components_key, layout_key) =
        if dialect == Dialect::V2 { ("parts", "layout") } else { ("components", "format") };
    let (mut dims, mut layout, mut parts, mut attrs, mut dtype) = (None, None, None, None, None);
    r.map("tensor", false, |r, key, _| {
        match &*key {
            "shape" => dims = Some(shape(r)?),
            "dtype" if dialect == Dialect::V10 => dtype = Some(r.text("dtype")?),
            "attributes" if dialect > Dialect::V10 => attrs = Some(attributes(r, dialect)?),
            key if key == layout_key => layout = Some(r.text("layout")?),
            key if key == components_key => {
                let mut all = Vec::new();
                r.map("components", true, |r, role, _| {
                    Limits::check(to_u64(all.len()).saturating_add(1), MAX_COMPONENTS, "number of components")
                        .map_err(|e| e.at(described_at))?;
                    all.push(component(r, dialect, role)?);
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
        components: need(parts, "components", described_at)?,
        attributes: attrs,
        described_at,
    };
    if dialect == Dialect::V10 {
        // The tensor has one type; counts and indices are always 64-bit unsigned.
        let dtype = need(dtype, "dtype", described_at)?;
        let sparse = tensor.is_csr() || tensor.is_coo();
        for part in &mut tensor.components {
            let index = sparse && matches!(&*part.role, "indices" | "indptr" | "coords");
            part.dtype = if index { Cow::Borrowed("u64") } else { dtype.clone() };
        }
    }
    Ok(tensor)
}

fn component<'a>(r: &mut CborReader<'a>, dialect: Dialect, role: Cow<'a, str>) -> Result<Component<'a>> {
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
                        return Err(Error::corrupt("has more than two numbers", "blob").at(place));
                    }
                    pair.push(r.unsigned("blob")?);
                    Ok(())
                })?;
                let &[offset, length] = pair.as_slice() else {
                    return Err(Error::corrupt("must have two numbers: offset and length", "blob").at(place));
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
        return Err(Error::corrupt("present without encoding, or missing beside it", "decoded_length").at(described_at));
    }
    // In 1.0 the tensor has the type; `tensor` fills it in.
    let dtype = if dialect == Dialect::V10 { Cow::Borrowed("") } else { need(dtype, "dtype", described_at)? };
    Ok(Component {
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

/// A tensor of dialect 0.1: one map, one component.
pub(super) fn tensor_01<'a>(r: &mut CborReader<'a>) -> Result<Tensor<'a>> {
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
    let part = Component {
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
        components: vec![part],
        attributes: None,
        described_at,
    })
}
