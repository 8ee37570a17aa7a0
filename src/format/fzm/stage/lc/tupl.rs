//! TUPL (type 31): tuples of words, field by field within blocks.
//!
//! Reference: section 4 of the LC stages. A block may have any size, so a window reads only its tuples of every field.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::{to_u64, to_usize};
use crate::codec::shuffle;
use crate::error::Result;
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stage::config::{Config, ConfigLayout, Field};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::{Context, DataType, Family, Stage, StageType, exactly};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// The stage type.
pub(in super::super) const TYPE: StageType = StageType {
    code: 31,
    name: "tupl",
    family: Family::Shuffler,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Tupl::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[6],
    fields: &[Field::u32("block_size", 0), Field::u8("word_size", 4), Field::u8("dim", 5)],
};

/// A stage.
struct Tupl {
    config: Config,
    block: u64,
    word: u64,
    dim: u64,
}

impl Tupl {
    fn parse(config: Config) -> Result<Self> {
        let (block, word, dim) = (config.u64("block_size"), config.u64("word_size"), config.u64("dim"));
        if !matches!(word, 1 | 2 | 4 | 8) {
            return Err(config.unknown("word_size", format!("a word of {word} bytes")));
        }
        if block == 0 || !block.is_multiple_of(word) {
            return Err(config.unknown("block_size", format!("a block of {block} bytes")));
        }
        if dim < 2 {
            return Err(config.unknown("dim", format!("a tuple of {dim} words")));
        }
        Ok(Self { config, block, word, dim })
    }
}

/// Blocks up to this size are read as one.
const WHOLE: u64 = 64 << 10;
/// Bytes of each field that a part of a larger block has, at least.
const PART: u64 = 4 << 10;

impl Stage for Tupl {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::U8
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("tuples of {} words of {}", self.dim, self.word)]
    }

    fn alignment(&self) -> u64 {
        self.block
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let &Self { block, word, dim, .. } = self;
        let part = if block <= WHOLE { block } else { WHOLE.max(dim * PART).next_power_of_two() };
        let windows = BlockWindows::new(input.len(), part, input.unit());
        let count = block / word / dim;
        let full = if count == 0 { 0 } else { input.len() - input.len() % block };
        let undo = match word {
            1 => shuffle::undo as fn(usize, &[u8], &mut [u8]),
            2 => undo::<2>,
            4 => undo::<4>,
            _ => undo::<8>,
        };
        Ok(vec![Arc::new(Tuples { input, block, word, dim, count, full, undo, windows })])
    }
}

/// Turns fields into tuples of `dim` words.
fn undo<const W: usize>(dim: usize, fields: &[u8], out: &mut [u8]) {
    let (fields, out) = (fields.as_chunks::<W>().0, out.as_chunks_mut::<W>().0);
    let count = out.len() / dim.max(1);
    for (f, field) in fields.chunks_exact(count.max(1)).enumerate().take(dim) {
        for (own, word) in out.get_mut(f..).unwrap_or_default().iter_mut().step_by(dim).zip(field) {
            *own = *word;
        }
    }
}

/// The decoded stream.
struct Tuples {
    input: Arc<dyn ByteStream>,
    block: u64,
    word: u64,
    dim: u64,
    /// Tuples of a block.
    count: u64,
    /// Bytes of all full blocks; the bytes after them are stored as they are.
    full: u64,
    /// Turns fields into tuples of this many words.
    undo: fn(usize, &[u8], &mut [u8]),
    windows: BlockWindows,
}

impl Tuples {
    /// Fills `out` from `start`, the start of a block.
    fn blocks(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let mut stored = ScratchBuffer::new(out.len())?;
        self.input.read(start, &mut stored)?;
        let block = to_usize(self.block, "tupl block")?;
        let dim = to_usize(self.dim, "tupl block")?;
        let tuples = to_usize(self.count * self.dim * self.word, "tupl block")?;
        let (full, tail) =
            out.split_at_mut(out.len().min(usize::try_from(self.full - start.min(self.full)).unwrap_or(usize::MAX)));
        tail.copy_from_slice(&stored[full.len()..]);
        for (own, stored) in full.chunks_mut(block).zip(stored.chunks(block)) {
            let (own, rest) = own.split_at_mut(tuples);
            (self.undo)(dim, &stored[..tuples], own);
            rest.copy_from_slice(&stored[tuples..]);
        }
        Ok(())
    }

    /// Fills `out` from any `start`.
    fn part(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let block = at - at % self.block;
            let tuples = block + self.count * self.dim * self.word;
            let end = match at {
                _ if at >= self.full => self.windows.len(),
                _ if at < tuples => tuples,
                _ => block + self.block,
            };
            let n = rest.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let (own, more) = rest.split_at_mut(n);
            if at < self.full && at < tuples {
                self.tuples(block, at - block, own)?;
            } else {
                self.input.read(at, own)?;
            }
            (at, rest) = (at + to_u64(n), more);
        }
        Ok(())
    }

    /// Fills `out` with the bytes at `from` of the block that starts at `block`, all of them parts of tuples.
    fn tuples(&self, block: u64, from: u64, out: &mut [u8]) -> Result<()> {
        const WHAT: &str = "tupl block";
        let tuple = self.dim * self.word;
        let first = from / tuple;
        let count = (from + to_u64(out.len())).div_ceil(tuple) - first;
        let field = to_usize(count * self.word, WHAT)?;
        let dim = to_usize(self.dim, WHAT)?;
        let mut fields = ScratchBuffer::new(field * dim)?;
        if count == self.count {
            self.input.read(block, &mut fields)?;
        } else {
            for (f, own) in (0..).zip(fields.chunks_exact_mut(field)) {
                self.input.read(block + (f * self.count + first) * self.word, own)?;
            }
        }
        let skip = to_usize(from - first * tuple, WHAT)?;
        if skip == 0 && out.len() == fields.len() {
            (self.undo)(dim, &fields, out);
            return Ok(());
        }
        let mut whole = ScratchBuffer::new(fields.len())?;
        (self.undo)(dim, &fields, &mut whole);
        out.copy_from_slice(&whole[skip..][..out.len()]);
        Ok(())
    }
}

impl Blockwise for Tuples {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        if self.block <= WHOLE { self.blocks(start, out) } else { self.part(start, out) }
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}
