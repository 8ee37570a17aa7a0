//! GPULZ (type 32): words, and repetitions of words before, in small chunks.
//!
//! Reference: section 5 of the LC stages. In split mode, flags, literals, lengths and distances are separate outputs.
//! The place of a chunk in them depends on all chunks before; the index has the places of every 16th chunk.
#![forbid(unsafe_code)]

mod items;
mod places;

use std::sync::Arc;

use self::items::{Mixed, Split, decode};
use self::places::{GpulzForm, GpulzPart, Places, STRIDE};
use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::{Context, DataType, Family, Stage, StageType};
use crate::bytes::to_usize;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 32,
    name: "gpulz",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Gpulz::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[9, 10, 14],
    fields: &[
        Field::u32("chunk_size", 0),
        Field::u8("word_size", 4),
        Field::u32("padded_size", 5),
        Field::flag("split", 9),
        Field::u32("original_size", 10),
    ],
};

/// A stage.
struct Gpulz {
    config: Config,
    chunk: u64,
    word: usize,
    /// The length of the input, in whole chunks and as it was.
    padded: u64,
    len: u64,
}

impl Gpulz {
    fn parse(config: Config) -> Result<Self> {
        let (chunk, word) = (config.u64("chunk_size"), config.u8("word_size"));
        if !matches!(chunk, 1024 | 2048 | 4096) {
            return Err(config.unknown("chunk_size", format!("a chunk of {chunk} bytes")));
        }
        if !matches!(word, 1 | 2 | 4 | 8) {
            return Err(config.unknown("word_size", format!("a word of {word} bytes")));
        }
        let (padded, original) = (config.u64("padded_size"), config.u64("original_size"));
        if !padded.is_multiple_of(chunk) {
            return Err(config.corrupt("padded_size", format!("{padded} bytes are not whole chunks")));
        }
        if original > padded || original > 0 && padded - original >= chunk {
            let why = format!("{original} bytes, padded to {padded}");
            return Err(config.corrupt("original_size", why));
        }
        let len = if original > 0 { original } else { padded };
        Ok(Self { config, chunk, word: word.into(), padded, len })
    }

    fn is_split(&self) -> bool {
        self.config.flag("split")
    }
}

impl Stage for Gpulz {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        if self.is_split() { &["literals", "lengths", "offsets", "meta"] } else { &["output"] }
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::U8
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("words of {}", self.word), format!("chunks of {} bytes", self.chunk)]
    }

    fn has_own_length(&self) -> bool {
        self.config.u64("original_size") > 0
    }

    fn alignment(&self) -> u64 {
        if self.config.has("original_size") { 1 } else { self.chunk }
    }

    fn invert(&self, mut outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let ports = self.ports().len();
        if outputs.len() != ports {
            let why = format!("the stage needs {ports} outputs, not {}", outputs.len());
            return Err(Error::corrupt(why, "output_buffer_ids"));
        }
        let Some(meta) = outputs.pop() else { return Ok(Vec::new()) };
        let split = match <[_; 3]>::try_from(outputs) {
            Ok([literals, lengths, offsets]) => Some(SplitPorts { literals, lengths, offsets }),
            Err(_) => None,
        };
        let need = if self.padded == 0 { 0 } else { 8 + 8 * (self.padded / self.chunk) };
        if meta.len() < need {
            return Err(Error::new(Kind::Truncated { need, have: meta.len() }, "padded_size"));
        }
        let places = Places::new(Arc::clone(&meta), split.as_ref(), self.chunk, self.word, self.padded, cx);
        let windows = BlockWindows::new(self.len, self.chunk, self.chunk);
        Ok(vec![Arc::new(Expanded { meta, split, chunk: self.chunk, word: self.word, places, windows })])
    }
}

/// The outputs in split mode, other than `meta`.
struct SplitPorts {
    literals: Arc<dyn ByteStream>,
    lengths: Arc<dyn ByteStream>,
    offsets: Arc<dyn ByteStream>,
}

/// The decoded stream.
struct Expanded {
    /// The only output, or the one with the flags.
    meta: Arc<dyn ByteStream>,
    split: Option<SplitPorts>,
    chunk: u64,
    word: usize,
    places: Places,
    windows: BlockWindows,
}

impl Expanded {
    /// Decodes the chunk of `part` into `out`, a whole chunk.
    fn chunk(&self, part: &GpulzPart, out: &mut [u8]) -> Result<()> {
        let GpulzPart { place, form, .. } = part;
        let (flags, data, matches) = match *form {
            GpulzForm::Zero => {
                out.fill(0);
                return Ok(());
            }
            GpulzForm::Raw => {
                let (stream, at) = match &self.split {
                    Some(split) => (&split.literals, place.literals),
                    None => (&self.meta, place.meta),
                };
                return stream.read(at, out);
            }
            GpulzForm::Coded { flags, data, matches } => (flags, data, matches),
        };
        let decoded = if let Some(split) = &self.split {
            let literals = data.saturating_sub(2 * matches);
            let mut bytes = ScratchBuffer::new(flags + literals + 2 * matches)?;
            let (own, rest) = bytes.split_at_mut(flags);
            self.meta.read(place.meta, own)?;
            let (literals, rest) = rest.split_at_mut(literals);
            split.literals.read(place.literals, literals)?;
            let (lengths, offsets) = rest.split_at_mut(matches);
            split.lengths.read(place.matches, lengths)?;
            split.offsets.read(place.matches, offsets)?;
            decode(self.word, own, Split { literals, lengths, offsets }, out)
        } else {
            let mut bytes = ScratchBuffer::new(flags + data)?;
            self.meta.read(place.meta, &mut bytes)?;
            let (flags, data) = bytes.split_at(flags);
            decode(self.word, flags, Mixed(data), out)
        };
        decoded.map_err(|why| Error::corrupt(why, "gpulz chunk").within(format!("chunk {}", part.index)))
    }
}

impl Blockwise for Expanded {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let chunk = to_usize(self.chunk, "gpulz chunk")?;
        let first = start / self.chunk;
        let mut rest = out.chunks_mut(chunk);
        let mut stride = first / STRIDE;
        while rest.len() > 0 {
            let parts = self.places.stride(stride)?;
            for part in parts.iter().filter(|part| part.index >= first) {
                let Some(own) = rest.next() else { return Ok(()) };
                if own.len() == chunk {
                    self.chunk(part, own)?;
                } else {
                    // The last chunk, partial in the input.
                    let mut whole = ScratchBuffer::new(chunk)?;
                    self.chunk(part, &mut whole)?;
                    own.copy_from_slice(&whole[..own.len()]);
                }
            }
            if parts.is_empty() {
                return Err(Error::corrupt("fewer chunks than the length requires", "gpulz size table"));
            }
            stride += 1;
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

#[cfg(test)]
mod tests {
    use fzm_writer::Dtype;

    use crate::format::fzm::stage::lc::tests::sections;
    use crate::format::fzm::stage::testing::{inverse, inverse_error, parse_error, round_trip};

    fn config(chunk: u32, word: u8, padded: u32, split: u8, original: u32) -> Vec<u8> {
        [&chunk.to_le_bytes()[..], &[word], &padded.to_le_bytes(), &[split], &original.to_le_bytes()].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Three chunks of 1024 bytes in words of 8: zeros; 128 equal words; 1024 bytes as they are.
    fn three() -> (Vec<u8>, Vec<u8>) {
        let raw: Vec<u8> = (0..1024_u32).map(|i| (i * i) as u8).collect();
        let table = words(&[3072, 3, 0, 0, 1, 10, 1 << 31, 1024]);
        let item = [7_u8, 0, 0, 0, 0, 0, 0, 0];
        let want = [&[0; 1024][..], &item.repeat(128), &raw].concat();
        ([&table[..], &[2], &item, &[127, 1], &raw, &[0; 1]].concat(), want)
    }

    #[test]
    fn streams_decode_as_the_reference_says() {
        let (stored, want) = three();
        assert_eq!(inverse(32, &config(1024, 8, 3072, 0, 0), &[&stored]).unwrap(), want);
        assert_eq!(inverse(32, &config(1024, 8, 3072, 0, 0)[..9], &[&stored]).unwrap(), want);
        assert_eq!(inverse(32, &config(1024, 8, 3072, 0, 0)[..10], &[&stored]).unwrap(), want);
        assert_eq!(inverse(32, &config(1024, 8, 3072, 0, 2049), &[&stored]).unwrap(), want[..2049]);
        let meta = [&stored[..32], &[2, 0, 0, 0]].concat();
        let literals = [&stored[33..41], &stored[43..43 + 1024]].concat();
        let ports: [&[u8]; 4] = [&literals, &[127, 0, 0, 0], &[1, 0, 0, 0], &meta];
        assert_eq!(inverse(32, &config(1024, 8, 3072, 1, 0), &ports).unwrap(), want);
        assert!(inverse(32, &config(1024, 8, 0, 1, 0), &[&[][..]; 4]).unwrap().is_empty());
    }

    #[test]
    fn every_size_and_generation_round_trips() {
        let bytes = sections(7_000);
        for word in [1, 2, 4, 8] {
            for chunk in [1024, 2048, 4096] {
                let keys = format!("gpulz:w={word},chunk={chunk}");
                round_trip(&keys, Dtype::U8, &[], &bytes);
                round_trip(&format!("{keys},split=1"), Dtype::U8, &[], &bytes);
            }
            round_trip(&format!("gpulz:w={word},config=9"), Dtype::U8, &[], &bytes);
            round_trip(&format!("gpulz:w={word},config=10,split=1"), Dtype::U8, &[], &bytes);
        }
        round_trip("gpulz:split=1,rle:t=u8,rre:from=0,port=meta,clog:from=0,port=lengths", Dtype::U8, &[], &bytes);
        round_trip("gpulz", Dtype::U8, &[], &[]);
        round_trip("gpulz:split=1", Dtype::U8, &[], &[0; 5000]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let (stored, _) = three();
        let own = config(1024, 8, 3072, 0, 0);
        let with = |at: usize, value: u32| {
            let mut stored = stored.clone();
            stored[at..at + 4].copy_from_slice(&value.to_le_bytes());
            inverse_error(32, &own, &[&stored])
        };
        assert_eq!(with(0, 4096), "4096 in the stream, 3072 in the configuration (padded size)");
        assert_eq!(with(4, 4), "4 chunks, but 3072 bytes need 3 (chunk count)");
        assert_eq!(with(8, 17), "17 bytes of flags and 0 of items (chunk 0: gpulz size table)");
        assert_eq!(with(12, 9), "0 bytes of flags and 9 of items (chunk 0: gpulz size table)");
        assert_eq!(with(28, 1023), "2147483648 bytes of flags and 1023 of items (chunk 2: gpulz size table)");
        assert_eq!(
            with(20, 12),
            format!("chunks 0 to 2 end at byte 1069 of an output of {} bytes (gpulz size table)", stored.len())
        );
        assert_eq!(with(20, 9), "fewer bytes than the items require (chunk 1: gpulz chunk)");
        let e = inverse_error(32, &config(1024, 8, 1 << 30, 0, 0), &[&stored]);
        assert_eq!(e, format!("needs 8388616 bytes, {} left (padded_size)", stored.len()));
        assert_eq!(
            parse_error(32, &config(1024, 8, 3000, 0, 0)),
            "3000 bytes are not whole chunks (padded_size, at byte 0x105)"
        );
        assert_eq!(
            parse_error(32, &config(1024, 8, 3072, 0, 2048)),
            "2048 bytes, padded to 3072 (original_size, at byte 0x10a)"
        );
        assert!(parse_error(32, &config(512, 8, 0, 0, 0)).starts_with("a chunk of 512 bytes is unknown"));
        assert!(parse_error(32, &config(1024, 3, 0, 0, 0)).starts_with("a word of 3 bytes is unknown"));
        // A match for which the items have no room.
        let meta = [&words(&[1024, 1, 1, 8])[..], &[0x1F, 0, 0, 0]].concat();
        let e = inverse_error(32, &config(1024, 8, 1024, 1, 0), &[&[0; 8], &[0; 8], &[0; 8], &meta]);
        assert_eq!(e, "5 matches in 8 bytes of items (chunk 0: gpulz size table)");
        let meta = [&words(&[1024, 1, 1, 10])[..], &[2, 0, 0, 0]].concat();
        let e = inverse_error(32, &config(1024, 8, 1024, 1, 0), &[&[0; 4], &[0; 8], &[0; 8], &meta]);
        assert_eq!(e, "chunks 0 to 0 end at byte 8 of an output of 4 bytes (gpulz size table)");
    }
}
