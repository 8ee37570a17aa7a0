//! Difference (type 2): every element minus its predecessor, in chunks or over the whole stream.
//!
//! Reference: sections 5.4 and 6 (shorter configurations). Integers are summed modulo their width; floats in the order
//! of the reference library, in tiles of 512. Chunks are independent. Without chunks, or with large ones, the sum
//! before every 64 KiB is recorded as the stream is read, and a window starts at the nearest one.
#![forbid(unsafe_code)]

mod sum;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use super::DataType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::checkpoints::{Checkpoints, Frontier};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::sign_coding::{Decode, negabinary_of, zigzag_numbers};
use super::types::Element;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::inverse::{self, Inverse, RunningSums};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use sum::{SequentialScan, Sum, TiledScan};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 2,
    name: "difference",
    family: Family::Predictor,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Difference::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[0, 1, 6, 7],
    fields: &[
        Field::element_type("input_type", 0),
        Field::element_type("output_type", 1),
        Field::u32("chunk_size", 2),
        Field::boolean("zigzag", 6),
    ],
};

/// A stage.
struct Difference {
    config: Config,
    input: DataType,
    output: DataType,
    /// Bytes per chunk; 0 for no chunks.
    chunk_size: u32,
}

impl Difference {
    fn parse(config: Config) -> Result<Self> {
        let input = config.element_type("input_type", &[F32, F64, U8, U16, U32, I8, I16, I32, I64], F32)?;
        let output = config.element_type("output_type", &[F32, F64, U8, U16, U32, U64, I32, I64], input)?;
        let stage = Self { input, output, chunk_size: config.u32("chunk_size"), config };
        if !stage.is_coded() && (input != output || matches!(input, I8 | I16)) {
            let pair = format!("differences from {} to {}", input.name(), output.name());
            return Err(stage.config.unknown("input_type", pair));
        }
        if stage.config.has("zigzag") && !stage.is_coded() {
            return Err(stage.config.unknown("zigzag", "a coding of plain differences"));
        }
        Ok(stage)
    }

    /// Whether the differences of signed integers are stored as codes without a sign.
    fn is_coded(&self) -> bool {
        self.input.is_signed() && self.output.code().checked_add(4) == Some(self.input.code())
    }
}

impl Stage for Difference {
    fn input_type(&self, _input: usize) -> DataType {
        self.input
    }

    fn output_type(&self, _port: usize) -> DataType {
        self.output
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = vec![self.input.name().to_owned()];
        if self.is_coded() {
            lines.push(if self.config.flag("zigzag") { "zigzag" } else { "negabinary" }.into());
        }
        if self.chunk_size > 0 {
            lines.push(format!("chunks of {} bytes", self.chunk_size));
        }
        lines
    }

    fn alignment(&self) -> u64 {
        self.chunk_size.into()
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let size = self.input.size();
        let input = match (self.is_coded(), self.config.flag("zigzag")) {
            (true, false) => DifferenceInput { decode: Some(negabinary_of(size)), stream: input },
            (true, true) => DifferenceInput { decode: None, stream: zigzag_numbers(input, size) },
            _ => DifferenceInput { decode: None, stream: input },
        };
        let chunk = u64::from(self.chunk_size) / to_u64(size);
        Ok(vec![match (self.input, size) {
            (F32, _) => stream::<TiledScan<f32>>(input, chunk, cx),
            (F64, _) => stream::<TiledScan<f64>>(input, chunk, cx),
            (_, 1) => stream::<SequentialScan<u8>>(input, chunk, cx),
            (_, 2) => stream::<SequentialScan<u16>>(input, chunk, cx),
            (_, 4) => stream::<SequentialScan<u32>>(input, chunk, cx),
            _ => stream::<SequentialScan<u64>>(input, chunk, cx),
        }])
    }
}

/// The stored differences.
struct DifferenceInput {
    stream: Arc<dyn ByteStream>,
    decode: Option<Decode>,
}

impl DifferenceInput {
    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        self.stream.read(at, dst)?;
        if let Some(decode) = self.decode {
            decode(dst);
        }
        Ok(())
    }
}

/// Bytes between recorded sums; a whole number of tiles for any element type.
const INTERVAL: u64 = 64 << 10;

/// The sums of `input`, which restart every `chunk` elements; 0 for never.
fn stream<S: Sum>(input: DifferenceInput, chunk: u64, cx: &Context) -> Arc<dyn ByteStream> {
    let (len, size) = (input.stream.len(), to_u64(S::Element::SIZE));
    let whole = len - len % size;
    let bytes = chunk.saturating_mul(size);
    if (1..=INTERVAL).contains(&bytes) {
        let windows = BlockWindows::new(len, bytes, scaled(input.stream.unit(), 1, 1));
        return Arc::new(Chunked::<S> { input, chunk: bytes as usize, whole, windows, _sum: PhantomData });
    }
    let count = whole / size;
    let chunk = if chunk == 0 { count } else { chunk.min(count) }.max(1);
    let mut carried = CheckpointedScan::<S> {
        input,
        chunk,
        count,
        windows: BlockWindows::new(len, size, INTERVAL),
        checkpoints: None,
        _sum: PhantomData,
    };
    let ranges = count.checked_sub(1).map_or(0, |last| carried.range_of(last).index.saturating_add(1));
    carried.checkpoints = (ranges > 1).then(|| Checkpoints::new(ranges, cx, "index of sums"));
    Arc::new(carried)
}

/// Sums that restart at every chunk; chunks are read whole.
struct Chunked<S> {
    input: DifferenceInput,
    /// Bytes of a chunk.
    chunk: usize,
    /// Bytes of whole elements.
    whole: u64,
    windows: BlockWindows,
    _sum: PhantomData<fn() -> S>,
}

impl<S: Sum> Blockwise for Chunked<S> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let n = to_u64(out.len()).min(self.whole.saturating_sub(start));
        let (elements, tail) = out.split_at_mut(n as usize);
        tail.fill(0);
        self.input.read(start, elements)?;
        for chunk in elements.chunks_mut(self.chunk) {
            S::add(S::Element::default(), chunk);
        }
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let size = to_u64(S::Element::SIZE);
        Some(derivation::<S>(&self.input, to_u64(self.chunk) / size, self.whole))
    }
}

/// Sums over long chunks; the sum before every [`INTERVAL`] is recorded.
struct CheckpointedScan<S: Sum> {
    input: DifferenceInput,
    /// Elements of a chunk.
    chunk: u64,
    /// Whole elements.
    count: u64,
    windows: BlockWindows,
    /// The sum before each range, chunk by chunk; `None` if there is only one range.
    checkpoints: Option<Checkpoints>,
    _sum: PhantomData<fn() -> S>,
}

/// A range of elements that is summed from its start.
struct SumRange {
    /// The index of its checkpoint.
    index: u64,
    start: u64,
    end: u64,
}

impl<S: Sum> CheckpointedScan<S> {
    const INTERVAL: u64 = INTERVAL / S::Element::SIZE as u64;

    /// The range that contains element `at`.
    fn range_of(&self, at: u64) -> SumRange {
        let (chunk, within) = (at / self.chunk, at % self.chunk / Self::INTERVAL);
        let start = chunk * self.chunk + within * Self::INTERVAL;
        let end = (start + Self::INTERVAL).min((chunk + 1) * self.chunk).min(self.count);
        SumRange { index: chunk * self.chunk.div_ceil(Self::INTERVAL) + within, start, end }
    }

    /// The first element of range `index`.
    fn start(&self, index: u64) -> u64 {
        let per_chunk = self.chunk.div_ceil(Self::INTERVAL).max(1);
        index / per_chunk * self.chunk + index % per_chunk * Self::INTERVAL
    }

    /// The sum before the next range, after one that ends at `end` with `sum`.
    fn after(&self, end: u64, sum: S::Element) -> S::Element {
        if end.is_multiple_of(self.chunk) { S::Element::default() } else { sum }
    }

    /// The sum before range `index`.
    fn before(&self, index: u64) -> Result<S::Element> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(S::Element::default()) };
        checkpoints.within_reach(index.saturating_sub(checkpoints.frontier().scanned).saturating_mul(INTERVAL))?;
        checkpoints.reach(
            |frontier| frontier.scanned >= index,
            |Frontier { scanned, last }, entries| {
                let SumRange { start, end, .. } = self.range_of(self.start(scanned));
                let mut bytes =
                    ScratchBuffer::new(to_usize((end - start) * to_u64(S::Element::SIZE), "range of sums")?)?;
                self.input.read(start * to_u64(S::Element::SIZE), &mut bytes)?;
                entries.push(to_entry(self.after(end, S::add(from_entry(last), &mut bytes))));
                Ok(())
            },
        )?;
        let entry = checkpoints
            .get(index)?
            .ok_or_else(|| Error::corrupt(format!("range {index} has no sum"), "index of sums"))?;
        Ok(from_entry(entry))
    }

    /// Fills `out` with elements from `at`.
    fn fill(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let size = to_u64(S::Element::SIZE);
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            let range = self.range_of(at);
            let (start, end) = (range.start, range.end.min(at + to_u64(rest.len()) / size));
            let before = self.before(range.index)?;
            let (own, tail) = std::mem::take(&mut rest).split_at_mut(to_usize((end - at) * size, "range of sums")?);
            if at == start {
                self.input.read(at * size, own)?;
                let sum = S::add(before, own);
                if let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| end == range.end && end < self.count) {
                    // Advances the scan if this is its frontier. If there is no space, the error is left for the scan
                    // to report.
                    let frontier = Frontier { scanned: range.index, last: to_entry(before) };
                    drop(checkpoints.add(frontier, &[to_entry(self.after(end, sum))]));
                }
            } else {
                let mut bytes = ScratchBuffer::new(to_usize((end - start) * size, "range of sums")?)?;
                self.input.read(start * size, &mut bytes)?;
                S::add(before, &mut bytes);
                let skip = bytes.len() - own.len();
                own.copy_from_slice(&bytes[skip..]);
            }
            (at, rest) = (end, tail);
        }
        Ok(())
    }
}

/// A sum as a checkpoint entry, zero-padded.
fn to_entry<T: Element>(sum: T) -> u64 {
    let mut bytes = [0; 8];
    sum.put(&mut bytes[..T::SIZE]);
    u64::from_le_bytes(bytes)
}

/// The inverse of [`to_entry`].
fn from_entry<T: Element>(entry: u64) -> T {
    T::get(&entry.to_le_bytes()[..T::SIZE])
}

impl<S: Sum> Blockwise for CheckpointedScan<S> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let size = to_u64(S::Element::SIZE);
        let n = to_u64(out.len()).min((self.count * size).saturating_sub(start));
        let (elements, tail) = out.split_at_mut(n as usize);
        tail.fill(0);
        self.fill(start / size, elements)
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        Some(derivation::<S>(&self.input, self.chunk, self.count * to_u64(S::Element::SIZE)))
    }

    fn setup(&self) -> Setup {
        if self.checkpoints.is_some() { Setup::Scan } else { Setup::None }
    }
}

/// The derivation of sums of `input` that restart every `chunk` elements; `whole` is the bytes of whole elements.
fn derivation<S: Sum>(input: &DifferenceInput, chunk: u64, whole: u64) -> Derivation {
    let negabinary = input.decode.is_some();
    let sums = RunningSums { size: to_u64(S::Element::SIZE), float: S::FLOAT, negabinary, span: chunk };
    let inverse = Inverse::Difference(inverse::Difference { sums, whole });
    Derivation { inverse, input: Arc::clone(&input.stream) }
}
