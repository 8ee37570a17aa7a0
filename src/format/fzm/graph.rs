//! The stage graph of an FZM file: the producer and the consumers of each buffer.
//!
//! Reference: sections 1 (identifiers and order), 3 (graph and inverse execution), 11 (validation rules) of the FZM
//! reference.
//!
//! Checked: unique producers, no cycle, which leaves at least one source, and a stored segment for every buffer that no
//! stage reads.
//!
//! Invariants: every index in a [`Graph`] is valid; [`Graph::inverse_order`] holds every stage once, after all stages
//! that read one of its outputs, so that the inverse is built without recursion.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use crate::error::{Error, Result};

use super::header::{BufferEntry, StageInfo, UNUSED};

/// The producer and consumers of each buffer. Stages and segments are table indices.
#[derive(Debug)]
pub(super) struct Graph {
    producers: BTreeMap<u16, Port>,
    consumers: BTreeMap<u16, Vec<Port>>,
    segments: BTreeMap<u16, usize>,
    inverse_order: Vec<usize>,
    sources: Vec<usize>,
}

/// An output of a stage, or an input of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port {
    /// Table index of the stage.
    pub(super) stage: usize,
    /// Index among its outputs or inputs.
    pub(super) port: usize,
}

/// Where the bytes of a buffer come from during decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The output of the inverse of a stage for this input.
    Inverse(Port),
    /// This segment.
    Segment(usize),
}

impl Graph {
    /// Connects the tables.
    ///
    /// # Errors
    /// Fails with the violated rule, at the offset of the id that violates it.
    pub(super) fn connect(stages: &[StageInfo], buffers: &[BufferEntry]) -> Result<Self> {
        let mut producers = BTreeMap::new();
        let mut consumers: BTreeMap<u16, Vec<Port>> = BTreeMap::new();
        for (stage, info) in stages.iter().enumerate() {
            if info.inputs.is_empty() {
                let e = Error::corrupt("the stage reads no buffer", "input_buffer_ids").at(info.at.plus(8));
                return Err(e.within(format_args!("stage {stage}")));
            }
            for (port, slot) in info.inputs.iter().enumerate() {
                consumers.entry(slot.id).or_default().push(Port { stage, port });
            }
            for (port, slot) in info.outputs.iter().enumerate() {
                if let Some(first) = producers.insert(slot.id, Port { stage, port }) {
                    let why = format!("buffer {} is produced by stages {} and {stage}", slot.id, first.stage);
                    return Err(Error::corrupt(why, "output_buffer_ids").at(slot.at));
                }
            }
        }
        let segments = segments(buffers)?;
        let inverse_order = inverse_order(stages, &consumers)?;
        let sources = sources(stages, &producers);
        let graph = Self { producers, consumers, segments, inverse_order, sources };
        for slot in stages.iter().flat_map(|info| &info.outputs) {
            if graph.origin(slot.id).is_none() {
                let why = format!("buffer {} is neither read by a stage nor stored in a segment", slot.id);
                return Err(Error::corrupt(why, "output_buffer_ids").at(slot.at));
            }
        }
        Ok(graph)
    }

    /// The stage output that produces buffer `id` forward; `None` for an input of the pipeline.
    pub(super) fn producer(&self, id: u16) -> Option<Port> {
        self.producers.get(&id).copied()
    }

    /// The inputs that read buffer `id` forward, in table order. Only the inverse of the last one provides the buffer;
    /// the others are redundant branches.
    pub(super) fn consumers(&self, id: u16) -> &[Port] {
        self.consumers.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Where buffer `id` comes from: a stage that reads it takes precedence over a segment that stores it.
    pub(super) fn origin(&self, id: u16) -> Option<Origin> {
        match self.consumers(id).last() {
            Some(&input) => Some(Origin::Inverse(input)),
            None => self.segment(id).map(Origin::Segment),
        }
    }

    /// The segment that stores buffer `id`, whether or not a stage reads it.
    pub(super) fn segment(&self, id: u16) -> Option<usize> {
        self.segments.get(&id).copied()
    }

    /// Every stage, after the stages that read its outputs.
    pub(super) fn inverse_order(&self) -> &[usize] {
        &self.inverse_order
    }

    /// The sources, at least one: first the primary one, with the data of the file as its forward input 0, then sources
    /// that read only inputs of the pipeline, in table order.
    pub(super) fn sources(&self) -> &[usize] {
        &self.sources
    }
}

/// See [`Graph::sources`]. Without a flag, the primary source is the first stage that reads only inputs of the pipeline.
fn sources(stages: &[StageInfo], producers: &BTreeMap<u16, Port>) -> Vec<usize> {
    let is_source = |info: &StageInfo| info.inputs.iter().all(|slot| !producers.contains_key(&slot.id));
    let flagged = stages.iter().position(StageInfo::is_primary);
    let others = stages.iter().enumerate().filter(|(stage, info)| flagged != Some(*stage) && is_source(info));
    flagged.into_iter().chain(others.map(|(stage, _)| stage)).collect()
}

/// The segment of every buffer id; entries without an id are not part of the graph.
fn segments(buffers: &[BufferEntry]) -> Result<BTreeMap<u16, usize>> {
    let mut segments = BTreeMap::new();
    for (index, entry) in buffers.iter().enumerate().filter(|(_, entry)| entry.dag_buffer_id != UNUSED) {
        if let Some(first) = segments.insert(entry.dag_buffer_id, index) {
            let why = format!("buffer {} is stored in segments {first} and {index}", entry.dag_buffer_id);
            return Err(Error::corrupt(why, "dag_buffer_id").at(entry.id_at()));
        }
    }
    Ok(segments)
}

/// Repeatedly takes a stage after all of its readers; stages that remain form a cycle.
fn inverse_order(stages: &[StageInfo], consumers: &BTreeMap<u16, Vec<Port>>) -> Result<Vec<usize>> {
    let mut order: Vec<usize> = Vec::with_capacity(stages.len());
    loop {
        let ready = |(index, info): &(usize, &StageInfo)| {
            !order.contains(index)
                && info
                    .outputs
                    .iter()
                    .filter_map(|slot| consumers.get(&slot.id))
                    .flatten()
                    .all(|c| order.contains(&c.stage))
        };
        match stages.iter().enumerate().rfind(ready) {
            Some((index, _)) => order.push(index),
            None => break,
        }
    }
    match stages.iter().enumerate().find(|(index, _)| !order.contains(index)) {
        None => Ok(order),
        Some((index, info)) => {
            let why = "the stages read each other's outputs in a cycle";
            Err(Error::corrupt(why, "input_buffer_ids").at(info.at.plus(8)).within(format_args!("stage {index}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::BufferSlot;
    use super::*;
    use crate::bytes::{FileOffset, to_u64};

    /// Stages as (inputs, outputs).
    type Stages<'a> = &'a [(&'a [u16], &'a [u16])];

    /// Connects stages and segments with these ids.
    fn connect(stages: Stages, segments: &[u16]) -> Result<Graph> {
        let slots = |ids: &[u16]| ids.iter().map(|&id| BufferSlot { id, at: FileOffset(id.into()) }).collect();
        let stages: Vec<StageInfo> = stages
            .iter()
            .enumerate()
            .map(|(i, (inputs, outputs))| StageInfo {
                at: FileOffset(to_u64(i).saturating_mul(256)),
                stage_type: 0,
                stage_version: 1,
                stage_flags: 0,
                inputs: slots(inputs),
                outputs: slots(outputs),
                config: Vec::new(),
            })
            .collect();
        let buffers: Vec<BufferEntry> = segments
            .iter()
            .map(|&dag_buffer_id| BufferEntry {
                at: FileOffset(0x1000),
                stage_type: 0,
                stage_version: 1,
                data_type: 0,
                producer_output_idx: 0,
                dag_buffer_id,
                name: Vec::new(),
                data_size: 0,
                allocated_size: 0,
                uncompressed_size: 0,
                byte_offset: 0,
                config: Vec::new(),
            })
            .collect();
        Graph::connect(&stages, &buffers)
    }

    /// The only input of a stage.
    fn input(stage: usize) -> Port {
        Port { stage, port: 0 }
    }

    #[test]
    fn an_input_is_a_stage_and_a_position_of_which_the_last_provides_the_buffer() {
        let graph = connect(&[(&[9], &[0, 1]), (&[1, 0, 1], &[2])], &[2]).unwrap();
        let of = |port| Some(Origin::Inverse(Port { stage: 1, port }));
        assert_eq!((graph.origin(0), graph.origin(1)), (of(1), of(2)));
        assert_eq!(graph.consumers(1).len(), 2);
    }

    #[test]
    fn the_flagged_stage_is_the_first_source_whatever_it_reads() {
        let slots = |ids: &[u16]| ids.iter().map(|&id| BufferSlot { id, at: FileOffset(0) }).collect::<Vec<_>>();
        let stage = |inputs: &[u16], outputs: &[u16], stage_flags| StageInfo {
            at: FileOffset(0),
            stage_type: 0,
            stage_version: 1,
            stage_flags,
            inputs: slots(inputs),
            outputs: slots(outputs),
            config: Vec::new(),
        };
        let of = |flags: [u16; 3]| {
            let [a, b, c] = flags;
            let stages = [stage(&[9], &[0], a), stage(&[9, 0], &[1], b), stage(&[8], &[2], c)];
            let producers = [(0, input(0)), (1, input(1)), (2, input(2))].into();
            sources(&stages, &producers)
        };
        assert_eq!(of([0, 0, 0]), [0, 2]);
        assert_eq!(of([0, 1, 0]), [1, 0, 2]);
        assert_eq!(of([0xFFFE, 0, 3]), [2, 0]);
    }

    #[test]
    fn a_chain_is_inverted_from_its_end() {
        let graph = connect(&[(&[2], &[0]), (&[0], &[1])], &[1]).unwrap();
        assert_eq!(graph.inverse_order(), [1, 0]);
        assert_eq!(graph.sources(), [0]);
        assert_eq!(graph.producer(1), Some(Port { stage: 1, port: 0 }));
        assert_eq!(graph.producer(2), None);
        assert_eq!(graph.origin(0), Some(Origin::Inverse(input(1))));
        assert_eq!(graph.origin(1), Some(Origin::Segment(0)));
    }

    #[test]
    fn the_last_reader_in_the_table_provides_a_buffer_and_precedes_its_segment() {
        let graph = connect(&[(&[9], &[0, 1]), (&[0], &[2]), (&[0], &[3])], &[0, 1, 2, 3]).unwrap();
        assert_eq!(graph.consumers(0), [1, 2].map(input));
        assert_eq!(graph.origin(0), Some(Origin::Inverse(input(2))));
        assert_eq!(graph.origin(1), Some(Origin::Segment(1)));
    }

    #[test]
    fn consumers_may_precede_producers_and_there_may_be_several_sources() {
        let graph = connect(&[(&[0], &[1]), (&[9], &[0]), (&[8], &[2])], &[1, 2]).unwrap();
        assert_eq!(graph.sources(), [1, 2]);
        let order = graph.inverse_order();
        let place = |stage| order.iter().position(|&s| s == stage).unwrap();
        assert!(place(0) < place(1));
    }

    #[test]
    fn invalid_graphs_are_refused_at_the_offending_id() {
        let cases: &[(&str, Stages, &[u16], &str)] = &[
            ("no input", &[(&[], &[0])], &[0], "the stage reads no buffer (stage 0: input_buffer_ids, at byte 0x8)"),
            (
                "two producers",
                &[(&[5], &[7]), (&[6], &[7])],
                &[7],
                "buffer 7 is produced by stages 0 and 1 (output_buffer_ids, at byte 0x7)",
            ),
            (
                "two segments",
                &[(&[5], &[7])],
                &[7, 7],
                "buffer 7 is stored in segments 0 and 1 (dag_buffer_id, at byte 0x1006)",
            ),
            (
                "no segment",
                &[(&[5], &[7])],
                &[8],
                "buffer 7 is neither read by a stage nor stored in a segment (output_buffer_ids, at byte 0x7)",
            ),
            (
                "reads itself",
                &[(&[0], &[0])],
                &[0],
                "the stages read each other's outputs in a cycle (stage 0: input_buffer_ids, at byte 0x8)",
            ),
            (
                "a cycle beside a source",
                &[(&[9], &[0]), (&[2], &[1]), (&[1], &[2])],
                &[0],
                "the stages read each other's outputs in a cycle (stage 1: input_buffer_ids, at byte 0x108)",
            ),
            (
                "a cycle in a redundant branch",
                &[(&[0], &[0, 1]), (&[0], &[2])],
                &[1, 2],
                "the stages read each other's outputs in a cycle (stage 0: input_buffer_ids, at byte 0x8)",
            ),
        ];
        for (name, stages, segments, want) in cases {
            assert_eq!(connect(stages, segments).unwrap_err().to_string(), *want, "{name}");
        }
    }
}
