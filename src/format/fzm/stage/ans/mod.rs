//! ANS (type 20): bytes in blocks of 4096, coded with range ANS of 32 interleaved states.
//!
//! Reference: section 20; the decoder of a block is in [`range_ans`]. Blocks are independent: their states, sizes and
//! words are at places that tables at the front give. The weights are read once.
//!
//! Limits: the decoded length follows from the configuration, and the stream must have tables for it.
#![forbid(unsafe_code)]

mod header;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::elements;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::codec::range_ans::{self, Block, LANES, PAD};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

use header::{AnsHeader, Places};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 20,
    name: "ans",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Ans::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[12],
    fields: &[Field::u8("probability_bits", 0), Field::zero(1, 3), Field::u64("decoded_size", 4)],
};

/// Bytes of a decoded block; the last may be shorter.
const BLOCK: u64 = 4096;
/// Blocks that are decoded together.
const BATCH: usize = 8;
/// The only number of probability bits.
const BITS: u8 = 10;

/// A stage.
struct Ans {
    config: Config,
}

impl Ans {
    fn parse(config: Config) -> Result<Self> {
        match config.u8("probability_bits") {
            BITS => Ok(Self { config }),
            bits => Err(config.unknown("probability_bits", format!("a table of {bits} bits"))),
        }
    }
}

impl Stage for Ans {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::U8
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("blocks of {BLOCK} bytes")]
    }

    fn alignment(&self) -> u64 {
        4
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let size = self.config.u64("decoded_size");
        if size > u64::from(u32::MAX) {
            return Err(self.config.corrupt("decoded_size", format!("{size} bytes, but the stream has a 32-bit size")));
        }
        let need = if size == 0 { 0 } else { Places::new(size).words };
        if input.len() < need {
            return Err(Error::new(Kind::Truncated { need, have: input.len() }, "ans block table"));
        }
        let windows = BlockWindows::new(size, BLOCK, BLOCK);
        Ok(vec![Arc::new(AnsStream { input, cx: cx.clone(), header: Once::new(), places: Places::new(size), windows })])
    }
}

/// The decoded stream.
struct AnsStream {
    input: Arc<dyn ByteStream>,
    cx: Context,
    header: Once<AnsHeader>,
    places: Places,
    windows: BlockWindows,
}

/// The words of a block.
#[derive(Debug, Clone, Copy, Default)]
struct AnsSpan {
    /// The first one.
    start: u64,
    count: u64,
}

impl AnsSpan {
    fn end(self) -> u64 {
        self.start + self.count
    }
}

impl AnsStream {
    fn header(&self) -> Result<&AnsHeader> {
        let read = || AnsHeader::read(&*self.input, self.windows.len(), &self.places, &self.cx);
        self.header.build(&self.cx.account, self.cx.build_limit(0), read)
    }

    /// The words of the blocks from `first` on, which have these lengths.
    fn spans(
        &self,
        header: &AnsHeader,
        first: u64,
        lengths: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<AnsSpan>> {
        let mut table = ScratchBuffer::new(8 * lengths.len())?;
        self.input.read(self.places.table + 8 * first, &mut table)?;
        let entries = elements::<u64>(&table).zip(lengths).zip(first..);
        entries
            .map(|((entry, length), block)| {
                let broken = |why: String| Error::corrupt(why, "ans block table").within(format!("block {block}"));
                let (bytes, count, start) = (entry >> 16 & 0xFFFF, entry & 0xFFFF, entry >> 32);
                let span = AnsSpan { start, count };
                if bytes != to_u64(length) {
                    return Err(broken(format!("{bytes} bytes, but the block has {length}")));
                }
                // A byte takes one word at most.
                if count > bytes {
                    return Err(broken(format!("{count} words for {bytes} bytes")));
                }
                if span.end() > header.words {
                    return Err(broken(format!("ends at word {} of {}", span.end(), header.words)));
                }
                Ok(span)
            })
            .collect()
    }

    /// The words of `spans`, and where the padding before each span starts.
    fn words(&self, spans: &[AnsSpan]) -> Result<(ScratchBuffer, Vec<usize>)> {
        let (mut places, mut len) = (Vec::with_capacity(spans.len()), 0);
        let in_order = spans.is_sorted_by(|a, b| a.end() <= b.start);
        let (from, to) = (spans.first().map_or(0, |s| s.start), spans.last().map_or(0, |s| s.end()));
        // As the library writes them: one after the other, with at most 7 words between.
        if in_order && to - from <= spans.iter().map(|s| s.count + 8).sum() {
            let words = to_usize(2 * (to - from), "ans words")?;
            let mut bytes = ScratchBuffer::new(words + 2 * PAD)?;
            self.input.read(self.places.words + 2 * from, &mut bytes[PAD..PAD + words])?;
            return Ok((bytes, spans.iter().map(|s| 2 * (s.start - from) as usize).collect()));
        }
        for span in spans {
            places.push(len);
            len += 2 * span.count as usize + 2 * PAD;
        }
        let mut bytes = ScratchBuffer::new(len)?;
        for (span, place) in spans.iter().zip(&places) {
            let own = &mut bytes[place + PAD..][..2 * span.count as usize];
            self.input.read(self.places.words + 2 * span.start, own)?;
        }
        Ok((bytes, places))
    }

    /// Decodes at most [`BATCH`] blocks from `first` on.
    fn batch(&self, header: &AnsHeader, first: u64, out: &mut [u8]) -> Result<()> {
        let spans = self.spans(header, first, out.chunks(BLOCK as usize).map(<[u8]>::len))?;
        let mut states = ScratchBuffer::new(4 * LANES * spans.len())?;
        self.input.read(self.places.states + to_u64(4 * LANES) * first, &mut states)?;
        let (bytes, places) = self.words(&spans)?;
        let blocks = out.chunks_mut(BLOCK as usize).zip(states.chunks_exact(4 * LANES)).zip(spans.iter().zip(places));
        let mut blocks: Vec<Block> = blocks
            .map(|((out, states), (span, place))| {
                let mut own = [0; LANES];
                own.iter_mut().zip(elements(states)).for_each(|(own, state)| *own = state);
                Block { states: own, words: &bytes[place..][..2 * span.count as usize + 2 * PAD], out }
            })
            .collect();
        range_ans::decode(&header.slots, &mut blocks).map_err(|block| {
            Error::corrupt("its states and words do not fit each other", "ans block")
                .within(format!("block {}", first + to_u64(block)))
        })
    }
}

impl Blockwise for AnsStream {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let header = self.header()?;
        let batches = (start / BLOCK..).step_by(BATCH).zip(out.chunks_mut(BATCH * BLOCK as usize));
        for (first, out) in batches {
            self.batch(header, first, out)?;
        }
        Ok(())
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}
