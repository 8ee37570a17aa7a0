//! `SZx` (type 36) and `SZp` (type 37): blocks of integers of a fixed width, in units of twice the error bound.
//!
//! Reference: sections `SZx` and `SZp`. The stream is a table with an entry for each block, then the blocks. A scan of
//! the table, as far as needed, finds where every 256th block starts. A window of `SZx` reads only its own codes; `SZp`
//! sums the codes of a block, so it decodes whole blocks.
//!
//! Limits: 2^16 elements in a block of `SZp` (the writer's limit is 4096).
#![forbid(unsafe_code)]

mod kernel;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::checkpoints::{Checkpoints, Frontier};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::Float;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::codec::simd_dispatch::run_widest;
use crate::error::{Error, Result};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use kernel::{BlockWindow, PAD};

/// Stage type 36.
pub(super) const SZX: StageType = StageType {
    code: 36,
    name: "szx",
    family: Family::Quantizer,
    layout: &LAYOUT,
    parse: |config| SzBlocks::parse(config, BlockCoding::Referenced),
};
/// Stage type 37.
pub(super) const SZP: StageType = StageType {
    code: 37,
    name: "szp",
    family: Family::Quantizer,
    layout: &LAYOUT,
    parse: |config| SzBlocks::parse(config, BlockCoding::Differences),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[32],
    fields: &[
        Field::element_type("type", 0),
        Field::mode("error_mode", 1),
        Field::zero(2, 2),
        Field::u32("block_size", 4),
        Field::u64("num_elements", 8),
        Field::f64("error_bound", 16),
        Field::f64("value_range", 24),
    ],
};

/// Elements of a block if the configuration says 0.
const BLOCK: u64 = 128;
/// Elements of the largest block with summed codes.
const LARGEST: u64 = 1 << 16;

/// How a block stores its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockCoding {
    /// `SZx`: a reference value, and distances from it unless all are 0.
    Referenced,
    /// `SZp`: differences from the element before.
    Differences,
}

impl BlockCoding {
    /// Bytes of an entry of the table.
    #[inline]
    fn entry(self) -> usize {
        match self {
            Self::Referenced => 2,
            Self::Differences => 1,
        }
    }

    /// Whether a block has codes, and their width, by its entry.
    #[inline]
    fn block(entry: &[u8]) -> (bool, u32) {
        match *entry {
            [kind, width] => (kind != 0, width.into()),
            [width] => (true, width.into()),
            _ => (false, 0),
        }
    }
}

/// A stage of either type.
struct SzBlocks {
    config: Config,
    coding: BlockCoding,
    ty: DataType,
    bound: f64,
    block: u64,
}

impl SzBlocks {
    fn parse(config: Config, coding: BlockCoding) -> Result<Box<dyn Stage>> {
        let ty = config.element_type("type", &[DataType::F32, DataType::F64], DataType::F32)?;
        let bound = config.f64("error_bound");
        if config.u64("num_elements") > 0 && !(bound.is_finite() && bound > 0.0) {
            return Err(config.corrupt("error_bound", format!("{bound} is not a positive number")));
        }
        let block = match config.u64("block_size") {
            0 => BLOCK,
            block if coding == BlockCoding::Differences && block > LARGEST => {
                return Err(config.unknown("block_size", format!("blocks of {block} elements")));
            }
            block => block,
        };
        Ok(Box::new(Self { config, coding, ty, bound, block }))
    }

    fn stream<T: Float>(&self, input: Arc<dyn ByteStream>, cx: &Context) -> Result<Arc<dyn ByteStream>> {
        let (size, count) = (to_u64(T::SIZE), self.config.u64("num_elements"));
        let blocks = count.div_ceil(self.block);
        let table = blocks.saturating_mul(to_u64(self.coding.entry()));
        if table > input.len() {
            let why = format!("{count} elements need a table of {table} bytes, the stream has {}", input.len());
            return Err(self.config.corrupt("num_elements", why));
        }
        let Some(len) = count.checked_mul(size) else {
            return Err(self.config.corrupt("num_elements", format!("{count} elements are more than 2^64 bytes")));
        };
        // An element of `SZx` does not depend on those before it.
        let unit = if self.coding == BlockCoding::Referenced { 1 } else { self.block };
        Ok(Arc::new(Blocks::<T> {
            input,
            coding: self.coding,
            bound: self.bound,
            block: self.block,
            count,
            table,
            starts: Checkpoints::new(blocks.div_ceil(STRIDE), cx, "index of blocks"),
            windows: BlockWindows::new(len, unit * size, 1),
            _element: PhantomData,
        }))
    }
}

impl Stage for SzBlocks {
    fn name(&self) -> &'static str {
        match self.coding {
            BlockCoding::Referenced => SZX.name,
            BlockCoding::Differences => SZP.name,
        }
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("eb {}", self.bound), format!("blocks of {}", self.block)]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        Ok(vec![match self.ty {
            DataType::F32 => self.stream::<f32>(input, cx)?,
            _ => self.stream::<f64>(input, cx)?,
        }])
    }
}

/// Blocks between two entries of the index.
const STRIDE: u64 = 256;
/// Strides that are scanned at a time.
const BATCH: u64 = 16;

/// The decoded array.
struct Blocks<T> {
    input: Arc<dyn ByteStream>,
    coding: BlockCoding,
    bound: f64,
    /// Elements of a block, and of the array.
    block: u64,
    count: u64,
    /// Bytes of the table.
    table: u64,
    /// For every [`STRIDE`]-th block, the bytes that the blocks before it store.
    starts: Checkpoints,
    windows: BlockWindows,
    _element: PhantomData<fn() -> T>,
}

impl<T: Float> Blocks<T> {
    /// The table's entries of `count` blocks from block `first`.
    fn entries(&self, first: u64, count: u64) -> Result<ScratchBuffer> {
        let entry = to_u64(self.coding.entry());
        let mut entries = ScratchBuffer::new(to_usize(count * entry, "block table")?)?;
        self.input.read(first * entry, &mut entries)?;
        Ok(entries)
    }

    /// Where block `index`, which starts at `at`, ends in the stream.
    fn end(&self, index: u64, entry: &[u8], at: u64) -> Result<u64> {
        let width = Self::codes(entry);
        let broken = |why: String| Err(Error::corrupt(why, "block table").within(format!("block {index}")));
        if self.coding == BlockCoding::Referenced && entry.first().is_some_and(|&kind| kind > 1) {
            return broken(format!("type {} is not defined", entry[0]));
        }
        if width > 64 {
            return broken(format!("codes of {width} bits"));
        }
        let elements = self.block.min(self.count.saturating_sub(index.saturating_mul(self.block)));
        // Below 2^39 bytes: a block has less than 2^32 elements.
        let end = at.saturating_add(self.reference()).saturating_add((elements * width).div_ceil(8));
        if end > self.input.len() {
            return broken(format!("ends at byte {end}, the stream at byte {}", self.input.len()));
        }
        Ok(end)
    }

    /// Number of blocks.
    fn blocks(&self) -> u64 {
        self.table / to_u64(self.coding.entry())
    }

    /// Bits of a code of a block; 0 if it has none.
    fn codes(entry: &[u8]) -> u64 {
        match BlockCoding::block(entry) {
            (true, width) => width.into(),
            (false, _) => 0,
        }
    }

    /// Bytes of a block's reference value.
    fn reference(&self) -> u64 {
        match self.coding {
            BlockCoding::Referenced => to_u64(T::SIZE),
            BlockCoding::Differences => 0,
        }
    }

    /// Where block `first` starts, and the table's entries of the blocks from it up to `last`.
    fn find(&self, first: u64, last: u64) -> Result<(u64, ScratchBuffer, usize)> {
        let stride = first / STRIDE;
        self.starts.reach(
            |frontier| frontier.scanned >= stride,
            |Frontier { scanned, last }, starts| {
                // The index has no entry for the end of the last stride.
                let strides = BATCH.min(self.blocks().div_ceil(STRIDE).saturating_sub(scanned + 1));
                let entries = self.entries(scanned * STRIDE, strides * STRIDE)?;
                let mut at = self.table + last;
                for (index, entry) in (scanned * STRIDE..).zip(entries.chunks_exact(self.coding.entry())) {
                    at = self.end(index, entry, at)?;
                    if (index + 1).is_multiple_of(STRIDE) {
                        starts.push(at - self.table);
                    }
                }
                Ok(())
            },
        )?;
        let start = self.starts.get(stride)?.ok_or_else(|| Error::corrupt("an entry is missing", "block table"))?;
        let from = stride * STRIDE;
        let entries = self.entries(from, last + 1 - from)?;
        let before = (first - from) as usize * self.coding.entry();
        let mut at = self.table + start;
        for (index, entry) in (from..).zip(entries[..before].chunks_exact(self.coding.entry())) {
            at = self.end(index, entry, at)?;
        }
        Ok((at, entries, before))
    }
}

impl<T: Float> Blockwise for Blocks<T> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let first = start / to_u64(T::SIZE);
        let end = first + to_u64(out.len() / T::SIZE);
        let (index, last) = (first / self.block, (end - 1) / self.block);
        let (at, entries, before) = self.find(index, last)?;
        let table = &entries[before..];
        let (mut start, mut stop, mut width) = (at, at, 0);
        for (index, entry) in (index..).zip(table.chunks_exact(self.coding.entry())) {
            (start, stop) = (stop, self.end(index, entry, stop)?);
            width = Self::codes(entry);
        }
        // Only the needed part of the first and of the last block.
        let stop = stop.min(start + self.reference() + ((end - last * self.block) * width).div_ceil(8));
        let (mut start, mut reference, skip) = (at, T::default(), first % self.block);
        if skip > 0
            && let (true, width) = BlockCoding::block(&table[..self.coding.entry()])
        {
            let mut bytes = [0; 8];
            self.input.read(at, &mut bytes[..T::SIZE])?;
            reference = T::get(&bytes[..T::SIZE]);
            start = at + self.reference() + skip * u64::from(width) / 8;
        }
        let bytes = to_usize(stop - start, "block")?;
        let mut payload = ScratchBuffer::new(bytes + PAD)?;
        self.input.read(start, &mut payload[..bytes])?;
        let (skip, block) = (to_usize(skip, "block")?, to_usize(self.block, "block")?);
        let (coding, bound, payload) = (self.coding, self.bound, &*payload);
        if run_widest(BlockWindow { coding, block, bound, table, skip, reference, payload, out }) {
            Ok(())
        } else {
            Err(Error::corrupt("the blocks end early", "block"))
        }
    }

    fn setup(&self) -> Setup {
        if self.blocks() > STRIDE { Setup::Scan } else { Setup::None }
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}
