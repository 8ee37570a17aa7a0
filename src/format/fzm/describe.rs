//! The metadata of an FZM file, for `info.json` and the descriptions in the tree.
#![forbid(unsafe_code)]

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::checksum::ChecksumGate;
use crate::format::about::Attributes;
use crate::format::{Array, Info, ratio};

use super::device::is_read;
use super::graph::{Origin, Port};
use super::header::BufferEntry;
use super::pipeline::{Pipeline, StageBuffer};
use super::stage::DataType;

/// `info.json` of the whole file.
pub(super) fn info(p: &Pipeline) -> Info {
    let header = &p.header;
    let decoded = decoded_size(p);
    let mut details = Map::new();
    let mut put = |key: &str, value: Value| details.insert(key.to_owned(), value);
    put("uncompressed_size", header.uncompressed_size.into());
    put("compressed_size", header.compressed_size.into());
    put("header_size", header.header_size.into());
    put("ratio", decoded.map_or(Value::Null, |n| ratio(n, header.compressed_size)));
    put("codec", codec(p).into());
    put("flags", header.flags.into());
    let without = without_kernels(p);
    put("device", (if without.is_empty() { "cuda" } else { "cpu" }).into());
    put("no_kernel", without.into());
    put("sources", p.sources().enumerate().map(|(n, (stage, buffer))| source(n, stage, buffer.ok())).collect());
    put("pipeline", (0..p.stages.len()).map(|index| stage(p, index)).collect());
    put("buffers", (0..header.buffers.len()).filter_map(|index| buffer(p, index)).collect());
    Info {
        format: "fzm",
        format_version: header.version.to_string(),
        file_size: p.source.len(),
        decoded_size: decoded,
        checksums: checksums(p),
        checksum_count: Some([p.header.header_checksum, p.header.data_checksum].iter().flatten().map(|_| 1).sum()),
        details,
    }
}

/// The bytes of the data; `None` if something unknown or broken hides them. Sources that read the same data count once.
pub(super) fn decoded_size(p: &Pipeline) -> Option<u64> {
    let mut lengths = p.sources().map(|(_, buffer)| buffer.ok().map(|buffer| buffer.stream.len()));
    let first = lengths.next()??;
    let is_shared = p.header.source_sizes.iter().all(|&size| size == p.header.uncompressed_size);
    if is_shared { Some(first) } else { lengths.try_fold(first, |sum, len| sum.checked_add(len?)) }
}

/// Names of the stages between the sources and the stored segments that have no GPU kernel for their inverse.
fn without_kernels(p: &Pipeline) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (source, _) in p.sources() {
        for port in p.main_chain(source) {
            let name = p.stages.get(port.stage).map_or("unknown", |stage| stage.name());
            if !has_kernel(p, port).unwrap_or(false) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Whether a GPU can compute the inverse of a stage for an input, given the stage's own input; `None` if that is
/// unknown or broken.
fn has_kernel(p: &Pipeline, input: Port) -> Option<bool> {
    let stream = &p.inverse(input)?.ok()?.stream;
    Some(is_read(&**stream) || Arc::clone(stream).derivation().is_some())
}

/// The file name of source `n`, without suffix: `data`, `source1`, ...
pub(super) fn source_name(n: usize) -> String {
    match n {
        0 => "data".to_owned(),
        n => format!("source{n}"),
    }
}

/// `lorenzo_quant -> rle`, with branches in brackets; several sources are separated by commas.
pub(super) fn codec(p: &Pipeline) -> String {
    p.sources().map(|(stage, _)| codec_of(p, stage)).collect::<Vec<_>>().join(", ")
}

/// The codec below the output of the inverse of stage `index`. A stage that several branches reach is followed once.
pub(super) fn codec_of(p: &Pipeline, index: usize) -> String {
    codec_below(p, index, &mut Vec::new())
}

fn codec_below(p: &Pipeline, index: usize, seen: &mut Vec<usize>) -> String {
    let Some(stage) = p.stages.get(index) else { return String::new() };
    if seen.contains(&index) {
        return stage.name().to_owned();
    }
    seen.push(index);
    let next: Vec<(u16, usize)> = p
        .output_ids(index)
        .filter_map(|id| match p.graph.origin(id)? {
            Origin::Inverse(next) => Some((id, next.stage)),
            Origin::Segment(_) => None,
        })
        .collect();
    match next.as_slice() {
        [] => stage.name().to_owned(),
        [(_, next)] => format!("{} -> {}", stage.name(), codec_below(p, *next, seen)),
        several => {
            let mut branches = Vec::new();
            for (id, next) in several {
                branches.push(format!("{}: {}", p.port_name(*id), codec_below(p, *next, seen)));
            }
            format!("{} -> [{}]", stage.name(), branches.join(", "))
        }
    }
}

/// Configuration fields for the error bound of values, by the names of their attributes; the more precise fields come
/// first.
const BOUNDS: [(&str, &[&str]); 3] = [
    ("error_bound", &["abs_error_bound_f64", "error_bound_f64", "abs_error_bound", "error_bound"]),
    ("error_bound_mode", &["eb_mode", "error_mode"]),
    ("user_error_bound", &["user_error_bound", "user_eb"]),
];

/// The attributes of the input of stage `index`: the codec, and the error bound if a stage below has one.
pub(super) fn attributes(p: &Pipeline, index: usize) -> Attributes {
    let mut attributes = Attributes::new();
    attributes.insert("pipeline".to_owned(), codec_of(p, index).into());
    let stages = p.main_chain(index).filter_map(|port| p.stages.get(port.stage));
    for config in stages.map(|stage| stage.config().fields()) {
        for (name, fields) in BOUNDS {
            let is_set = |value: &&Value| value.as_f64() != Some(0.0);
            if let Some(value) = fields.iter().find_map(|&field| config.get(field).filter(is_set)) {
                attributes.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
    attributes
}

/// One stage: its place in the graph, and its configuration by field name.
pub(super) fn stage(p: &Pipeline, index: usize) -> Value {
    let (Some(stage), Some(info)) = (p.stages.get(index), p.header.stages.get(index)) else { return Value::Null };
    let decoded = |input| p.inverse(input).and_then(Result::ok);
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put("index", index.into());
    put("name", stage.name().into());
    put("stage_type", info.stage_type.into());
    put("stage_version", info.stage_version.into());
    put("config", stage.config().fields().into());
    put("config_size", info.config.len().into());
    let input = |(input, id): (Port, u16)| port(p, id, stage.input_type(input.port), decoded(input));
    put("inputs", p.inputs(index).map(input).collect());
    let output = |(n, id)| port(p, id, p.output_type(index, n, id), p.buffer(id).and_then(Result::ok));
    put("outputs", p.output_ids(index).enumerate().map(output).collect());
    put("decoded_whole", decoded(Port { stage: index, port: 0 }).map(|b| b.stream.is_whole()).into());
    let device = has_kernel(p, Port { stage: index, port: 0 });
    put("device", device.map(|is_there| if is_there { "cuda" } else { "cpu" }).into());
    put("primary", info.is_primary().into());
    put("redundant", (!p.is_used(index)).into());
    if let Some(Err(e)) = p.inverses.get(index) {
        put("error", e.to_string().into());
    }
    map.into()
}

/// One entry of the buffer table, field by field.
pub(super) fn buffer(p: &Pipeline, index: usize) -> Option<Value> {
    let entry: &BufferEntry = p.header.buffers.get(index)?;
    let producer = p.graph.producer(entry.dag_buffer_id).and_then(|port| p.stages.get(port.stage));
    Some(json!({
        "name": String::from_utf8_lossy(&entry.name),
        "stage_type": entry.stage_type,
        "stage_name": producer.map(|stage| stage.name()),
        "stage_version": entry.stage_version,
        "data_type": entry.data_type,
        "data_type_name": DataType::from_code(entry.data_type).map(DataType::name),
        "producer_output_idx": entry.producer_output_idx,
        "dag_buffer_id": entry.dag_buffer_id,
        "data_size": entry.data_size,
        "allocated_size": entry.allocated_size,
        "uncompressed_size": entry.uncompressed_size,
        "byte_offset": entry.byte_offset,
        "file_offset": p.header.segment_at(entry).0,
        "stage_config": hex(&entry.config),
        "config_size": entry.config.len(),
    }))
}

fn source(n: usize, stage: usize, buffer: Option<&StageBuffer>) -> Value {
    let array = buffer.and_then(|b| b.array.as_ref());
    json!({
        "file": format!("{}.raw", source_name(n)),
        "stage": stage,
        "dtype": buffer.map(|b| b.data_type.name()),
        "shape": array.map(|a| a.shape.clone()),
        "size": buffer.map(|b| b.stream.len()),
        "array_size": array.and_then(Array::byte_len),
    })
}

fn port(p: &Pipeline, id: u16, data_type: DataType, buffer: Option<&StageBuffer>) -> Value {
    json!({
        "buffer": id,
        "port": p.port_name(id),
        "dtype": data_type.name(),
        "size": buffer.map(|b| b.stream.len()),
    })
}

fn checksums(p: &Pipeline) -> Value {
    let crc = |stored: u32, covers: &str, verified: Option<bool>| json!({"algorithm": "crc32", "stored": format!("{stored:#010x}"), "covers": covers, "verified": verified});
    let verdict = p.gate.as_ref().and_then(ChecksumGate::verdict).map(|verdict| verdict.is_ok());
    json!({
        "header": p.header.header_checksum.map(|stored| crc(stored, "header", Some(true))),
        "data": p.header.data_checksum.map(|stored| crc(stored, "payload", verdict)),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
