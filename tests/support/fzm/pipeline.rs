//! A pipeline: stages wired into a graph, run forward over arrays, and the result of inverting it.
//!
//! A stage may read several buffers. Each array that a stage reads is a source of the file; sources of one array have
//! the same bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::Result;
use crate::container::{Form, Image};
use crate::dtype::Dtype;
use crate::spec::{self, From};
use crate::stage::{self, Encoded, Reads, Stage};

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

/// Where a node reads: the source of that number, or a port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Source(usize),
    Port(usize, usize),
}

#[derive(Debug)]
struct Node {
    stage: Box<dyn Stage>,
    /// Its inputs, in order.
    inputs: Vec<Input>,
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
    /// The number of the array of each source.
    sources: Vec<usize>,
    /// The node that was said to be the primary source.
    primary: Option<usize>,
    alignment: usize,
}

impl Pipeline {
    /// Reads a description (grammar: [`spec`]) of a pipeline over `inputs`.
    ///
    /// # Errors
    /// Says which item is not understood or does not fit.
    pub fn parse(text: &str, inputs: &[Source]) -> Result<Self> {
        let mut graph = Graph { arrays: inputs, nodes: Vec::new(), shapes: Vec::new(), sources: Vec::new() };
        let mut primary = None;
        for item in spec::parse(text)? {
            if item.primary {
                primary = Some(graph.nodes.len());
            }
            graph.add(item)?;
        }
        let Graph { nodes, sources, .. } = graph;
        if sources.is_empty() || sources.len() > 4 {
            return Err(format!("{} sources; there must be 1 to 4", sources.len()));
        }
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&n| nodes[n].level);
        let alignment = nodes.iter().map(|n| n.stage.alignment()).fold(1, least_common_multiple);
        Ok(Self { nodes, order, sources, primary, alignment })
    }

    /// Encodes. `keep`: hold on to every buffer, so that [`Run::restore`] works.
    ///
    /// # Errors
    /// When a stage's parameters do not fit its input.
    pub fn run(&self, inputs: Vec<Source>, keep: bool) -> Result<Run<'_>> {
        let mut arrays: Vec<Vec<u8>> = inputs.into_iter().map(|s| s.bytes).collect();
        for bytes in &mut arrays {
            bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        }
        let sizes = self.sources.iter().map(|&array| arrays[array].len()).collect();
        let mut run = Run { pipeline: self, arrays, sizes, encoded: BTreeMap::new() };
        for (place, &n) in self.order.iter().enumerate() {
            let node = &self.nodes[n];
            let branched: Vec<bool> = (0..node.stage.ports().len()).map(|p| self.consumer(n, p).is_some()).collect();
            let encoded = node.stage.encode_all(&run.read_by(n), &branched);
            run.encoded.insert(n, encoded.map_err(|e| format!("stage {n}, {}: {e}", node.stage.name()))?);
            if !keep {
                let later = &self.order[place + 1..];
                let done = |input: &&Input| !later.iter().any(|&later| self.reads_the_same(later, **input));
                node.inputs.iter().filter(done).for_each(|&input| run.forget(input));
            }
        }
        Ok(run)
    }

    /// Whether node `n` reads the bytes of `input`.
    fn reads_the_same(&self, n: usize, input: Input) -> bool {
        self.nodes[n].inputs.iter().any(|&own| match (own, input) {
            (Input::Source(own), Input::Source(other)) => self.sources[own] == self.sources[other],
            _ => own == input,
        })
    }

    /// The node that a port's content comes back from: its last reader in table order.
    fn consumer(&self, n: usize, port: usize) -> Option<usize> {
        self.order.iter().copied().rfind(|&c| self.nodes[c].inputs.contains(&Input::Port(n, port)))
    }

    /// The buffer id of what a node reads.
    fn id(&self, input: Input) -> u16 {
        match input {
            Input::Port(n, p) => self.nodes[n].first_id + p as u16,
            Input::Source(k) => self.nodes.last().map_or(0, |n| n.first_id + n.stage.ids() as u16) + k as u16,
        }
    }
}

/// A pipeline as far as it is described.
struct Graph<'a> {
    arrays: &'a [Source],
    nodes: Vec<Node>,
    /// The shape of the first output of each node.
    shapes: Vec<Vec<u32>>,
    sources: Vec<usize>,
}

impl Graph<'_> {
    /// Adds a node.
    fn add(&mut self, item: spec::Item) -> Result<()> {
        let fail = |e: String| format!("{}: {e}", item.name);
        let inputs: Vec<Input> = item.from.iter().map(|from| self.input(from)).collect::<Result<_>>().map_err(fail)?;
        let reads: Vec<Reads> = inputs.iter().map(|&input| self.reads(input)).collect();
        let stage = stage::make(&item.name, item.params, &reads)?;
        let level = |&input: &Input| match input {
            Input::Source(_) => 0,
            Input::Port(n, _) => self.nodes[n].level + 1,
        };
        let level = inputs.iter().map(level).max().unwrap_or(0);
        self.shapes.push(if stage.keeps_shape() { reads[0].shape.clone() } else { Vec::new() });
        let first_id = self.nodes.last().map_or(0, |n| n.first_id + n.stage.ids() as u16);
        self.nodes.push(Node { stage, inputs, first_id, level });
        Ok(())
    }

    fn input(&mut self, from: &From) -> Result<Input> {
        let array = match from {
            From::Previous if !self.nodes.is_empty() => return Ok(Input::Port(self.nodes.len() - 1, 0)),
            From::Previous | From::Input => self.sources.iter().max().map_or(0, |last| last + 1),
            From::Array(array) => *array,
            From::Stage { stage, port } => {
                let node = self.nodes.get(*stage).ok_or_else(|| format!("no stage {stage} before it"))?;
                let place = port.as_ref().map_or(Some(0), |name| node.stage.ports().iter().position(|p| p.0 == name));
                let place = place.ok_or_else(|| format!("stage {stage} has no such port"))?;
                return Ok(Input::Port(*stage, place));
            }
        };
        self.arrays.get(array).ok_or("there is no array for it")?;
        self.sources.push(array);
        Ok(Input::Source(self.sources.len() - 1))
    }

    fn reads(&self, input: Input) -> Reads {
        match input {
            Input::Source(k) => {
                let array = &self.arrays[self.sources[k]];
                Reads { name: "input", dtype: array.dtype, shape: array.shape.clone() }
            }
            Input::Port(n, p) => {
                let (name, dtype) = self.nodes[n].stage.ports()[p];
                // Only the first port of a stage is an array like its input.
                Reads { name, dtype, shape: if p == 0 { self.shapes[n].clone() } else { Vec::new() } }
            }
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
    /// The padded arrays.
    arrays: Vec<Vec<u8>>,
    /// Bytes of each source.
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
    /// The buffers that it reads.
    pub inputs: Vec<u16>,
    /// Whether it was said to be the primary source.
    pub primary: bool,
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
            Input::Source(k) => &self.arrays[self.pipeline.sources[k]],
            Input::Port(n, p) => &self.encoded[&n].ports[p].bytes,
        }
    }

    /// The bytes that node `n` reads.
    fn read_by(&self, n: usize) -> Vec<&[u8]> {
        self.pipeline.nodes[n].inputs.iter().map(|&input| self.forward(input)).collect()
    }

    fn forget(&mut self, input: Input) {
        match input {
            Input::Source(k) => self.arrays[self.pipeline.sources[k]] = Vec::new(),
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
            inputs: nodes[n].inputs.iter().map(|&input| self.pipeline.id(input)).collect(),
            primary: self.pipeline.primary == Some(n),
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

    /// Bytes of the sources after padding.
    pub fn source_sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Bytes of the arrays after padding, each counted once.
    pub(crate) fn array_bytes(&self) -> usize {
        let sources = &self.pipeline.sources;
        let first = |&k: &usize| !sources[..k].contains(&sources[k]);
        (0..sources.len()).filter(first).map(|k| self.sizes[k]).sum()
    }

    /// Ids of the sources' buffers.
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
            // The last reader counts, and its last position; the others are redundant.
            if node.inputs.iter().all(|input| done.contains(input)) {
                continue;
            }
            let encoded = &self.encoded[&n];
            let ports: Vec<&[u8]> =
                (0..encoded.ports.len()).map(|p| &restored[&pipeline.id(Input::Port(n, p))][..]).collect();
            let changed = ports.iter().zip(&encoded.ports).any(|(back, written)| **back != written.bytes[..]);
            let inverse = node.stage.inverse_all(&self.read_by(n), changed.then_some(&ports[..]), encoded);
            let contents = inverse.map_err(|e| format!("stage {n}, {}: {e}", node.stage.name()))?;
            let contents: Vec<Vec<u8>> = contents.into_iter().map(Cow::into_owned).collect();
            for (&input, mut content) in node.inputs.iter().zip(contents).rev() {
                if !done.contains(&input) {
                    done.push(input);
                    // A stage that does not know its length gives more, which a reader leaves out.
                    if let Input::Source(k) = input {
                        content.truncate(self.sizes[k]);
                    }
                    restored.insert(pipeline.id(input), content);
                }
            }
        }
        Ok(restored)
    }
}
