//! A pipeline: stages wired into a graph, run forward over arrays, and the result of inverting it.

use std::collections::BTreeMap;

use crate::Result;
use crate::container::{Form, Image};
use crate::dtype::Dtype;
use crate::spec::{self, From};
use crate::stage::{self, Encoded, Stage};

/// An array in memory.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its element type.
    pub dtype: Dtype,
    /// Elements per dimension, slowest first; empty where it is just bytes.
    pub shape: Vec<u32>,
    /// Its bytes; a ragged tail is allowed.
    pub bytes: Vec<u8>,
}

/// Where a node reads: the array of that number, or a port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Source(usize),
    Port(usize, usize),
}

#[derive(Debug)]
struct Node {
    stage: Box<dyn Stage>,
    input: Input,
    /// The id of the first port.
    first_id: u16,
    level: usize,
}

/// A graph of stages.
#[derive(Debug)]
pub struct Pipeline {
    /// In order of addition; a node reads only nodes before it.
    nodes: Vec<Node>,
    /// Places in `nodes` in the order of the stage table: by level, then by addition.
    order: Vec<usize>,
    sources: usize,
    alignment: usize,
}

impl Pipeline {
    /// Reads a description (grammar: [`spec`]) of a pipeline over `inputs`.
    ///
    /// # Errors
    /// Says which item is not understood or does not fit.
    pub fn parse(text: &str, inputs: &[Source]) -> Result<Self> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut shapes: Vec<Vec<u32>> = Vec::new();
        let (mut sources, mut next_id) = (0, 0);
        for item in spec::parse(text)? {
            let fail = |e: String| format!("{}: {e}", item.name);
            let input = match &item.from {
                From::Previous if !nodes.is_empty() => Input::Port(nodes.len() - 1, 0),
                From::Previous | From::Input => Input::Source(sources),
                From::Stage { stage, port } => {
                    let node = nodes.get(*stage).ok_or_else(|| fail(format!("no stage {stage} before it")))?;
                    let place =
                        port.as_ref().map_or(Some(0), |name| node.stage.ports().iter().position(|p| p.0 == name));
                    Input::Port(*stage, place.ok_or_else(|| fail(format!("stage {stage} has no such port")))?)
                }
            };
            let (dtype, shape, level) = match input {
                Input::Source(k) => {
                    sources += 1;
                    let array = inputs.get(k).ok_or_else(|| fail("there is no array for it".into()))?;
                    (array.dtype, array.shape.clone(), 0)
                }
                // Only the first port of a stage is an array like its input.
                Input::Port(n, 0) => (nodes[n].stage.ports()[0].1, shapes[n].clone(), nodes[n].level + 1),
                Input::Port(n, p) => (nodes[n].stage.ports()[p].1, Vec::new(), nodes[n].level + 1),
            };
            let stage = stage::make(&item.name, item.params.clone(), dtype, &shape)?;
            let same_elements = !matches!(stage.name(), "rle" | "bitpack" | "huffman" | "rze" | "bitshuffle");
            let ids = stage.ids();
            nodes.push(Node { stage, input, first_id: next_id, level });
            shapes.push(if same_elements { shape } else { Vec::new() });
            next_id += ids as u16;
        }
        if sources == 0 || sources > 4 {
            return Err(format!("{sources} sources; there must be 1 to 4"));
        }
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&n| nodes[n].level);
        let alignment = nodes.iter().map(|n| n.stage.alignment()).fold(1, least_common_multiple);
        Ok(Self { nodes, order, sources, alignment })
    }

    /// Encodes. `keep`: hold on to every buffer, so that [`Run::restore`] works.
    ///
    /// # Errors
    /// When a stage's parameters do not fit its input.
    pub fn run(&self, inputs: Vec<Source>, keep: bool) -> Result<Run<'_>> {
        let mut sources: Vec<Vec<u8>> = inputs.into_iter().take(self.sources).map(|s| s.bytes).collect();
        for bytes in &mut sources {
            bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        }
        let sizes = sources.iter().map(Vec::len).collect();
        let mut run = Run { pipeline: self, sources, sizes, encoded: BTreeMap::new() };
        for (place, &n) in self.order.iter().enumerate() {
            let node = &self.nodes[n];
            let branched: Vec<bool> = (0..node.stage.ports().len()).map(|p| self.consumer(n, p).is_some()).collect();
            let encoded = node.stage.encode(run.forward(node.input), &branched);
            run.encoded.insert(n, encoded.map_err(|e| format!("stage {n}, {}: {e}", node.stage.name()))?);
            if !keep && !self.order[place + 1..].iter().any(|&later| self.nodes[later].input == node.input) {
                run.forget(node.input);
            }
        }
        Ok(run)
    }

    /// The node that a port's content comes back from: its last reader in table order.
    fn consumer(&self, n: usize, port: usize) -> Option<usize> {
        self.order.iter().copied().rfind(|&c| self.nodes[c].input == Input::Port(n, port))
    }

    /// The buffer id of what a node reads.
    fn id(&self, input: Input) -> u16 {
        match input {
            Input::Port(n, p) => self.nodes[n].first_id + p as u16,
            Input::Source(k) => self.nodes.last().map_or(0, |n| n.first_id + n.stage.ids() as u16) + k as u16,
        }
    }
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// A pipeline that was run.
#[derive(Debug)]
pub struct Run<'a> {
    pipeline: &'a Pipeline,
    /// The padded inputs.
    sources: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    encoded: BTreeMap<usize, Encoded>,
}

/// A row of the stage table.
#[derive(Debug, Clone)]
pub struct Step {
    /// The stage type's number and its name in snake case.
    pub kind: u16,
    /// See `kind`.
    pub name: &'static str,
    /// The configuration record.
    pub config: Vec<u8>,
    /// The buffer that it reads.
    pub input: u16,
    /// The buffers that it writes: id, port name, element type.
    pub outputs: Vec<(u16, &'static str, Dtype)>,
}

/// A stored buffer.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Its id.
    pub id: u16,
    /// The row of its producer in the stage table.
    pub step: usize,
    /// The producer's port.
    pub port: usize,
    /// The capacity in the buffer table.
    pub allocated: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Run<'_> {
    fn forward(&self, input: Input) -> &[u8] {
        match input {
            Input::Source(k) => &self.sources[k],
            Input::Port(n, p) => &self.encoded[&n].ports[p].bytes,
        }
    }

    fn forget(&mut self, input: Input) {
        match input {
            Input::Source(k) => self.sources[k] = Vec::new(),
            Input::Port(n, p) => {
                if let Some(encoded) = self.encoded.get_mut(&n) {
                    encoded.ports[p].bytes = Vec::new();
                }
            }
        }
    }

    /// The stage table.
    pub fn steps(&self) -> Vec<Step> {
        let nodes = &self.pipeline.nodes;
        let step = |&n: &usize| Step {
            kind: nodes[n].stage.kind(),
            name: nodes[n].stage.name(),
            config: self.encoded[&n].config.clone(),
            input: self.pipeline.id(nodes[n].input),
            outputs: nodes[n]
                .stage
                .ports()
                .into_iter()
                .zip(nodes[n].first_id..)
                .map(|((name, dtype), id)| (id, name, dtype))
                .collect(),
        };
        self.pipeline.order.iter().map(step).collect()
    }

    /// The buffers that no stage reads, the ends of the chains first.
    pub fn segments(&self) -> Vec<Segment<'_>> {
        let mut segments = Vec::new();
        for (step, &n) in self.pipeline.order.iter().enumerate().rev() {
            for (port, content) in self.encoded[&n].ports.iter().enumerate() {
                if self.pipeline.consumer(n, port).is_none() {
                    let id = self.pipeline.id(Input::Port(n, port));
                    segments.push(Segment { id, step, port, allocated: content.allocated, bytes: &content.bytes });
                }
            }
        }
        segments
    }

    /// Bytes of the inputs after padding.
    pub fn source_sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Ids of the inputs' buffers.
    pub fn source_ids(&self) -> Vec<u16> {
        (0..self.sizes.len()).map(|k| self.pipeline.id(Input::Source(k))).collect()
    }

    /// The file.
    pub fn file(&self, form: &Form) -> Image<'_> {
        Image::new(self, form)
    }

    /// What inverting the graph gives, by buffer id: the stored segments, and the content of every buffer that a
    /// stage reads. Needs a run that kept its buffers.
    ///
    /// # Errors
    /// When a stage that does not compute stands before one that loses something.
    pub fn restore(&self) -> Result<BTreeMap<u16, Vec<u8>>> {
        let mut restored: BTreeMap<u16, Vec<u8>> =
            self.segments().into_iter().map(|s| (s.id, s.bytes.to_vec())).collect();
        let pipeline = self.pipeline;
        let mut done: Vec<Input> = Vec::new();
        for &n in pipeline.order.iter().rev() {
            let node = &pipeline.nodes[n];
            // The last reader counts; the others are redundant.
            if done.contains(&node.input) {
                continue;
            }
            done.push(node.input);
            let encoded = &self.encoded[&n];
            let ports: Vec<&[u8]> =
                (0..encoded.ports.len()).map(|p| &restored[&pipeline.id(Input::Port(n, p))][..]).collect();
            let changed = ports.iter().zip(&encoded.ports).any(|(back, written)| **back != written.bytes[..]);
            let inverse = node.stage.inverse(self.forward(node.input), changed.then_some(&ports[..]), encoded);
            let content = inverse.map_err(|e| format!("stage {n}, {}: {e}", node.stage.name()))?.into_owned();
            restored.insert(pipeline.id(node.input), content);
        }
        Ok(restored)
    }
}
