//! The inverse pipeline of an FZM file: every buffer as a stream and as file content.
//!
//! Reference: section 3 (graph and inverse execution), section 2 (padding, result length).
//!
//! Every buffer has one origin: each stage is inverted once, each segment is read by one stage, and nothing is decoded
//! twice. Opening decodes little: stages read the headers of their streams, and RLE its run lengths if no configuration
//! gives the number of elements.
//!
//! A stage unknown to this version is part of the graph; only the use of its inverse is an error.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::decode_budget;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::checksum::{ChecksumGate, Threads, crc32};
use crate::error::{Error, Kind, Result};
use crate::format::{Array, BlobRef, Content, FileExtent, Options};
use crate::source::Source;

use super::blob;
use super::error_context::{ErrorContext, WithErrorContext};
use super::graph::{Graph, Origin, Port};
use super::header::{AT_DATA_CHECKSUM, AT_SOURCE_SIZES, BufferEntry, Header, StageInfo};
use super::segment::Segment;
use super::stage::{self, Context, DataType, Part, Stage};
use super::stream::{ByteStream, Setup};

/// A parsed file: tables, stages, graph, and the inverse of every stage.
pub(super) struct Pipeline {
    pub(super) source: Arc<Source>,
    pub(super) header: Header,
    pub(super) graph: Graph,
    /// By table index, like the vectors below.
    pub(super) stages: Vec<Box<dyn Stage>>,
    /// The result of inverting each stage, a buffer per input, or the error.
    pub(super) inverses: Vec<Result<Vec<StageBuffer>>>,
    /// The segments as stored.
    pub(super) segments: Vec<StageBuffer>,
    /// The segments with their chain of single-output stages inverted.
    pub(super) chain_inverses: Vec<Result<StageBuffer>>,
    /// Withholds the payload until its checksum was verified.
    pub(super) gate: Option<ChecksumGate>,
    /// The threads for the setup of streams: other ones than for checks, since the first byte must not wait until the
    /// whole payload has been read.
    setup_threads: Threads,
}

/// Limit of bytes decoded to open a file, plus the amount below.
const OPEN: u64 = 256 << 20;
/// Additional bytes per stored byte.
const OPEN_PER_STORED: u64 = 16;

/// The bytes of one buffer of the graph.
#[derive(Clone)]
pub(super) struct StageBuffer {
    pub(super) stream: Arc<dyn ByteStream>,
    pub(super) content: Content,
    /// The blobs of the content; empty for a stored segment.
    pub(super) blobs: Vec<BlobRef>,
    /// `None` for opaque bytes.
    pub(super) array: Option<Array>,
    pub(super) data_type: DataType,
    /// Bytes of the segments it is decoded from.
    pub(super) stored: u64,
    /// Index of the stage that has it as forward input; `None` for a stored segment.
    pub(super) input_of: Option<usize>,
}

impl Pipeline {
    /// Parses `source` and connects the stages. Decodes only as much as is needed to find lengths.
    ///
    /// # Errors
    /// Fails if the tables, a stage's configuration, or a decoded length is invalid.
    pub(super) fn open(source: Arc<Source>, options: &Options) -> Result<Self> {
        let header = Header::read(&source)?;
        let graph = Graph::connect(&header.stages, &header.buffers)?;
        let stages = parse_stages(&header)?;
        let gate = header.data_checksum.map(|stored| payload_gate(&source, &header, stored, options));
        let mut pipeline = Self {
            source,
            header,
            graph,
            stages,
            inverses: Vec::new(),
            segments: Vec::new(),
            chain_inverses: Vec::new(),
            gate,
            setup_threads: Threads::new(options.threads.most()),
        };
        pipeline.segments = pipeline.header.buffers.iter().map(|entry| pipeline.segment(entry)).collect();
        // Lengths that are not stored are found by decoding, within this limit.
        let limit = OPEN.saturating_add(pipeline.header.compressed_size.saturating_mul(OPEN_PER_STORED));
        decode_budget::build(&options.account, limit, || {
            pipeline.invert_all(options);
            pipeline.ask_user(options)?;
            pipeline.chain_inverses =
                (0..pipeline.segments.len()).map(|index| pipeline.invert_chain(index, options)).collect();
            Ok(())
        })?;
        pipeline.check_lengths()?;
        Ok(pipeline)
    }

    /// Buffer `id`, if it is the output of a stage.
    pub(super) fn buffer(&self, id: u16) -> Option<Result<&StageBuffer>> {
        Some(match self.graph.origin(id)? {
            Origin::Inverse(input) => self.inverse(input)?,
            Origin::Segment(segment) => Ok(self.segments.get(segment)?),
        })
    }

    /// The inverse of a stage, for one of its inputs.
    pub(super) fn inverse(&self, input: Port) -> Option<Result<&StageBuffer>> {
        match self.inverses.get(input.stage)? {
            Ok(buffers) => buffers.get(input.port).map(Ok),
            Err(e) => Some(Err(e.clone())),
        }
    }

    /// The sources, each with its first input as its inverse gives it. The first one is the file's data.
    pub(super) fn sources(&self) -> impl Iterator<Item = (usize, Result<&StageBuffer>)> {
        self.graph.sources().iter().filter_map(|&stage| Some((stage, self.inverse(Port { stage, port: 0 })?)))
    }

    /// The inputs of stage `index`, with the ids of the buffers that it reads forward.
    pub(super) fn inputs(&self, index: usize) -> impl Iterator<Item = (Port, u16)> {
        let slots = self.header.stages.get(index).into_iter().flat_map(|info| &info.inputs);
        slots.enumerate().map(move |(port, slot)| (Port { stage: index, port }, slot.id))
    }

    /// The ids of the buffers that stage `index` writes forward, in port order.
    pub(super) fn output_ids(&self, index: usize) -> impl Iterator<Item = u16> {
        self.header.stages.get(index).into_iter().flat_map(|info| info.outputs.iter().map(|slot| slot.id))
    }

    /// The name of the port that produces buffer `id`; `input` if there is none.
    pub(super) fn port_name(&self, id: u16) -> &'static str {
        let port = self.graph.producer(id);
        port.and_then(|p| self.stages.get(p.stage)?.ports().get(p.port).copied()).unwrap_or("input")
    }

    /// The element type of output `port` of stage `index`, which is buffer `id`. If the buffer is stored, its segment
    /// gives the type.
    pub(super) fn output_type(&self, index: usize, port: usize, id: u16) -> DataType {
        match self.graph.segment(id).and_then(|segment| self.segments.get(segment)) {
            Some(segment) => segment.data_type,
            None => self.stages.get(index).map_or(DataType::Opaque, |stage| stage.output_type(port)),
        }
    }

    /// Whether the inverse of stage `index` provides its input; otherwise the stage is a redundant branch.
    pub(super) fn is_used(&self, index: usize) -> bool {
        self.inputs(index).any(|(input, id)| {
            self.graph.producer(id).is_none() || self.graph.origin(id) == Some(Origin::Inverse(input))
        })
    }

    /// Whether the inverse of the file's data depends on something unknown.
    fn is_unknown(&self) -> bool {
        self.sources().any(|(_, buffer)| matches!(buffer, Err(e) if matches!(e.kind(), Kind::Unknown(_))))
    }

    /// A segment as stored.
    fn segment(&self, entry: &BufferEntry) -> StageBuffer {
        let (at, len) = (self.header.segment_at(entry), entry.data_size);
        let source = &self.source;
        let data_type = DataType::from_code(entry.data_type).unwrap_or(DataType::Opaque);
        StageBuffer {
            stream: Arc::new(Segment { source: Arc::clone(source), at, len }),
            content: Content::FileExtent(FileExtent { source: Arc::clone(source), at, len, gate: self.gate.clone() }),
            blobs: Vec::new(),
            array: vector(data_type, len),
            data_type,
            stored: len,
            input_of: None,
        }
    }

    /// Inverts every stage, after the stages that provide its outputs.
    fn invert_all(&mut self, options: &Options) {
        let missing = || Err(Error::corrupt("missing", "stage"));
        self.inverses = self.stages.iter().map(|_| missing()).collect();
        for index in self.graph.inverse_order().to_vec() {
            let outputs: Result<Vec<&StageBuffer>> = self.output_ids(index).filter_map(|id| self.buffer(id)).collect();
            let inverse = outputs.and_then(|outputs| self.invert(index, &outputs, options));
            if let Some(slot) = self.inverses.get_mut(index) {
                *slot = inverse;
            }
        }
    }

    /// The inverse of stage `index`, applied to `outputs`: a buffer per input.
    fn invert(&self, index: usize, outputs: &[&StageBuffer], options: &Options) -> Result<Vec<StageBuffer>> {
        let (Some(stage), Some(info)) = (self.stages.get(index), self.header.stages.get(index)) else {
            return Err(Error::corrupt("missing", "stage"));
        };
        if let Some(why) = stage.unknown() {
            return Err(why.clone().at(info.at));
        }
        let context = Arc::new(self.error_context(index, stage.as_ref(), info));
        let cx = Context {
            account: options.account.clone(),
            limits: options.limits.clone(),
            stored: self.header.compressed_size,
        };
        let streams: Vec<_> = outputs.iter().map(|buffer| Arc::clone(&buffer.stream)).collect();
        let below = streams.iter().map(|stream| stream.setup()).max();
        let inverse = stage.invert(streams, &cx).map_err(|e| context.add_to(e))?;
        let stored = outputs.iter().fold(0, |sum, buffer| buffer.stored.saturating_add(sum));
        let buffer = |(port, inner): (usize, Arc<dyn ByteStream>)| {
            let setup = inner.setup().max(below.unwrap_or(Setup::None));
            let (context, account) = (Arc::clone(&context), options.account.clone());
            let mut stream: Arc<dyn ByteStream> = Arc::new(WithErrorContext { inner, context, setup, account });
            let is_data = port == 0 && self.graph.sources().contains(&index);
            if is_data && self.is_overlong(index) {
                stream = self.without_surplus(stream);
            }
            let (content, blobs) = blob::content(&stream, self.gate.as_ref(), &self.setup_threads, options);
            let data_type = stage.input_type(port);
            let dims = stage.dims().filter(|_| is_data);
            let array = dims
                .and_then(|dims| self.unpadded(data_type, &dims, stream.len()))
                .or_else(|| vector(data_type, stream.len()));
            StageBuffer { array, stream, content, blobs, data_type, stored, input_of: Some(index) }
        };
        Ok(inverse.into_iter().enumerate().map(buffer).collect())
    }

    /// The stages that the elements of a source pass through, from the source on, by first outputs.
    pub(super) fn main_chain(&self, source: usize) -> impl Iterator<Item = Port> {
        let next = |port: &Port| match self.graph.origin(self.output_ids(port.stage).next()?)? {
            Origin::Inverse(input) => Some(input),
            Origin::Segment(_) => None,
        };
        // The graph has no cycle.
        std::iter::successors(Some(Port { stage: source, port: 0 }), next)
    }

    /// Whether a stage that the elements of `source` pass through is such that `holds`.
    fn chain_has(&self, source: usize, holds: fn(&dyn Stage) -> bool) -> bool {
        self.main_chain(source).filter_map(|port| self.stages.get(port.stage)).any(|stage| holds(stage.as_ref()))
    }

    /// Whether more than `source` held comes out of a stage, and no stage in front of it restores the length.
    fn is_overlong(&self, source: usize) -> bool {
        let mut stages = self.main_chain(source).filter_map(|port| self.stages.get(port.stage));
        stages.find(|stage| stage.has_own_length() || stage.is_overlong()).is_some_and(|stage| stage.is_overlong())
    }

    /// `stream` up to the length in the header. The lengths of several sources are not in table order: takes the
    /// longest one that fits.
    fn without_surplus(&self, stream: Arc<dyn ByteStream>) -> Arc<dyn ByteStream> {
        match self.header.source_sizes.iter().copied().filter(|&size| size <= stream.len()).max() {
            Some(len) if len < stream.len() => Arc::new(Part { stream, at: 0, len }),
            _ => stream,
        }
    }

    /// Applies the element type and shape given by the user to the data.
    fn ask_user(&mut self, options: &Options) -> Result<()> {
        let first = self.graph.sources().first().copied();
        if let Some(Ok(buffers)) = first.and_then(|stage| self.inverses.get_mut(stage))
            && let Some(buffer) = buffers.first_mut()
        {
            buffer.array = options.array(buffer.array.take(), buffer.stream.len())?;
        }
        Ok(())
    }

    /// The error context of stage `index`.
    fn error_context(&self, index: usize, stage: &dyn Stage, info: &StageInfo) -> ErrorContext {
        let segment = |(&port, id): (&&'static str, u16)| match self.graph.origin(id)? {
            Origin::Segment(segment) => Some((port, self.header.segment_at(self.header.buffers.get(segment)?))),
            Origin::Inverse(_) => None,
        };
        ErrorContext {
            label: format!("stage {index} ({})", stage.name()),
            record: info.at,
            config: (stage.config().names().collect(), info.config_at()),
            segments: stage.ports().iter().zip(self.output_ids(index)).filter_map(segment).collect(),
        }
    }

    /// Segment `index` decoded: inverts stages with one output and one input, until another stage, or the source.
    fn invert_chain(&self, index: usize, options: &Options) -> Result<StageBuffer> {
        let missing = || Error::corrupt("missing", "segment");
        let mut id = self.header.buffers.get(index).ok_or_else(missing)?.dag_buffer_id;
        let mut buffer = self.segments.get(index).ok_or_else(missing)?.clone();
        // Next to a redundant branch, the inverse in the graph reads a different segment.
        let mut own = self.graph.origin(id) == Some(Origin::Segment(index));
        while let Some(port) = self.graph.producer(id) {
            let mut inputs = self.inputs(port.stage);
            let (Some((input, input_id)), None, 1) =
                (inputs.next(), inputs.next(), self.output_ids(port.stage).count())
            else {
                break;
            };
            buffer = if own {
                self.inverse(input).ok_or_else(missing)??.clone()
            } else {
                self.invert(port.stage, &[&buffer], options)?.pop().ok_or_else(missing)?
            };
            id = input_id;
            own = own && self.graph.origin(id) == Some(Origin::Inverse(input));
        }
        Ok(buffer)
    }

    /// The shape of the source if `dims` describe all of it, or all but the zero padding for the stages' alignment.
    fn unpadded(&self, data_type: DataType, dims: &[u64], len: u64) -> Option<Array> {
        let array = Array { shape: dims.to_vec(), ..vector(data_type, len)? };
        let padding = len.checked_sub(array.byte_len().filter(|&bytes| bytes > 0)?)?;
        let alignment = self.stages.iter().fold(1, |all, stage| lcm(all, stage.alignment().max(1)));
        (padding < alignment.max(array.itemsize)).then_some(array)
    }

    /// Compares the decoded lengths with the header.
    fn check_lengths(&self) -> Result<()> {
        let sizes = &self.header.source_sizes;
        let mut failure = None;
        for (n, (source, inverse)) in self.sources().enumerate() {
            let buffer = match inverse {
                Ok(buffer) => buffer,
                Err(e) => {
                    failure.get_or_insert(e);
                    continue;
                }
            };
            let len = buffer.stream.len();
            // Padding that a stage does not store is missing in front of it too.
            let may_be_shorter = self.chain_has(source, |stage| stage.has_own_length());
            // A partial element at the end may be lost.
            let fits = |size: u64| {
                size.checked_sub(len).is_some_and(|lost| may_be_shorter || lost < to_u64(buffer.data_type.size()))
            };
            // With several sources, the sizes are not in table order.
            let known = sizes.len() > 1 || n == 0;
            if known && !sizes.iter().any(|&size| fits(size)) {
                let said = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ");
                let why = format!("{said} bytes, but source {n} decodes to {len}");
                return Err(Error::corrupt(why, "source_uncompressed_sizes").at(AT_SOURCE_SIZES));
            }
        }
        match failure {
            // If another source is intact, only the files of the broken one fail; an unknown one may be intact.
            Some(e) if !self.is_unknown() && self.sources().all(|(_, inverse)| inverse.is_err()) => Err(e),
            _ => Ok(()),
        }
    }
}

/// Parses every stage, and checks that it has a buffer per port, or is unknown.
fn parse_stages(header: &Header) -> Result<Vec<Box<dyn Stage>>> {
    let parse = |(index, info): (usize, &StageInfo)| {
        let config = Cursor::new(&info.config, info.config_at());
        stage::parse(index, info.stage_type, &config, info.inputs.len(), info.outputs.len()).map_err(|e| e.at(info.at))
    };
    header.stages.iter().enumerate().map(parse).collect()
}

/// The payload's checksum gate, which runs when the first payload byte is requested.
fn payload_gate(source: &Arc<Source>, header: &Header, stored: u32, options: &Options) -> ChecksumGate {
    let (source, at, len) = (Arc::clone(source), FileOffset(header.header_size), header.compressed_size);
    let (threads, near) = (options.threads.clone(), source.clone());
    let check = options.index.once(&near, at, &stored.to_le_bytes(), len, move || {
        let computed = crc32(&source, at, len, &threads, "payload")?;
        if computed == stored {
            return Ok(());
        }
        let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
        Err(Error::new(kind, "data_checksum").at(AT_DATA_CHECKSUM))
    });
    ChecksumGate::new(&options.verify, len, &options.threads, check).near(move || near.is_near(at, len))
}

/// All whole elements in `len` bytes, as one dimension.
fn vector(data_type: DataType, len: u64) -> Option<Array> {
    let itemsize = to_u64(data_type.size());
    Some(Array { descr: data_type.descr()?.to_owned(), itemsize, shape: vec![len / itemsize] })
}

/// Least common multiple, saturating.
fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}
