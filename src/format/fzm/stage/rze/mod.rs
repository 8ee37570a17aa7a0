//! RZE (type 18): chunks of 16 KiB without their zero bytes, under four levels of bitmaps.
//!
//! Reference: section 5.9. Chunks are independent; their offsets are running sums of the size table, computed once.
#![forbid(unsafe_code)]

mod body;

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::to_usize;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stage::config::{Config, Field, Layout};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::elements;
use crate::format::fzm::stage::{Context, DataType, Stage, StageType, exactly};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

/// Bytes of a decoded chunk; the last may be shorter.
const CHUNK: u64 = 16384;
/// Levels of bitmaps.
const LEVELS: u8 = 4;

/// The stage type.
pub(super) const TYPE: StageType =
    StageType { code: 18, name: "rze", layout: &LAYOUT, parse: |config| Ok(Box::new(Rze::parse(config)?)) };

const LAYOUT: Layout = Layout {
    sizes: &[9],
    fields: &[Field::u32("chunk_size", 0), Field::u8("levels", 4), Field::u32("original_size", 5)],
};

/// A stage.
struct Rze {
    config: Config,
    original_size: u32,
}

impl Rze {
    fn parse(config: Config) -> Result<Self> {
        let (chunk_size, levels) = (config.u32("chunk_size"), config.u8("levels"));
        if u64::from(chunk_size) != CHUNK {
            return Err(config.unknown("chunk_size", format!("a chunk of {chunk_size} bytes")));
        }
        if levels != LEVELS {
            return Err(config.unknown("levels", format!("a number of {levels} levels")));
        }
        let original_size = config.u32("original_size");
        Ok(Self { config, original_size })
    }
}

impl Stage for Rze {
    fn name(&self) -> &'static str {
        "rze"
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::U8
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("chunks of {CHUNK} bytes")]
    }

    fn alignment(&self) -> u64 {
        CHUNK
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let original = u64::from(self.original_size);
        // Checked here so that a wrong size costs nothing; the stream itself is read later.
        let need = if original == 0 { 0 } else { 8 + 4 * original.div_ceil(CHUNK) };
        if input.len() < need {
            return Err(Error::new(Kind::Truncated { need, have: input.len() }, "original_size"));
        }
        Ok(vec![Arc::new(Filled {
            input,
            cx: cx.clone(),
            index: Once::new(),
            windows: BlockWindows::new(original, CHUNK, CHUNK),
        })])
    }
}

/// Flags in an entry of the size table and of the index: the chunk is stored uncompressed.
const RAW: u32 = 1 << 31;
const RAW_START: u64 = 1 << 63;

/// The decoded stream.
struct Filled {
    input: Arc<dyn ByteStream>,
    cx: Context,
    /// The offset of every chunk, with [`RAW_START`]; a last entry holds the end.
    index: Once<ArrayStore>,
    windows: BlockWindows,
}

/// Entries of the size table read at a time.
const BATCH: u64 = 4096;

impl Filled {
    /// Number of chunks of the decoded stream.
    fn chunks(&self) -> u64 {
        self.windows.len().div_ceil(CHUNK)
    }

    /// The chunk offsets, computed by the first caller.
    fn index(&self) -> Result<&ArrayStore> {
        self.index.build(&self.cx.account, self.cx.build_limit(8 * (self.chunks() + 1)), || self.scan())
    }

    fn scan(&self) -> Result<ArrayStore> {
        let chunks = self.chunks();
        let mut head = [0; 8];
        self.input.read(0, &mut head)?;
        let mut head = elements::<u32>(&head).map(u64::from);
        let (Some(original), Some(count)) = (head.next(), head.next()) else {
            return Err(Error::new(Kind::Truncated { need: 8, have: self.input.len() }, "original size"));
        };
        if original != self.windows.len() {
            let why = format!("{original} in the stream, {} in the configuration", self.windows.len());
            return Err(Error::corrupt(why, "original size"));
        }
        if count != chunks {
            return Err(Error::corrupt(format!("{count} chunks, but {original} bytes need {chunks}"), "chunk count"));
        }
        // At most 2^18 chunks; `invert` has checked that the table is complete.
        let mut starts = ArrayStore::new(8 * (chunks + 1), &self.cx.account, "rze chunk size table")?;
        let (mut at, mut first) = (8 + 4 * chunks, 0);
        while first < chunks {
            let n = BATCH.min(chunks - first);
            let mut table = ScratchBuffer::new(to_usize(4 * n, "rze chunk size table")?)?;
            self.input.read(8 + 4 * first, &mut table)?;
            for (i, entry) in (first..).zip(elements::<u32>(&table)) {
                let start = if entry & RAW == 0 { at } else { at | RAW_START };
                starts.write(8 * i, &start.to_le_bytes())?;
                at += u64::from(entry & !RAW);
                if at > self.input.len() {
                    let why = format!("chunk {i} ends at byte {at}, the stream at byte {}", self.input.len());
                    return Err(Error::corrupt(why, "rze chunk size table"));
                }
            }
            first += n;
        }
        starts.write(8 * chunks, &at.to_le_bytes())?;
        Ok(starts)
    }

    /// Decodes chunk `i` into `out`, which has the length of the chunk.
    fn chunk(&self, index: &ArrayStore, i: u64, out: &mut [u8]) -> Result<()> {
        let (from, to) = (index.entry(i)?, index.entry(i + 1)?);
        let (raw, from, to) = (from & RAW_START != 0, from & !RAW_START, to & !RAW_START);
        let broken = |why: &'static str| {
            Error::corrupt(format!("{why} (stored at byte {from} of the stream)"), "rze chunk")
                .within(format!("chunk {i}"))
        };
        let size = to_usize(to.checked_sub(from).ok_or_else(|| broken("ends before it starts"))?, "rze chunk")?;
        if raw {
            if size != out.len() {
                return Err(broken("an uncompressed chunk has the wrong length"));
            }
            return self.input.read(from, out);
        }
        if size > body::LONGEST {
            return Err(broken("exceeds the maximum length of a chunk"));
        }
        let mut bytes = ScratchBuffer::new(size)?;
        self.input.read(from, &mut bytes)?;
        body::decode(&bytes, out).map_err(broken)
    }
}

impl Blockwise for Filled {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let index = self.index()?;
        (start / CHUNK..).zip(out.chunks_mut(CHUNK as usize)).try_for_each(|(i, out)| self.chunk(index, i, out))
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let (input, own) = (Arc::clone(&self.input), self);
        let chunks = move |chunks: Range<u64>| {
            let index = own.index()?;
            let start = |i| index.entry(i).map(|start| (start & !RAW_START, start & RAW_START != 0));
            (chunks.start..=chunks.end).map(start).collect()
        };
        Some(Derivation { inverse: Inverse::Rze(inverse::Rze { chunks: Arc::new(chunks) }), input })
    }
}

#[cfg(test)]
mod tests {
    use super::body::tests::encode;
    use crate::format::fzm::stage::testing::{
        Random, assert_windows, inverse, inverse_error, parse_error, stream, whole,
    };

    fn config(original: u32) -> Vec<u8> {
        [&16384_u32.to_le_bytes()[..], &[4], &original.to_le_bytes()].concat()
    }

    /// A stream of `data`; chunks for which `raw` is true are stored uncompressed.
    fn coded(data: &[u8], raw: impl Fn(usize) -> bool) -> Vec<u8> {
        let chunks: Vec<(u32, Vec<u8>)> = data
            .chunks(16384)
            .enumerate()
            .map(|(i, chunk)| {
                let (flag, body) = if raw(i) { (1 << 31, chunk.to_vec()) } else { (0, encode(chunk)) };
                (flag | body.len() as u32, body)
            })
            .collect();
        let mut out = [(data.len() as u32).to_le_bytes(), (chunks.len() as u32).to_le_bytes()].concat();
        out.extend(chunks.iter().flat_map(|(size, _)| size.to_le_bytes()));
        out.extend(chunks.iter().flat_map(|(_, body)| body));
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn windows_equal_ranges_of_the_whole() {
        let mut random = Random(11);
        let mut data = random.bytes(100_001);
        data.iter_mut().skip(20_000).for_each(|b| *b &= 1 << random.below(16).min(7));
        data[60_000..90_000].fill(0);
        let stream = stream(18, &config(100_001), &[&coded(&data, |i| i % 3 == 1)]).unwrap();
        assert!(whole(&*stream).unwrap() == data);
        assert_windows(&*stream, &data);
        assert!(inverse(18, &config(0), &[&[]]).unwrap().is_empty());
    }

    #[test]
    fn a_corrupt_chunk_affects_only_itself() {
        let data = Random(4).bytes(40_000);
        let mut stored = coded(&data, |_| false);
        let last = stored.len() - 6;
        stored[last] = 0xFF;
        let stream = stream(18, &config(40_000), &[&stored]).unwrap();
        let mut dst = vec![0; 32_768];
        stream.read(0, &mut dst).unwrap();
        assert!(dst == data[..32_768]);
        let e = stream.read(39_999, &mut dst[..1]).unwrap_err().to_string();
        assert!(e.starts_with("a bitmap marks bytes beyond the end (stored at byte "), "{e}");
        assert!(e.ends_with(" of the stream) (chunk 2: rze chunk)"), "{e}");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let data = Random(4).bytes(20_000);
        let stored = coded(&data, |i| i == 1);
        let with = |at: usize, value: u32| {
            let mut stored = stored.clone();
            stored[at..at + 4].copy_from_slice(&value.to_le_bytes());
            inverse_error(18, &config(20_000), &[&stored])
        };
        let len = stored.len();
        assert_eq!(with(0, 20_001), "20001 in the stream, 20000 in the configuration (original size)");
        assert_eq!(with(4, 0x7FFF_FFFF), "2147483647 chunks, but 20000 bytes need 2 (chunk count)");
        let e = with(8, 0x7FFF_FFFF);
        assert_eq!(e, format!("chunk 0 ends at byte 2147483663, the stream at byte {len} (rze chunk size table)"));
        let e = with(12, (1 << 31) + 3615);
        assert!(e.starts_with("an uncompressed chunk has the wrong length (stored at byte"), "{e}");
        let mut long = [&stored[..], &[0; 9999]].concat();
        long[8..12].copy_from_slice(&20_000_u32.to_le_bytes());
        let e = inverse_error(18, &config(20_000), &[&long]);
        assert_eq!(e, "exceeds the maximum length of a chunk (stored at byte 16 of the stream) (chunk 0: rze chunk)");
        assert_eq!(
            inverse_error(18, &config(u32::MAX), &[&stored]),
            format!("needs 1048584 bytes, {len} left (original_size)")
        );
        assert_eq!(
            parse_error(18, &[&4096_u32.to_le_bytes()[..], &[4, 0, 0, 0, 0]].concat()),
            "a chunk of 4096 bytes is unknown (chunk_size, at byte 0x100)"
        );
        assert_eq!(
            parse_error(18, &[&16384_u32.to_le_bytes()[..], &[3, 0, 0, 0, 0]].concat()),
            "a number of 3 levels is unknown (levels, at byte 0x104)"
        );
        assert_eq!(
            parse_error(18, &config(1)[..8]),
            "a configuration of 8 bytes is unknown (config_size, at byte 0x100)"
        );
    }
}
