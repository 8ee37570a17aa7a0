//! `AdaptiveLorenzo` (type 34): differences of first or second order inside of tiles, with or without their mean.
//!
//! Reference: `AdaptiveLorenzo`. Tiles are independent. The means of centred tiles follow each other, so that a tile
//! finds its own by the number of centred tiles before it; the first read counts them up to every 1024th tile.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::sync::Arc;

use super::DataType::{I16, I32, U8};
use super::array_store::ArrayStore;
use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::{Unsigned, elements};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 34,
    name: "adaptive_lorenzo",
    family: Family::Predictor,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(AdaptiveLorenzo::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[12],
    fields: &[
        Field::element_type("data_type", 0),
        Field::u8("block_size", 1),
        Field::u8("blocks_per_tile", 2),
        Field::flag("second_order", 3),
        Field::flag("centring", 4),
        Field::zero(5, 3),
        Field::u32("num_elements", 8),
    ],
};

/// Elements of a block.
const BLOCK: u8 = 32;
/// Blocks of the largest tile.
const LARGEST: u8 = 32;
/// Tiles between two entries of the index.
const STRIDE: u64 = 1024;
/// Tiles that share a byte of modes.
const PER_BYTE: u64 = 4;
/// The bits of centred tiles in a byte of modes.
const CENTRED: u8 = 0b1010_1010;

/// The configuration.
struct AdaptiveLorenzo {
    config: Config,
    ty: DataType,
    /// Elements of a tile.
    tile: usize,
}

impl AdaptiveLorenzo {
    fn parse(config: Config) -> Result<Self> {
        let ty = config.element_type("data_type", &[I16, I32], I32)?;
        let block = config.u8("block_size");
        if block != BLOCK {
            return Err(config.unknown("block_size", format!("blocks of {block} elements")));
        }
        let blocks = config.u8("blocks_per_tile");
        if !(1..=LARGEST).contains(&blocks) {
            return Err(config.unknown("blocks_per_tile", format!("{blocks} blocks in a tile")));
        }
        Ok(Self { config, ty, tile: usize::from(BLOCK) * usize::from(blocks) })
    }

    fn stream<U: Unsigned>(&self, outputs: [Arc<dyn ByteStream>; 3], cx: &Context) -> Result<Arc<dyn ByteStream>> {
        let [residuals, modes, means] = outputs;
        let size = to_u64(U::SIZE);
        let count = residuals.len() / size;
        let tiles = count.div_ceil(to_u64(self.tile));
        let need = tiles.div_ceil(PER_BYTE);
        if modes.len() < need {
            return Err(Error::new(Kind::Truncated { need, have: modes.len() }, "modes"));
        }
        let block = to_u64(self.tile) * size;
        let windows = BlockWindows::new(count * size, block, scaled(residuals.unit(), U::SIZE, U::SIZE));
        let (tile, cx) = (self.tile, cx.clone());
        let element = std::marker::PhantomData::<fn() -> U>;
        Ok(Arc::new(Summed { residuals, modes, means, tile, tiles, cx, index: Once::new(), windows, element }))
    }
}

impl Stage for AdaptiveLorenzo {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        &["output", "modes", "means"]
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, port: usize) -> DataType {
        if port == 1 { U8 } else { self.ty }
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("tiles of {} {}", self.tile, self.ty.name())]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let outputs = exactly(outputs)?;
        let stream = if self.ty == I16 { self.stream::<u16>(outputs, cx) } else { self.stream::<u32>(outputs, cx) };
        Ok(vec![stream?])
    }
}

/// The elements.
struct Summed<U> {
    residuals: Arc<dyn ByteStream>,
    modes: Arc<dyn ByteStream>,
    means: Arc<dyn ByteStream>,
    /// Elements of a tile.
    tile: usize,
    tiles: u64,
    cx: Context,
    /// The number of centred tiles before every [`STRIDE`]-th one.
    index: Once<ArrayStore>,
    windows: BlockWindows,
    element: std::marker::PhantomData<fn() -> U>,
}

/// Index entries with modes that are read together.
const BATCH: u64 = 64;

impl<U: Unsigned> Summed<U> {
    fn index(&self) -> Result<&ArrayStore> {
        let bytes = 8 * self.tiles.div_ceil(STRIDE);
        self.index.build(&self.cx.account, self.cx.build_limit(bytes), || self.scan(bytes))
    }

    fn scan(&self, bytes: u64) -> Result<ArrayStore> {
        let mut before = ArrayStore::new(bytes, &self.cx.account, "adaptive_lorenzo tiles")?;
        let (mut centred, mut first) = (0, 0);
        while first < self.tiles {
            let modes = self.read_modes(first, (self.tiles - first).min(BATCH * STRIDE))?;
            for (entry, modes) in (first / STRIDE..).zip(modes.chunks((STRIDE / PER_BYTE) as usize)) {
                before.write(8 * entry, &u64::to_le_bytes(centred))?;
                centred += count_centred(modes, (self.tiles - entry * STRIDE).min(STRIDE));
            }
            first += BATCH * STRIDE;
        }
        let need = centred.saturating_mul(to_u64(U::SIZE));
        if self.means.len() < need {
            return Err(Error::new(Kind::Truncated { need, have: self.means.len() }, "means"));
        }
        Ok(before)
    }

    /// The bytes with the modes of `count` tiles from tile `first`, a multiple of [`PER_BYTE`].
    fn read_modes(&self, first: u64, count: u64) -> Result<ScratchBuffer> {
        let mut modes = ScratchBuffer::new(to_usize(count.div_ceil(PER_BYTE), "modes")?)?;
        self.modes.read(first / PER_BYTE, &mut modes)?;
        Ok(modes)
    }
}

/// The centred ones of the first `count` tiles of `modes`.
fn count_centred(modes: &[u8], count: u64) -> u64 {
    let (whole, rest) = modes.split_at(((count / PER_BYTE) as usize).min(modes.len()));
    let centred = whole.iter().map(|byte| u64::from((byte & CENTRED).count_ones())).sum::<u64>();
    let last = rest.first().map_or(0, |byte| byte & CENTRED & ((1 << (2 * (count % PER_BYTE))) - 1));
    centred + u64::from(last.count_ones())
}

impl<U: Unsigned> Blockwise for Summed<U> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let size = to_u64(U::SIZE);
        let first = start / (to_u64(self.tile) * size);
        let count = to_u64(out.len().div_ceil(self.tile * U::SIZE));
        let known = first - first % STRIDE;
        let modes = self.read_modes(known, first - known + count)?;
        let before = count_centred(&modes, first - known);
        let centred = count_centred(&modes, first - known + count) - before;
        let mut means = ScratchBuffer::new(to_usize(centred * size, "means")?)?;
        if centred > 0 {
            let at = self.index()?.entry(known / STRIDE)?.saturating_add(before).saturating_mul(size);
            if at.checked_add(centred * size).is_none_or(|end| end > self.means.len()) {
                return Err(Error::new(Kind::Truncated { need: at, have: self.means.len() }, "means"));
            }
            self.means.read(at, &mut means)?;
        }
        self.residuals.read(start, out)?;
        let first = to_usize(first - known, "modes")?;
        run_widest(SumUp::<U, _> { modes: &modes, first, means: elements(&means), tile: self.tile, out });
        Ok(())
    }

    fn setup(&self) -> Setup {
        if self.means.is_empty() { Setup::None } else { Setup::Once }
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}

/// Replaces the residuals in `out`, from tile `first` of `modes`, by the elements.
struct SumUp<'a, U, M: Iterator<Item = U>> {
    modes: &'a [u8],
    first: usize,
    means: M,
    tile: usize,
    out: &'a mut [u8],
}

impl<U: Unsigned, M: Iterator<Item = U>> SimdLoop for SumUp<'_, U, M> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, vectors: impl SimdOps) {
        let mut sums = [0; BLOCK as usize * LARGEST as usize];
        for (t, out) in (self.first..).zip(self.out.chunks_mut(self.tile * U::SIZE)) {
            let mode = self.modes.get(t / 4).map_or(0, |byte| byte >> (t % 4 * 2));
            let sums = &mut sums[..out.len() / U::SIZE];
            for (own, stored) in sums.iter_mut().zip(elements::<U>(out)) {
                *own = stored.signed() as i32;
            }
            vectors.running_sums(sums, self.tile);
            if mode & 1 != 0 {
                vectors.running_sums(sums, self.tile);
            }
            let mean = if mode & 2 != 0 { self.means.next().map_or(0, |mean| mean.signed() as i32) } else { 0 };
            for (own, sum) in out.chunks_exact_mut(U::SIZE).zip(sums) {
                own.copy_from_slice(&sum.wrapping_add(mean).to_le_bytes()[..U::SIZE]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{Random, inverse, inverse_error, parse_error, round_trip, stream, whole};

    fn config(ty: u8, block: u8, blocks: u8) -> Vec<u8> {
        vec![ty, block, blocks, 1, 1, 0, 0, 0, 9, 9, 9, 9]
    }

    fn i16s(values: &[i16]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn each_mode_sums_its_tile() {
        // Tiles of 32: first order, second, first centred, second centred, and a short one.
        let residuals = i16s(&[1; 130]);
        let got = inverse(34, &config(5, 32, 1), &[&residuals, &[0b1110_0100, 0], &i16s(&[100, -50])]).unwrap();
        let first = |mean: i16| (1..=32).map(move |i: i16| i + mean);
        let second = |mean: i16| (1..=32).map(move |i: i16| i * (i + 1) / 2 + mean);
        let want: Vec<i16> = first(0).chain(second(0)).chain(first(100)).chain(second(-50)).chain([1, 2]).collect();
        assert_eq!(got, i16s(&want));
        let wrapped = inverse(34, &config(5, 32, 32), &[&i16s(&[i16::MAX, 1]), &[2], &i16s(&[-1])]).unwrap();
        assert_eq!(wrapped, i16s(&[i16::MAX - 1, i16::MAX]));
        assert!(inverse(34, &config(6, 32, 8), &[&[], &[], &[]]).unwrap().is_empty());
    }

    #[test]
    fn windows_find_the_means_of_their_tiles() {
        let mut random = Random(7);
        for (ty, blocks) in [(5, 1), (6, 1), (6, 3)] {
            let residuals = random.bytes(700_003);
            let (modes, means) = (random.bytes(2800), random.bytes(45_000));
            let stream = stream(34, &config(ty, 32, blocks), &[&residuals, &modes, &means]).unwrap();
            super::super::testing::assert_windows(&*stream, &whole(&*stream).unwrap());
        }
    }

    #[test]
    fn every_tile_decodes_as_written() {
        for (text, dtype) in [
            ("adaptive_lorenzo,adaptive_bitpack", Dtype::I32),
            ("adaptive_lorenzo:tile=1,select=1,adaptive_bitpack:select=1", Dtype::I16),
            ("adaptive_lorenzo:tile=32,second=0", Dtype::I32),
            ("adaptive_lorenzo:centre=0", Dtype::I16),
            ("adaptive_lorenzo:tile=1,rze:from=0,port=means", Dtype::I32),
        ] {
            for n in [0, 1, 255, 60_013] {
                round_trip(text, dtype, &[n], &field::smooth(dtype, &[n], 200.0, 5));
                let size = if dtype == Dtype::I16 { 2 } else { 4 };
                round_trip(text, dtype, &[n], &Random(2).bytes(size * n as usize));
            }
        }
    }

    #[test]
    fn short_ports_and_unknown_tiles_are_refused() {
        let residuals = i16s(&[1; 130]);
        let error = |modes: &[u8], means: &[u8]| inverse_error(34, &config(5, 32, 1), &[&residuals, modes, means]);
        assert_eq!(error(&[0], &[]), "needs 2 bytes, 1 left (modes)");
        assert_eq!(error(&[0x80, 2], &[0; 3]), "needs 4 bytes, 3 left (means)");
        let parse = |config: &[u8]| parse_error(34, config);
        assert!(parse(&config(5, 64, 1)).contains("blocks of 64 elements"));
        assert!(parse(&config(5, 32, 0)).contains("0 blocks in a tile"));
        assert!(parse(&config(5, 32, 33)).contains("33 blocks in a tile"));
        assert!(parse(&config(1, 32, 1)).contains("element type uint16"));
    }
}
