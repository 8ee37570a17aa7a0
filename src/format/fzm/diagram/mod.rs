//! The stage graph as a diagram, written as Graphviz DOT or SVG.
//!
//! Sources are roots, each buffer is an arrow to its consumer, stored segments are leaves; a stage that several arrows
//! reach is drawn once, and the others end at its name. Arrows point in the direction of compression.
#![forbid(unsafe_code)]

mod dot;
mod svg;

use crate::error::Result;
use crate::text::escaped;

use super::describe;
use super::graph::Origin;
use super::pipeline::{Pipeline, StageBuffer};
use super::stage::{DataType, Family, stage_type};

/// The trees of the graph, and a caption.
#[derive(Debug)]
pub(super) struct Diagram {
    caption: Vec<String>,
    roots: Vec<DiagramNode>,
}

/// One shape.
#[derive(Debug)]
struct DiagramNode {
    shape: NodeShape,
    title: String,
    lines: Vec<String>,
    /// Not needed to decode the data: a redundant branch, or an unused segment.
    spare: bool,
    arrows: Vec<Arrow>,
}

/// A buffer, drawn as an arrow to the stage that reads it or the segment that stores it.
#[derive(Debug)]
struct Arrow {
    /// Index of the output at the stage.
    port: usize,
    name: &'static str,
    /// Element type and size.
    what: String,
    to: DiagramNode,
}

/// The shape of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeShape {
    Source,
    Stage(Family),
    Segment,
}

impl Diagram {
    /// The diagram of `p`.
    pub(super) fn of(p: &Pipeline) -> Self {
        let decoded = describe::decoded_size(p).unwrap_or(p.header.uncompressed_size);
        let seen = &mut Vec::new();
        let caption = vec![
            format!("FZM {}", p.header.version),
            format!("{} decoded, {} stored", size(decoded), size(p.header.compressed_size)),
        ];
        let mut roots: Vec<DiagramNode> =
            p.sources().enumerate().map(|(n, (stage, b))| source(p, n, stage, b.ok(), seen)).collect();
        let orphans = p.header.buffers.iter().enumerate().filter(|(_, e)| p.graph.producer(e.dag_buffer_id).is_none());
        roots.extend(orphans.filter_map(|(index, _)| segment(p, index, true)));
        Self { caption, roots }
    }

    /// The diagram as Graphviz DOT.
    pub(super) fn dot(&self) -> String {
        dot::write(self)
    }

    /// The diagram as SVG.
    pub(super) fn svg(&self) -> String {
        svg::draw(self)
    }
}

fn source(p: &Pipeline, n: usize, index: usize, buffer: Option<&StageBuffer>, seen: &mut Vec<usize>) -> DiagramNode {
    let data_type = buffer.map_or(DataType::Opaque, |b| b.data_type);
    let mut lines = Vec::new();
    if let Some(array) = buffer.and_then(|b| b.array.as_ref()) {
        lines.push(format!(
            "{} {}",
            data_type.name(),
            array.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
        ));
    }
    let arrow = Arrow { port: 0, name: "input", what: what(data_type, buffer), to: stage(p, index, false, seen) };
    let title = format!("{}.raw", describe::source_name(n));
    DiagramNode { shape: NodeShape::Source, title, lines, spare: false, arrows: vec![arrow] }
}

/// A stage and its subtree, without stages already `seen`. Recursion is bounded: at most 32 stages and no cycle.
fn stage(p: &Pipeline, index: usize, spare: bool, seen: &mut Vec<usize>) -> DiagramNode {
    let is_seen = seen.contains(&index);
    seen.push(index);
    let redundant = !p.is_used(index);
    let spare = spare || redundant;
    let mut arrows = Vec::new();
    for (port, id) in p.output_ids(index).enumerate().filter(|_| !is_seen) {
        let name = p.port_name(id);
        let data_type = p.output_type(index, port, id);
        for &reader in p.graph.consumers(id) {
            let buffer = p.inverse(reader).and_then(Result::ok);
            arrows.push(Arrow { port, name, what: what(data_type, buffer), to: stage(p, reader.stage, spare, seen) });
        }
        if let Some(index) = p.graph.segment(id) {
            let spare = spare || p.graph.origin(id) != Some(Origin::Segment(index));
            if let Some(to) = segment(p, index, spare) {
                arrows.push(Arrow { port, name, what: what(data_type, p.segments.get(index)), to });
            }
        }
    }
    let stage = p.stages.get(index);
    let known = p.header.stages.get(index).and_then(|info| stage_type(info.stage_type, info.config.len()));
    let family = known.map_or(Family::Coder, |row| row.family);
    let mut lines = stage.filter(|_| !is_seen).map(|stage| stage.summary()).unwrap_or_default();
    let is_whole = |buffer: &StageBuffer| buffer.stream.is_whole();
    if !is_seen && p.inverses.get(index).is_some_and(|b| b.as_ref().is_ok_and(|b| b.iter().any(is_whole))) {
        lines.push("decoded whole".to_owned());
    }
    if redundant {
        lines.push("redundant".to_owned());
    }
    DiagramNode {
        shape: NodeShape::Stage(family),
        title: format!("{index:02} {}", stage.map_or("", |stage| stage.name())),
        lines,
        spare,
        arrows,
    }
}

fn segment(p: &Pipeline, index: usize, spare: bool) -> Option<DiagramNode> {
    let entry = p.header.buffers.get(index)?;
    let lines = vec![size(entry.data_size), format!("at {:#x}", p.header.segment_at(entry).0)];
    let title = escaped(&String::from_utf8_lossy(&entry.name)).into_owned();
    Some(DiagramNode { shape: NodeShape::Segment, title, lines, spare, arrows: Vec::new() })
}

fn what(data_type: DataType, buffer: Option<&StageBuffer>) -> String {
    let bytes = buffer.map_or_else(|| "size unknown".to_owned(), |b| size(b.stream.len()));
    format!("{}, {bytes}", data_type.name())
}

/// A byte count for display.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1023.95 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (20_000, "19.5 KiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), want);
        }
    }
}
