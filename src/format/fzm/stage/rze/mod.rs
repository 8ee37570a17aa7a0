//! RZE (type 18): chunks without their zero words, under levels of bitmaps.
//!
//! Reference: sections 5.7 and 5.9. Byte 4 of the configuration was the number of levels, always 4, of chunks of bytes;
//! later it became the size of a word. So the chunks decide what 4 means: the first one that is valid in only one of
//! both readings.
#![forbid(unsafe_code)]

mod body;

use std::ops::Range;
use std::sync::Arc;

use crate::account::decode_budget;
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stage::config::{Config, ConfigLayout, Field};
use crate::format::fzm::stage::lc::bitmaps::Levels;
use crate::format::fzm::stage::lc::chunks::{Coding, Invalid, LcChunks, with_bitmaps};
use crate::format::fzm::stage::lc::coders::Sizes;
use crate::format::fzm::stage::lc::kept_words::{self, Left};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::{Context, DataType, Family, Stage, StageType, exactly};
use crate::format::fzm::stream::{ByteStream, Derivation};
use crate::once::Once;

/// Bytes of a decoded chunk of the first generation; the last may be shorter.
const CHUNK: usize = 16384;
/// Byte 4 of the configurations of the first generation.
const LEVELS: usize = 4;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 18,
    name: "rze",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Rze::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[9],
    fields: &[Field::u32("chunk_size", 0), Field::u8("word_size", 4), Field::u32("original_size", 5)],
};

/// Chunks that may be compared to find the generation.
const MOST: u32 = 1024;

/// A stage.
struct Rze {
    config: Config,
    sizes: Sizes,
}

impl Rze {
    fn parse(config: Config) -> Result<Self> {
        let sizes = Sizes::parse(&config)?;
        Ok(Self { config, sizes })
    }
}

impl Stage for Rze {
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
        vec![format!("chunks of {} bytes", self.sizes.chunk)]
    }

    fn alignment(&self) -> u64 {
        to_u64(self.sizes.chunk)
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let Sizes { chunk, word, original } = self.sizes;
        let first =
            if (chunk, word) == (CHUNK, LEVELS) { FirstGeneration::Perhaps(Once::new()) } else { FirstGeneration::No };
        let filled = Filled { chunk, word, levels: Levels::of(chunk, word), first };
        Ok(vec![Arc::new(LcChunks::new(filled, input, to_u64(chunk), original, cx)?)])
    }
}

/// Whether a stream is of the first generation.
enum FirstGeneration {
    No,
    /// As the chunks say.
    Perhaps(Once<bool>),
}

/// The coding of chunks.
struct Filled {
    chunk: usize,
    word: usize,
    levels: Levels,
    first: FirstGeneration,
}

impl Filled {
    /// Whether `chunks` are of the first generation.
    fn is_first(&self, chunks: &LcChunks<Self>) -> Result<bool> {
        let FirstGeneration::Perhaps(once) = &self.first else { return Ok(false) };
        once.build(&chunks.cx.account, chunks.cx.build_limit(0), || self.decide(chunks)).copied()
    }

    /// Compares the readings of every chunk until one decides. Invalid chunks have neither, and say nothing; zeros, and
    /// chunks stored as they are, have both and mean the same. An intact stream decides at its first other chunk.
    fn decide(&self, chunks: &LcChunks<Self>) -> Result<bool> {
        let (mut ambiguous, mut left) = (None, MOST);
        for i in 0..chunks.count() {
            let (place, len) = (chunks.place(i)?, chunks.chunk_len(i));
            let is_zeros = place.size == 2 && len.is_multiple_of(self.word);
            if place.is_raw || is_zeros || place.size > self.longest(len) {
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            decode_budget::charge(2 * to_u64(len))?;
            let mut body = ScratchBuffer::new(place.size)?;
            match chunks.input.read(place.start, &mut body) {
                Err(e) if !matches!(e.kind(), Kind::Corrupt(_) | Kind::Checksum { .. }) => return Err(e),
                Err(_) => continue,
                Ok(()) => {}
            }
            let (mut bytes, mut words) = (ScratchBuffer::new(len)?, ScratchBuffer::new(len)?);
            let is_bytes = body::is_tagged(&body, len) && body::decode(&body, &mut bytes).is_ok();
            let is_words = self.words(&body, &mut words).is_ok();
            match (is_bytes, is_words) {
                (true, true) if bytes[..] != words[..] => ambiguous = Some(i),
                (true, false) => return Ok(true),
                (false, true) => return Ok(false),
                _ => {}
            }
        }
        match ambiguous {
            None => Ok(true),
            Some(i) => {
                let why = "chunks that both generations can have written";
                Err(Error::unsupported(why, "rze chunk").within(format!("chunk {i}")))
            }
        }
    }

    /// Decodes a chunk of words.
    fn words(&self, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
        kept_words::decode(Left::Zero, self.word, self.levels, body, out)
    }

    /// Whether `chunks` are as the first generation writes them, if they are of another one: chunks of bytes with
    /// complete bitmaps.
    fn is_like_first(&self, chunks: &LcChunks<Self>) -> bool {
        (self.chunk, self.word) == (CHUNK, 1) && chunks.len().is_multiple_of(to_u64(CHUNK))
    }
}

impl Coding for Filled {
    fn what(&self) -> &'static str {
        "rze chunk"
    }

    fn longest(&self, len: usize) -> usize {
        with_bitmaps(len)
    }

    fn prepare(&self, chunks: &LcChunks<Self>) -> Result<()> {
        self.is_first(chunks).map(|_| ())
    }

    fn decode(&self, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
        // `prepare` has decided.
        let is_first = match &self.first {
            FirstGeneration::No => false,
            FirstGeneration::Perhaps(once) => matches!(once.ready(), Some(Ok(true))),
        };
        if is_first { body::decode(body, out) } else { self.words(body, out) }
    }

    fn derivation(chunks: Arc<LcChunks<Self>>) -> Option<Derivation> {
        let is_always_first = chunks.coding.is_like_first(&chunks);
        if !is_always_first && matches!(chunks.coding.first, FirstGeneration::No) {
            return None;
        }
        let input = Arc::clone(&chunks.input);
        let places = move |range: Range<u64>| {
            if !is_always_first && !chunks.coding.is_first(&chunks)? {
                return Err(Error::unsupported("chunks of words", "rze chunk"));
            }
            (range.start..=range.end).map(|i| chunks.start(i)).collect()
        };
        Some(Derivation { inverse: Inverse::Rze(inverse::Rze { chunks: Arc::new(places) }), input })
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, Pipeline, Source};

    use super::body::tests::encode;
    use crate::format::fzm::inverse::Inverse;
    use crate::format::fzm::stage::lc::tests::sections;
    use crate::format::fzm::stage::testing::{
        Random, assert_windows, inverse, inverse_error, parse_error, round_trip, stream, whole,
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
        assert_eq!(e, format!("chunk 0 ends at byte 2147483663, the stream at byte {len} (chunk size table)"));
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
        let unknown = |chunk: u32, word: u8| parse_error(18, &[&chunk.to_le_bytes()[..], &[word, 0, 0, 0, 0]].concat());
        assert!(unknown(1000, 4).starts_with("a chunk of 1000 bytes is unknown"), "{}", unknown(1000, 4));
        assert!(unknown(16384, 3).starts_with("a word of 3 bytes is unknown"), "{}", unknown(16384, 3));
        assert!(parse_error(18, &config(1)[..8]).starts_with("a configuration of 8 bytes is unknown"));
    }

    #[test]
    fn both_generations_round_trip_and_are_told_apart_by_their_chunks() {
        let bytes = sections(20_000);
        for stage in ["rze", "rze:w=4"] {
            // Whole chunks; a short last one, behind a stage that changes the length; zeros, which decide nothing.
            round_trip(stage, Dtype::U8, &[], &bytes);
            round_trip(&format!("rle:t=u8,{stage}"), Dtype::U8, &[], &bytes);
            round_trip(stage, Dtype::U8, &[], &[vec![0; 70_000], bytes.clone()].concat());
            round_trip(stage, Dtype::U8, &[], &vec![0; 40_000]);
        }
        for word in [1, 2, 8] {
            for chunk in [4096, 8192, 16384] {
                round_trip(&format!("rle:t=u8,rze:w={word},chunk={chunk}"), Dtype::U8, &[], &bytes);
            }
        }
    }

    #[test]
    fn only_chunks_of_bytes_can_be_derived() {
        let derived = |text: &str, len: usize| {
            let sources = vec![Source { dtype: Dtype::U8, shape: Vec::new(), bytes: sections(len) }];
            let pipeline = Pipeline::parse(text, &sources).unwrap();
            let run = pipeline.run(sources, true).unwrap();
            let stream = stream(18, &run.steps()[0].config, &[run.segments()[0].bytes]).unwrap();
            stream.derivation().map(|derivation| match derivation.inverse {
                Inverse::Rze(rze) => (rze.chunks)(0..1).is_ok(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(derived("rze", 10_000), Some(true));
        assert_eq!(derived("rze:w=1", 10_000), Some(true));
        assert_eq!(derived("rze:w=4", 10_000), Some(false));
        assert_eq!(derived("rze:w=8", 10_000), None);
    }
}
