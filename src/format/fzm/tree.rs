//! The virtual tree of an FZM file.
//!
//! Shows as: the FZM section of the tree contract. Files of the same buffer share its blob.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::format::{ArrayList, Arrays, Attrs, Content, Entry, File, FileExtent, Node, numbered_dimensions};

use super::pipeline::{Pipeline, StageBuffer};
use super::{describe, diagram};
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::text;

/// The names of the last dimensions, slowest first.
const AXES: [&str; 3] = ["z", "y", "x"];

/// The entries of the root directory.
pub(super) fn entries(p: &Pipeline) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (n, (_, buffer)) in p.sources().enumerate() {
        let file = file(p, buffer, true);
        let file = if n == 0 { file.principal() } else { file };
        entries.push(Entry::named(describe::source_name(n), ".raw", file));
    }
    let diagram = diagram::Diagram::of(p);
    entries.push(Entry::own("pipeline.dot", File::new(Content::bytes(diagram.dot().into_bytes()))));
    entries.push(Entry::own("pipeline.svg", File::new(Content::bytes(diagram.svg().into_bytes()))));
    entries.push(Entry::own("stages", Node::dir(Attrs::new(), stages(p))));
    entries.push(Entry::own("buffers", Node::dir(Attrs::new(), buffers(p))));
    entries.push(Entry::own("stored", Node::dir(Attrs::new(), stored(p))));
    entries
}

/// The arrays: the sources, with dimensions z, y and x, and the decoded segments.
pub(super) fn arrays(p: &Pipeline) -> Option<Arc<dyn Arrays>> {
    let mut all = Vec::new();
    for (n, (_, buffer)) in p.sources().enumerate() {
        let file = file(p, buffer, true);
        let rank = file.array.as_ref().map_or(0, |array| array.shape.len());
        let names = match AXES.len().checked_sub(rank).and_then(|skip| AXES.get(skip..)) {
            Some(names) => names.iter().map(|&name| name.to_owned()).collect(),
            None => numbered_dimensions(rank),
        };
        let file = if n == 0 { file.principal() } else { file };
        all.push((describe::source_name(n).into_bytes(), Some(names), file));
    }
    for (entry, buffer) in p.header.buffers.iter().zip(&p.chain_inverses) {
        all.push(([b"buffers/", &*entry.name].concat(), None, file(p, buffer.as_ref().map_err(Error::clone), true)));
    }
    let has_any = all.iter().any(|(.., file)| file.array.is_some());
    has_any.then(|| -> Arc<dyn Arrays> { Arc::new(ArrayList::new(all)) })
}

fn stages(p: &Pipeline) -> Vec<Entry> {
    let mut dirs = Vec::new();
    for (index, (stage, info)) in p.stages.iter().zip(&p.header.stages).enumerate() {
        let config = to_u64(info.config.len());
        let config = FileExtent { source: p.source.clone(), at: info.config_at(), len: config, gate: None };
        let inputs = p
            .inputs(index)
            .filter_map(|(input, id)| Some(Entry::named(p.port_name(id), ".raw", file(p, p.inverse(input)?, false))));
        let outputs = p.output_ids(index).filter_map(|id| {
            let buffer = p.buffer(id)?;
            Some(Entry::named(p.port_name(id), ".raw", file(p, buffer, false)))
        });
        let entries = vec![
            Entry::own("info.json", File::new(Content::json(&describe::stage(p, index)))),
            Entry::own("config.bin", stored_file(config)),
            Entry::own("in", Node::dir(Attrs::new(), inputs.collect())),
            Entry::own("out", Node::dir(Attrs::new(), outputs.collect())),
        ];
        let attrs = vec![("codec", stage.name().to_owned()), ("offset", info.at.0.to_string())];
        dirs.push(Entry::named(format!("{index:02}-{}", stage.name()), "", Node::dir(attrs, entries)));
    }
    dirs
}

fn buffers(p: &Pipeline) -> Vec<Entry> {
    let mut files = Vec::new();
    for (index, (entry, chain_inverses)) in p.header.buffers.iter().zip(&p.chain_inverses).enumerate() {
        files.push(Entry::named(
            entry.name.clone(),
            ".raw",
            file(p, chain_inverses.as_ref().map_err(Error::clone), true),
        ));
        if let Some(json) = describe::buffer(p, index) {
            files.push(Entry::named(entry.name.clone(), ".json", File::new(Content::json(&json))));
        }
    }
    files
}

fn stored(p: &Pipeline) -> Vec<Entry> {
    let segments = p.header.buffers.iter().zip(&p.segments);
    segments.map(|(entry, segment)| Entry::named(entry.name.clone(), ".bin", file(p, Ok(segment), false))).collect()
}

/// A buffer as a file; `typed` adds an `.npy` file for it.
fn file(p: &Pipeline, buffer: Result<&StageBuffer>, typed: bool) -> File {
    let buffer = match buffer {
        Ok(buffer) => buffer,
        Err(e) => return File::new(Content::failed(None, e.clone())).attr("error", e),
    };
    let mut file = match &buffer.content {
        Content::FileExtent(stored) => stored_file(stored.clone()),
        content => File::new(content.clone()).stored(buffer.stored).attr("stored_size", buffer.stored),
    };
    file = file.attr("dtype", buffer.data_type.name());
    if let Some(array) = &buffer.array {
        file = file.attr("shape", text::shape(&array.shape));
    }
    if let Some(stage) = buffer.input_of {
        file = file.attr("codec", describe::codec_of(p, stage));
    }
    if let Some(crc) = p.header.data_checksum {
        file = file.attr("checksum", format_args!("crc32 {crc:#010x} of the payload"));
    }
    if typed && let Some(stage) = buffer.input_of {
        let attributes = describe::attributes(p, stage);
        file = file.about(move || Ok(attributes.clone()));
    }
    file.typed(buffer.array.clone().filter(|_| typed))
}

fn stored_file(stored: FileExtent) -> File {
    let (at, len) = (stored.at.0, stored.len);
    File::new(Content::FileExtent(stored)).stored(len).attr("stored_size", len).attr("offset", at)
}
