//! `BitplaneRZE` (type 23): chunks of 4 KiB as bit planes without their groups of zeros.
//!
//! Reference: `BitplaneRZE`. Chunks are independent, and stored in any order; a table has their places.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::elements;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_usize;
use crate::codec::bit_planes::Elements;
use crate::codec::simd_dispatch::run_widest;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse, StoredPlanes};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 23,
    name: "bitplane_rze",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(BitplaneRze { config })),
};

const LAYOUT: ConfigLayout = ConfigLayout { sizes: &[0, 8], fields: &[Field::u64("num_elements", 0)] };

/// Bytes of a decoded chunk.
const CHUNK: usize = 4096;
/// Bytes of a chunk's bitmap.
const MAP: usize = 32;
/// Bytes of a group of words.
const GROUP: usize = 16;
/// Bytes of the header.
const HEADER: u64 = 128;

/// The configuration.
struct BitplaneRze {
    config: Config,
}

impl Stage for BitplaneRze {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::U16
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("chunks of {CHUNK} bytes")]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let count = if self.config.has("num_elements") {
            self.config.u64("num_elements")
        } else if input.is_empty() {
            0
        } else {
            count(&*input)?
        };
        let chunks = (count / (CHUNK as u64 / 2) + u64::from(!count.is_multiple_of(CHUNK as u64 / 2))).max(1);
        let need = chunks.saturating_mul(MAP as u64 + 4).saturating_add(HEADER);
        if input.len() < need && !(count == 0 && input.is_empty()) {
            return Err(Error::new(Kind::Truncated { need, have: input.len() }, "num_elements"));
        }
        // A chunk needs 36 bytes of the stream.
        let windows = BlockWindows::new(2 * count, CHUNK as u64, 1);
        Ok(vec![Arc::new(PlaneElements { input, count, chunks, sections: Once::new(), windows })])
    }
}

/// The number of elements in a stream.
fn count(input: &dyn ByteStream) -> Result<u64> {
    let mut count = [0; 8];
    if input.len() < HEADER {
        return Err(Error::new(Kind::Truncated { need: HEADER, have: input.len() }, "bitplane_rze header"));
    }
    input.read(0, &mut count)?;
    Ok(u64::from_le_bytes(count))
}

/// The elements.
struct PlaneElements {
    input: Arc<dyn ByteStream>,
    count: u64,
    chunks: u64,
    sections: Once<Sections>,
    windows: BlockWindows,
}

/// Offsets of the sections of the stream.
#[derive(Debug)]
struct Sections {
    maps: u64,
    starts: u64,
    words: u64,
    end: u64,
}

impl Sections {
    /// Where the words of a chunk are, which start at word `start`; empty if it has none.
    fn words_of(&self, map: &[u8], start: u32) -> Result<Range<u64>> {
        let groups = map.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        let at = self.words + 4 * u64::from(start);
        let end = at + GROUP as u64 * groups;
        if groups > 0 && end > self.end {
            let why = format!("its words start at word {start} and end outside");
            return Err(Error::corrupt(why, "bitplane_rze chunk"));
        }
        Ok(at..end)
    }
}

impl PlaneElements {
    fn sections(&self) -> Result<&Sections> {
        self.sections.get(|| {
            let count = count(&*self.input)?;
            if count != self.count {
                let why = format!("{count} elements in the stream, {} in the configuration", self.count);
                return Err(Error::corrupt(why, "bitplane_rze header"));
            }
            let mut offsets = [0; 20];
            self.input.read(8, &mut offsets)?;
            let mut offsets = elements::<u32>(&offsets).skip(1).map(u64::from);
            let mut next = || offsets.next().unwrap_or(0);
            let own = Sections { maps: next(), starts: next(), words: next(), end: next() };
            let (maps, starts) = (MAP as u64 * self.chunks, 4 * self.chunks);
            let fits = own.maps >= HEADER
                && own.maps + maps <= own.starts
                && own.starts + starts <= own.words
                && own.words <= own.end
                && own.end <= self.input.len();
            if fits {
                Ok(own)
            } else {
                Err(Error::corrupt("the sections overlap or are too short", "bitplane_rze header"))
            }
        })
    }

    /// Calls `each` with the bitmap and the words of every chunk of `count`, from chunk `first`.
    fn chunks(&self, first: u64, count: usize, mut each: impl FnMut(&[u8], Range<u64>) -> Result<()>) -> Result<()> {
        let sections = self.sections()?;
        let mut maps = ScratchBuffer::new(count * MAP)?;
        let mut starts = ScratchBuffer::new(count * 4)?;
        self.input.read(sections.maps + first * MAP as u64, &mut maps)?;
        self.input.read(sections.starts + first * 4, &mut starts)?;
        for (i, (map, start)) in (first..).zip(maps.chunks_exact(MAP).zip(elements::<u32>(&starts))) {
            let words = sections.words_of(map, start);
            let done = words.and_then(|words| each(map, words));
            done.map_err(|e| e.within(format!("chunk {i}")))?;
        }
        Ok(())
    }

    /// Decodes a chunk, all of it or its first bytes.
    fn chunk(&self, map: &[u8], words: Range<u64>, out: &mut [u8]) -> Result<()> {
        if words.is_empty() {
            out.fill(0);
            return Ok(());
        }
        let mut kept = ScratchBuffer::new(to_usize(words.end - words.start, "bitplane_rze chunk")?)?;
        self.input.read(words.start, &mut kept)?;
        let planes = expand(map, &kept);
        let mut backwards = [0; CHUNK];
        if !run_widest(Elements::<32> { planes: &planes, from: 0, out: &mut backwards }) {
            return Err(Error::corrupt("the planes are incomplete", "bitplane_rze chunk"));
        }
        if let Some(out) = out.first_chunk_mut::<CHUNK>() {
            forwards(&backwards, out);
        } else {
            let mut chunk = [0; CHUNK];
            forwards(&backwards, &mut chunk);
            out.copy_from_slice(&chunk[..out.len()]);
        }
        Ok(())
    }
}

/// The planes of a chunk, the highest first, of their `kept` groups.
fn expand(map: &[u8], kept: &[u8]) -> [u8; CHUNK] {
    let mut planes = [[[0; GROUP]; 8]; 32];
    let mut kept = kept.as_chunks::<GROUP>().0.iter();
    // A byte of the map is a plane.
    for (plane, byte) in planes.iter_mut().rev().zip(map) {
        for (i, group) in plane.iter_mut().enumerate() {
            if byte >> i & 1 != 0
                && let Some(own) = kept.next()
            {
                *group = *own;
            }
        }
    }
    let mut flat = [0; CHUNK];
    flat.copy_from_slice(planes.as_flattened().as_flattened());
    flat
}

/// Reverses every 32 words: the codec takes the first element from the highest bit of a plane's word, the format from
/// the lowest.
fn forwards(backwards: &[u8; CHUNK], out: &mut [u8; CHUNK]) {
    let rows = backwards.as_chunks::<4>().0.as_chunks::<32>().0;
    for (out, row) in out.as_chunks_mut::<4>().0.as_chunks_mut::<32>().0.iter_mut().zip(rows) {
        *out = *row;
        out.reverse();
    }
}

impl Blockwise for PlaneElements {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let count = out.len().div_ceil(CHUNK);
        let mut rest = out.chunks_mut(CHUNK);
        self.chunks(start / CHUNK as u64, count, |map, words| {
            rest.next().map_or(Ok(()), |out| self.chunk(map, words, out))
        })
    }

    fn setup(&self) -> Setup {
        Setup::None
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let input = Arc::clone(&self.input);
        let chunks = move |chunks: Range<u64>| {
            let mut stored = Vec::new();
            self.chunks(chunks.start, to_usize(chunks.end - chunks.start, "bitplane_rze maps")?, |map, words| {
                stored.push(StoredPlanes { map: map.first_chunk().copied().unwrap_or([0; MAP]), words });
                Ok(())
            })?;
            Ok(stored)
        };
        let inverse = inverse::BitplaneRze { chunks: Arc::new(chunks) };
        Some(Derivation { inverse: Inverse::BitplaneRze(inverse), input })
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{Random, inverse, inverse_error, parse_error, round_trip};

    /// A stream of one chunk.
    fn stream(count: u64, map: [u8; 32], start: u32, words: &[u32]) -> Vec<u8> {
        let mut stream = count.to_le_bytes().to_vec();
        stream.extend([0_u32, 128, 160, 164, 164 + 4 * words.len() as u32].into_iter().flat_map(u32::to_le_bytes));
        stream.resize(128, 0);
        stream.extend(map);
        stream.extend(start.to_le_bytes());
        stream.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        stream
    }

    /// The bitmap with one group.
    fn map(group: usize) -> [u8; 32] {
        let mut map = [0; 32];
        map[group / 8] = 1 << (group % 8);
        map
    }

    #[test]
    fn a_bit_of_a_plane_is_a_bit_of_an_element() {
        // Plane 0, rows 0 to 3: bit 0 of words 0 and 63.
        let got = inverse(23, &128_u64.to_le_bytes(), &[&stream(128, map(0), 0, &[1, 1 << 31, 0, 0])]).unwrap();
        let mut want = vec![0; 256];
        (want[0], want[63 * 4]) = (1, 1);
        assert_eq!(got, want);
        // Plane 17, rows 28 to 31: bit 1 of the upper element of the last word.
        let words = [9, 9, 9, 9, 0, 0, 0, 1 << 31];
        let got = inverse(23, &[], &[&stream(2048, map(17 * 8 + 7), 4, &words)]).unwrap();
        let mut want = vec![0; 4096];
        want[4094] = 2;
        assert_eq!(got, want);
    }

    #[test]
    fn every_length_and_order_decodes_as_written() {
        for text in ["bitplane_rze", "bitplane_rze:order=5", "bitplane_rze:order=9,config=0"] {
            for n in [0, 1, 2047, 2048, 30_001] {
                round_trip(text, Dtype::U16, &[n], &Random(4).bytes(2 * n as usize));
                round_trip(text, Dtype::U16, &[n], &field::smooth(Dtype::U16, &[n], 3.0, 2));
            }
        }
        let floats = field::smooth(Dtype::F32, &[90, 170], 0.1, 2);
        round_trip("lorenzo_quant:zigzag=1,bitplane_rze:order=2", Dtype::F32, &[90, 170], &floats);
    }

    #[test]
    fn nothing_gives_nothing() {
        for (config, stored) in [
            (&[0; 8][..], &[][..]),
            (&[0; 8], &stream(0, [0; 32], 0, &[])),
            (&[], &[]),
            (&[], &stream(0, [0; 32], 0, &[])),
        ] {
            assert!(inverse(23, config, &[stored]).unwrap().is_empty());
        }
    }

    #[test]
    fn sections_and_places_that_do_not_fit_are_refused() {
        let good = stream(5, map(3), 0, &[1, 2, 3, 4]);
        let with = |at: usize, value: u32| {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            inverse_error(23, &5_u64.to_le_bytes(), &[&bad])
        };
        assert_eq!(with(0, 6), "6 elements in the stream, 5 in the configuration (bitplane_rze header)");
        for (at, value) in [(12, 127), (12, 129), (16, 159), (20, 163), (24, 163), (24, 181), (24, u32::MAX)] {
            assert_eq!(with(at, value), "the sections overlap or are too short (bitplane_rze header)", "{at} {value}");
        }
        let e = with(160, 1);
        assert_eq!(e, "its words start at word 1 and end outside (chunk 0: bitplane_rze chunk)");
        assert!(with(160, u32::MAX).contains("end outside"));
        assert!(with(128, u32::MAX).contains("end outside"));
        assert_eq!(
            inverse_error(23, &5_u64.to_le_bytes(), &[&good[..163]]),
            "needs 164 bytes, 163 left (num_elements)"
        );
        assert_eq!(inverse_error(23, &[], &[&good[..9]]), "needs 128 bytes, 9 left (bitplane_rze header)");
        let e = inverse_error(23, &u64::MAX.to_le_bytes(), &[&good]);
        assert!(e.starts_with("needs 324259173170675840 bytes"), "{e}");
        assert!(parse_error(23, &[0; 4]).contains("a configuration of 4 bytes"));
    }
}
