//! The content of `info.json` for a frame or a bare chunk.
#![forbid(unsafe_code)]

use serde_json::{Map, Value, json};

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::about::Attributes;
use crate::format::{Info, ratio};

use super::b2nd;
use super::entries::DecodedFrame;
use super::frame::Frame;
use super::header::{ChunkHeader, Codec, Filter, Slots};
use super::metalayer::Metalayer;
use super::msgpack::to_hex;
use super::registry::{codec_name, filter_name};

/// The format's name.
pub(super) const NAME: &str = "blosc2";

/// The description of a container in `file_size` bytes; `decoded` is its decoded size. Only an archive has checksums,
/// one for each of its `members`.
pub(super) fn container(
    format_version: String,
    (file_size, decoded_size): (u64, Option<u64>),
    members: Option<usize>,
    details: Map<String, Value>,
) -> Info {
    let checksums = if members.is_some() { "crc-32 of each member" } else { "none" }.into();
    let checksum_count = Some(members.map_or(0, to_u64));
    Info { format: NAME, format_version, file_size, decoded_size, checksums, checksum_count, details }
}

/// Adds the attributes of the root of a store, or why they cannot be read.
pub(super) fn with_attributes(details: &mut Map<String, Value>, attributes: Option<Result<Attributes>>) {
    match attributes {
        Some(Ok(attributes)) => drop(details.insert("attributes".into(), attributes.into())),
        Some(Err(error)) => drop(details.insert("attributes_unreadable".into(), error.to_string().into())),
        None => {}
    }
}

/// The details of a frame.
pub(super) fn frame(frame: &Frame, decoded: &DecodedFrame) -> Map<String, Value> {
    let header = &frame.header;
    let levels = ["always", "never", "auto", "forward compatible"];
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| drop(map.insert(key.into(), value));
    put("kind", if header.sparse { "sparse frame" } else { "contiguous frame" }.into());
    put("offset", frame.start.0.into());
    put("frame_len", header.frame_len.into());
    put("header_len", header.header_len.into());
    put("nbytes", header.nbytes.into());
    put("cbytes", header.cbytes.into());
    put("ratio", ratio(header.nbytes, header.cbytes));
    put("typesize", header.typesize.into());
    put("chunksize", header.chunksize.into());
    put("blocksize", header.blocksize.into());
    put("chunks", decoded.chunks.count().into());
    let codec = header.codec_flags & 0x0f;
    let id = if codec == 6 { header.codec_id } else { codec };
    put("codec", codec_name(id).into());
    put("codec_meta", header.codec_meta.into());
    put("level", (header.codec_flags >> 4).into());
    put("filters", filters(&header.filters));
    put("split_mode", levels.get(usize::from(header.split_mode)).copied().into());
    put("dictionaries", header.dictionaries.into());
    put("variable_chunks", (header.general_flags & 0x40 != 0).into());
    put("vl_blocks", (header.general_flags & 0x80 != 0).into());
    let array = frame.array.as_ref().ok().and_then(Option::as_ref);
    put("array", array.map_or(Value::Null, |array| geometry(array, header.typesize)));
    put("metalayers", names(&frame.metalayers));
    put("vlmetalayers", frame.vlmetalayers.as_ref().map_or(Value::Null, |layers| names(layers)));
    let unknown: Map<String, Value> =
        frame.unknown().map(|(part, error)| (part.to_owned(), error.to_string().into())).collect();
    if !unknown.is_empty() {
        put("unknown", unknown.into());
    }
    let print = frame.fingerprint;
    let value = to_hex(&print.value);
    put("fingerprint", if print.kind == 0 { Value::Null } else { json!({ "type": print.kind, "value": value }) });
    map
}

/// The details of a bare chunk.
pub(super) fn chunk(header: &ChunkHeader) -> Map<String, Value> {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| drop(map.insert(key.into(), value));
    put("kind", "bare chunk".into());
    put("nbytes", header.nbytes.into());
    put("cbytes", header.cbytes.into());
    put("ratio", ratio(header.nbytes.into(), header.cbytes.into()));
    put("typesize", header.typesize.into());
    put("blocksize", header.blocksize.into());
    put("codec", header.codec_name().into());
    let Codec { format, id, meta, .. } = header.codec;
    put("codec_format", format.into());
    put("codec_id", id.into());
    put("codec_meta", meta.into());
    put("filters", filters(&header.filters));
    put("split", (!header.unsplit).into());
    put("dictionary", header.dictionary.into());
    map
}

fn geometry(array: &b2nd::Geometry, typesize: u32) -> Value {
    json!({
        "shape": array.shape,
        "chunkshape": array.chunk,
        "blockshape": array.block,
        "dtype": array.dtype,
        "descr": array.descr(typesize).descr,
    })
}

fn filters(slots: &Slots) -> Value {
    let used = slots.iter().filter(|filter| filter.id != 0);
    used.map(|&Filter { id, meta }| json!({ "name": filter_name(id), "id": id, "meta": meta })).collect()
}

fn names(layers: &[Metalayer]) -> Value {
    layers.iter().map(|layer| json!({ "name": String::from_utf8_lossy(&layer.name), "stored": layer.len })).collect()
}
