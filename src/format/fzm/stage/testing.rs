//! Shared test helpers of the stages: streams in memory, and the inverse of one stage over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fzm_writer::{Dtype, Pipeline, Source, Step};

use super::{Context, Stage, parse};
use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::Result;
use crate::format::fzm::stream::ByteStream;
use crate::limits::Limits;

/// A stream in memory.
pub(super) struct Memory(pub(super) Vec<u8>);

impl ByteStream for Memory {
    fn len(&self) -> u64 {
        to_u64(self.0.len())
    }

    fn unit(&self) -> u64 {
        1
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let at = usize::try_from(at).unwrap();
        dst.copy_from_slice(&self.0[at..at + dst.len()]);
        Ok(())
    }
}

/// A context with 256 MiB of memory.
pub(super) fn context() -> Context {
    Context { account: Account::new(256 << 20, 0), limits: Limits::default(), stored: 0 }
}

/// The inverse of the stage of type `ty` with `config`, over outputs in memory.
pub(super) fn stream(ty: u16, config: &[u8], outputs: &[&[u8]]) -> Result<Arc<dyn ByteStream>> {
    let outputs: Vec<_> = outputs.iter().map(|b| Arc::new(Memory(b.to_vec())) as Arc<dyn ByteStream>).collect();
    Ok(made(ty, config, outputs.len())?.invert(outputs, &context())?.remove(0))
}

/// The stage of type `ty` with one input; fails if anything of it is unknown.
pub(super) fn made(ty: u16, config: &[u8], outputs: usize) -> Result<Box<dyn Stage>> {
    made_of(ty, config, 1, outputs)
}

/// As [`made`], with `inputs` inputs.
pub(super) fn made_of(ty: u16, config: &[u8], inputs: usize, outputs: usize) -> Result<Box<dyn Stage>> {
    let stage = parse(0, ty, &Cursor::new(config, FileOffset(0x100)), inputs, outputs)?;
    match stage.unknown() {
        Some(why) => Err(why.clone()),
        None => Ok(stage),
    }
}

/// All bytes of a stream, read at once.
pub(super) fn whole(stream: &dyn ByteStream) -> Result<Vec<u8>> {
    // Not zero, so that unwritten bytes are noticed.
    let mut all = vec![0xAA; usize::try_from(stream.len()).unwrap()];
    stream.read(0, &mut all)?;
    Ok(all)
}

/// All bytes of the inverse.
pub(super) fn inverse(ty: u16, config: &[u8], outputs: &[&[u8]]) -> Result<Vec<u8>> {
    whole(&*stream(ty, config, outputs)?)
}

/// The message for an invalid or unknown configuration at offset 0x100, without the words that all have.
#[track_caller]
pub(super) fn parse_error(ty: u16, config: &[u8]) -> String {
    // The number of ports is compared last.
    match made(ty, config, 1) {
        Ok(stage) => panic!("{} was accepted", stage.name()),
        Err(e) => plain(&e.to_string()),
    }
}

/// `message` without the label of the stage and the version.
fn plain(message: &str) -> String {
    let mut text = message.to_owned();
    for (from, to) in [(" (stage 0 (", "): "), (" to fzmfs", "wrote it")] {
        if let Some(at) = text.find(from)
            && let Some(end) = text[at..].find(to)
        {
            text.replace_range(at..at + end + to.len(), if to == "): " { " (" } else { "" });
        }
    }
    text
}

/// The unknown part of a configuration at offset 0x100, and its place: `element type 77 (input_type, at byte 0x100)`.
#[track_caller]
pub(super) fn unknown_error(ty: u16, config: &[u8]) -> String {
    let e = parse_error(ty, config);
    let (what, place) = e.split_once(" is unknown (").unwrap();
    format!("{what} ({place}")
}

/// The message of a failed inversion or read.
#[track_caller]
pub(super) fn inverse_error(ty: u16, config: &[u8], outputs: &[&[u8]]) -> String {
    match inverse(ty, config, outputs) {
        Ok(bytes) => panic!("accepted, {} bytes", bytes.len()),
        Err(e) => plain(&e.to_string()),
    }
}

/// A deterministic pseudo-random sequence.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }

    pub(super) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// Compares many windows of the inverse with the whole.
#[track_caller]
pub(super) fn windows_agree(ty: u16, config: &[u8], outputs: &[&[u8]]) {
    let stream = stream(ty, config, outputs).unwrap();
    let all = whole(&*stream).unwrap();
    assert_windows(&*stream, &all);
}

/// Compares many windows of `stream` with `all`.
#[track_caller]
pub(super) fn assert_windows(stream: &dyn ByteStream, all: &[u8]) {
    let len = stream.len();
    assert_eq!(len, to_u64(all.len()));
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for round in 0..100 {
        let at = random.below(len + 1);
        let most = if round % 4 == 0 { 100_000 } else { 64 };
        let n = random.below(most.min(len - at) + 1);
        let mut dst = vec![0xAA; n as usize];
        stream.read(at, &mut dst).unwrap();
        assert!(dst == all[at as usize..][..n as usize], "window {at}+{n} of {len}");
    }
    let unit = stream.unit();
    assert!(unit >= 1);
}

/// Encodes an array with the writer's pipeline `text`, inverts the graph with our stages, and compares every buffer and
/// many of its windows with the writer's own decoding; with enough memory, and with none.
#[track_caller]
pub(super) fn round_trip(text: &str, dtype: Dtype, shape: &[u32], bytes: &[u8]) {
    let sources = vec![Source { dtype, shape: shape.to_vec(), bytes: bytes.to_vec() }];
    let pipeline = Pipeline::parse(text, &sources).unwrap();
    let run = pipeline.run(sources, true).unwrap();
    let want = run.restore().unwrap();
    let segments: BTreeMap<u16, Vec<u8>> = run.segments().iter().map(|s| (s.id, s.bytes.to_vec())).collect();
    let steps = run.steps();
    for (step, input) in steps.iter().flat_map(|step| step.inputs.iter().map(move |input| (step, *input))) {
        let want = &want[&input];
        let read = |cx: &Context| {
            let stream = content(&steps, &segments, input, cx);
            let all = whole(&*stream).unwrap_or_else(|e| panic!("{text}: {}: {e}", step.name));
            assert_eq!(all.len(), want.len(), "{text}: {}", step.name);
            if all != *want {
                let at = all.iter().zip(want).position(|(a, b)| a != b);
                panic!("{text}: {}: differs at byte {at:?} of {}", step.name, all.len());
            }
            stream
        };
        // Others have taken the memory: what is large goes to the disk.
        read(&Context { account: Account::new(0, 1 << 30), ..context() });
        let stream = read(&context());
        assert_windows(&*stream, want);
        assert_bricks(&*stream, want);
    }
}

/// The configuration and the outputs of the one stage of `text` over `bytes`.
pub(super) fn coded(text: &str, dtype: Dtype, bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    coded_array(text, dtype, &[(bytes.len() / dtype.size()) as u32], bytes)
}

/// As [`coded`], for an array of `shape`.
pub(super) fn coded_array(text: &str, dtype: Dtype, shape: &[u32], bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let sources = vec![Source { dtype, shape: shape.to_vec(), bytes: bytes.to_vec() }];
    let pipeline = Pipeline::parse(text, &sources).unwrap();
    let run = pipeline.run(sources, true).unwrap();
    let mut ports: Vec<(usize, Vec<u8>)> = run.segments().iter().map(|s| (s.port, s.bytes.to_vec())).collect();
    ports.sort_by_key(|(port, _)| *port);
    (run.steps().remove(0).config, ports.into_iter().map(|(_, bytes)| bytes).collect())
}

/// The stream of a buffer: the inverse of its last reader, or the segment.
pub(super) fn content(steps: &[Step], segments: &BTreeMap<u16, Vec<u8>>, id: u16, cx: &Context) -> Arc<dyn ByteStream> {
    match steps.iter().rfind(|step| step.inputs.contains(&id)) {
        None => Arc::new(Memory(segments[&id].clone())),
        Some(step) => {
            let outputs = step.outputs.iter().map(|(id, ..)| content(steps, segments, *id, cx)).collect();
            let place = step.inputs.iter().rposition(|input| *input == id).unwrap();
            let stage = made_of(step.kind, &step.config, step.inputs.len(), step.outputs.len()).unwrap();
            assert_eq!(stage.name(), step.name);
            assert!(stage.ports().iter().eq(step.outputs.iter().map(|(_, name, _)| name)));
            stage.invert(outputs, cx).unwrap().remove(place)
        }
    }
}

/// Compares every brick of `stream`, if it has any, with `all`.
#[track_caller]
pub(super) fn assert_bricks(stream: &dyn ByteStream, all: &[u8]) {
    let Some(bricks) = stream.bricks() else { return };
    let size = bricks.itemsize as usize;
    let three = |v: &[u64]| -> Vec<usize> {
        std::iter::repeat_n(1, 3 - v.len()).chain(v.iter().map(|&n| n as usize)).collect()
    };
    let (shape, brick) = (three(&bricks.shape), three(&bricks.brick));
    let grid: Vec<usize> = shape.iter().zip(&brick).map(|(n, b)| n.div_ceil(*b)).collect();
    let zeros = vec![0; brick[2] * size];
    for index in 0..grid.iter().product() {
        let start =
            [index / grid[2] / grid[1] * brick[0], index / grid[2] % grid[1] * brick[1], index % grid[2] * brick[2]];
        let mut dst = vec![0xAA; brick.iter().product::<usize>() * size];
        stream.read_brick(index as u64, &mut dst).unwrap();
        for (row, own) in dst.chunks_exact(brick[2] * size).enumerate() {
            let [z, y, x] = [start[0] + row / brick[1], start[1] + row % brick[1], start[2]];
            let inside = z < shape[0] && y < shape[1];
            let len = if inside { brick[2].min(shape[2] - x) * size } else { 0 };
            let at = if inside { ((z * shape[1] + y) * shape[2] + x) * size } else { 0 };
            assert!(own[..len] == all[at..at + len], "brick {index}, row {row}");
            assert!(own[len..] == zeros[len..], "brick {index}, after row {row}");
        }
    }
}
