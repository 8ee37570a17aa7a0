//! `AdaptiveBitpack` (type 24): signs and magnitudes in bit planes, with a number of planes for each block.
//!
//! Reference: `AdaptiveBitpack`. Blocks are independent. Where they start follows from one or two bytes for each, which
//! all lie in front of them: the first read computes the start of every 128th block.
#![forbid(unsafe_code)]

mod planes;

use std::ops::Range;
use std::sync::Arc;

use super::DataType::{I16, I32};
use super::array_store::ArrayStore;
use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::codec::simd_dispatch::run_widest;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;
use planes::{Planes, Unpack};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 24,
    name: "adaptive_bitpack",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(AdaptiveBitpack::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[16],
    fields: &[
        Field::element_type("data_type", 0),
        Field::flag("outlier_selection", 1),
        Field::zero(2, 2),
        Field::u32("block_size", 4),
        Field::u64("num_elements", 8),
    ],
};

/// Elements of a block if the configuration has 0.
const DEFAULT_BLOCK: u32 = 32;
/// Elements of the largest block.
const LARGEST_BLOCK: u32 = 1024;
/// Blocks between two entries of the index.
const STRIDE: u64 = inverse::AdaptiveBitpack::GROUP;
/// Index entries with metadata that is read together.
const BATCH: u64 = 64;

/// The configuration.
struct AdaptiveBitpack {
    config: Config,
    ty: DataType,
    planes: Planes,
    num_elements: u64,
}

impl AdaptiveBitpack {
    fn parse(config: Config) -> Result<Self> {
        let ty = config.element_type("data_type", &[I16, I32], I32)?;
        let block = match config.u32("block_size") {
            0 => DEFAULT_BLOCK,
            block => block,
        };
        if block > LARGEST_BLOCK {
            return Err(config.unknown("block_size", format!("blocks of {block} elements")));
        }
        let planes = Planes::new(block, ty.size(), config.flag("outlier_selection"));
        let num_elements = config.u64("num_elements");
        Ok(Self { config, ty, planes, num_elements })
    }
}

impl Stage for AdaptiveBitpack {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn summary(&self) -> Vec<String> {
        let selection = self.planes.selection.then(|| "first elements apart".to_owned());
        [format!("blocks of {} {}", self.planes.block, self.ty.name())].into_iter().chain(selection).collect()
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let blocks = self.num_elements.div_ceil(to_u64(self.planes.block));
        let metadata = blocks.saturating_mul(to_u64(self.planes.metadata()));
        if input.len() < metadata {
            return Err(Error::new(Kind::Truncated { need: metadata, have: input.len() }, "num_elements"));
        }
        let size = to_u64(self.ty.size());
        let len = self.num_elements.checked_mul(size).ok_or_else(|| {
            Error::new(Kind::TooLarge { value: self.num_elements, limit: u64::MAX / size }, "num_elements")
        })?;
        let windows = BlockWindows::new(len, to_u64(self.planes.block) * size, 1);
        Ok(vec![Arc::new(Unpacked {
            input,
            planes: self.planes,
            blocks,
            metadata,
            cx: cx.clone(),
            index: Once::new(),
            windows,
        })])
    }
}

/// The elements.
struct Unpacked {
    input: Arc<dyn ByteStream>,
    planes: Planes,
    blocks: u64,
    /// Bytes of the metadata of all blocks.
    metadata: u64,
    cx: Context,
    /// Where every [`STRIDE`]-th block starts, and where the last one ends.
    index: Once<ArrayStore>,
    windows: BlockWindows,
}

impl Unpacked {
    fn index(&self) -> Result<&ArrayStore> {
        let bytes = 8 * (self.blocks.div_ceil(STRIDE) + 1);
        self.index.build(&self.cx.account, self.cx.build_limit(bytes), || self.scan(bytes))
    }

    fn scan(&self, bytes: u64) -> Result<ArrayStore> {
        let mut starts = ArrayStore::new(bytes, &self.cx.account, "adaptive_bitpack blocks")?;
        let (mut at, mut first) = (self.metadata, 0);
        while first < self.blocks {
            let own = self.read_metadata(first, (self.blocks - first).min(BATCH * STRIDE))?;
            let stride = STRIDE as usize * self.planes.metadata();
            for (entry, own) in (first / STRIDE..).zip(own.chunks(stride)) {
                starts.write(8 * entry, &at.to_le_bytes())?;
                at = at.saturating_add(self.cost(entry * STRIDE, own)?);
            }
            first += BATCH * STRIDE;
        }
        if at > self.input.len() {
            let why = format!("the blocks end at byte {at}, the stream at byte {}", self.input.len());
            return Err(Error::corrupt(why, "adaptive_bitpack blocks"));
        }
        starts.write(8 * self.blocks.div_ceil(STRIDE), &at.to_le_bytes())?;
        Ok(starts)
    }

    /// Bytes of the blocks from block `first` that have this `metadata`.
    fn cost(&self, first: u64, metadata: &[u8]) -> Result<u64> {
        self.planes.cost(metadata).map_err(|(block, why)| {
            Error::corrupt(why, "adaptive_bitpack rates").within(format!("block {}", first + to_u64(block)))
        })
    }

    /// The metadata of `count` blocks from block `first`.
    fn read_metadata(&self, first: u64, count: u64) -> Result<ScratchBuffer> {
        let each = to_u64(self.planes.metadata());
        let mut bytes = ScratchBuffer::new(to_usize(count * each, "adaptive_bitpack rates")?)?;
        self.input.read(first * each, &mut bytes)?;
        Ok(bytes)
    }
}

impl Blockwise for Unpacked {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let block = self.planes.block * self.planes.size;
        let first = start / to_u64(block);
        let count = out.len().div_ceil(block);
        let known = first - first % STRIDE;
        let metadata = self.read_metadata(known, first - known + to_u64(count))?;
        let (before, own) = metadata.split_at((first - known) as usize * self.planes.metadata());
        let at = self.index()?.entry(known / STRIDE)?.saturating_add(self.cost(known, before)?);
        let need = self.cost(first, own)?;
        if at.checked_add(need).is_none_or(|end| end > self.input.len()) {
            return Err(Error::new(Kind::Truncated { need, have: self.input.len().saturating_sub(at) }, "bit planes"));
        }
        let mut payload = ScratchBuffer::new(to_usize(need, "bit planes")?)?;
        self.input.read(at, &mut payload)?;
        let unpack = Unpack { planes: self.planes, metadata: own, payload: &payload, out };
        if run_widest(unpack) { Ok(()) } else { Err(Error::corrupt("the blocks do not fit their rates", "bit planes")) }
    }

    fn setup(&self) -> Setup {
        Setup::Once
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let (planes, input) = (self.planes, Arc::clone(&self.input));
        let groups = move |groups: Range<u64>| {
            let index = self.index()?;
            (groups.start..=groups.end).map(|group| index.entry(group)).collect()
        };
        let metadata = Arc::clone(&input);
        let read = move |range: Range<u64>| {
            let mut bytes = vec![0; to_usize(range.end.saturating_sub(range.start), "metadata")?];
            metadata.read(range.start, &mut bytes)?;
            Ok(bytes)
        };
        let inverse = inverse::AdaptiveBitpack {
            size: to_u64(planes.size),
            block: to_u64(planes.block),
            metadata: to_u64(planes.metadata()),
            read: Arc::new(read),
            groups: Arc::new(groups),
        };
        Some(Derivation { inverse: Inverse::AdaptiveBitpack(inverse), input })
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{Random, inverse, inverse_error, parse_error, round_trip, windows_agree};

    fn config(ty: u8, selection: u8, block: u32, n: u64) -> Vec<u8> {
        [&[ty, selection, 0, 0][..], &block.to_le_bytes(), &n.to_le_bytes()].concat()
    }

    fn i16s(values: &[i16]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn signs_and_planes_become_elements() {
        // Rates 0 and 2; then signs 0b010, planes 0b111 and 0b001.
        let stored = [0, 2, 0b010, 0b111, 0b001];
        assert_eq!(inverse(24, &config(5, 0, 4, 7), &[&stored]).unwrap(), i16s(&[0, 0, 0, 0, 3, -1, 1]));
        // The bits of absent elements mean nothing, nor do bytes after the last block.
        let stored = [1, 0b1111_1000, 0b1111_1001, 7];
        assert_eq!(inverse(24, &config(5, 0, 3, 3), &[&stored]).unwrap(), i16s(&[1, 0, 0]));
        // A block size of 0 stands for 32; a sign of zero means nothing.
        let stored = [&[1][..], &[0xFF; 4], &[1, 0, 0, 0x80]].concat();
        let mut want = [0; 32];
        (want[0], want[31]) = (-1, -1);
        assert_eq!(inverse(24, &config(5, 0, 0, 32), &[&stored]).unwrap(), i16s(&want));
        assert!(inverse(24, &config(6, 0, 32, 0), &[&[]]).unwrap().is_empty());
    }

    #[test]
    fn a_first_element_is_stored_apart() {
        // A head of two bytes, negative; no planes. Then a plain block; its other selector bits mean nothing.
        let stored = [0, 0b1111_1011, 0, 0b1111_1110, 1, 2, 0b0000_0001];
        assert_eq!(inverse(24, &config(5, 1, 4, 6), &[&stored]).unwrap(), i16s(&[-513, 0, 0, 0, 0, 0]));
        // Any flag but 0 is one; the head takes precedence over its planes.
        let stored = [1, 1, 7, 0b10, 0b11];
        assert_eq!(inverse(24, &config(5, 9, 8, 3), &[&stored]).unwrap(), i16s(&[7, -1, 0]));
    }

    #[test]
    fn the_most_negative_element_has_a_magnitude() {
        let mut stored = vec![16, 0];
        stored.extend([&[0; 15][..], &[1]].concat());
        assert_eq!(inverse(24, &config(5, 0, 8, 1), &[&stored]).unwrap(), i16s(&[i16::MIN]));
        stored[1] = 1;
        assert_eq!(inverse(24, &config(5, 0, 8, 1), &[&stored]).unwrap(), i16s(&[i16::MIN]));
    }

    #[test]
    fn windows_equal_ranges_of_the_whole() {
        let mut random = Random(3);
        for (block, selection, n) in [(32, 0, 50_001), (64, 1, 30_000), (7, 0, 9999), (1, 1, 2000), (1024, 0, 70_000)] {
            let blocks = n / u64::from(block) + 1;
            let metadata = (0..blocks * (1 + u64::from(selection)))
                .map(|i| (if i % (1 + u64::from(selection)) == 0 { random.below(17) } else { random.below(4) }) as u8);
            let mut stored: Vec<u8> = metadata.collect();
            stored.extend(random.bytes(blocks as usize * 17 * (block as usize / 8 + 2)));
            windows_agree(24, &config(5, selection, block, n), &[&stored]);
        }
    }

    #[test]
    fn every_shape_of_block_decodes_as_written() {
        for (text, dtype) in [
            ("adaptive_bitpack", Dtype::I32),
            ("adaptive_bitpack:select=1,block=0", Dtype::I16),
            ("adaptive_bitpack:block=33", Dtype::I32),
            ("adaptive_bitpack:block=1000,select=1", Dtype::I32),
            ("adaptive_bitpack:block=1,select=1", Dtype::I16),
            ("adaptive_bitpack:block=64,rze", Dtype::I16),
        ] {
            for n in [0, 1, 31, 20_011] {
                round_trip(text, dtype, &[n], &field::smooth(dtype, &[n], 50.0, 4));
                let size = if dtype == Dtype::I16 { 2 } else { 4 };
                round_trip(text, dtype, &[n], &Random(8).bytes(n as usize * size));
            }
        }
    }

    #[test]
    fn rates_and_sizes_that_do_not_fit_are_refused() {
        let error = |config: Vec<u8>, stored: &[u8]| inverse_error(24, &config, &[stored]);
        let e = error(config(5, 0, 8, 9), &[0, 17, 0, 0]);
        assert_eq!(e, "17 bit planes for 16 bits (block 1: adaptive_bitpack rates)");
        let e = error(config(5, 1, 8, 1), &[0, 0b101, 0, 0, 0, 0]);
        assert_eq!(e, "3 bytes for an element of 2 (block 0: adaptive_bitpack rates)");
        let e = error(config(6, 0, 8, 1), &[32, 0, 0]);
        assert_eq!(e, "the blocks end at byte 34, the stream at byte 3 (adaptive_bitpack blocks)");
        assert_eq!(error(config(6, 0, 32, 65), &[0, 0]), "needs 3 bytes, 2 left (num_elements)");
        let e = error(config(6, 1, 1, u64::MAX), &[0, 0]);
        assert_eq!(e, "needs 18446744073709551615 bytes, 2 left (num_elements)");
        assert!(parse_error(24, &config(2, 0, 32, 1)).contains("element type uint32"));
        assert!(parse_error(24, &config(6, 0, 1025, 1)).contains("blocks of 1025 elements"));
        assert!(parse_error(24, &config(6, 0, 32, 1)[..15]).contains("a configuration of 15 bytes"));
    }
}
