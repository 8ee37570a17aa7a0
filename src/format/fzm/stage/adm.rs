//! ADM (type 19): unsigned integers as distances from the mean of their block, a byte and a unary number each.
//!
//! Reference: section 19. A block has 512 elements, and 32 stripes of bits for 16 elements each; tables at the front
//! give the place of every block, so blocks are independent.
//!
//! Limits: the stream has at least a byte per element; a stripe is at most as long as the writer's space for it.
#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::{Unsigned, elements};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 19,
    name: "adm",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Adm::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[12],
    fields: &[Field::u8("element_width", 0), Field::zero(1, 3), Field::u64("num_elements", 4)],
};

/// Elements of a block.
const BLOCK: u64 = 512;
/// Stripes of a block.
const LANES: u64 = 32;
/// Elements of a stripe.
const RUN: usize = (BLOCK / LANES) as usize;
/// The value of a unary step.
const STEP: u32 = 126;

/// A stage.
struct Adm {
    config: Config,
    input: DataType,
}

impl Adm {
    fn parse(config: Config) -> Result<Self> {
        let input = match config.u8("element_width") {
            0 => DataType::U16,
            1 => DataType::U32,
            other => return Err(config.unknown("element_width", format!("element width {other}"))),
        };
        Ok(Self { config, input })
    }

    fn stream<U: WrappingSum>(&self, input: Arc<dyn ByteStream>) -> Result<Arc<dyn ByteStream>> {
        let places = AdmPlaces::new(self.config.u64("num_elements"), U::SIZE, input.len())?;
        let windows = BlockWindows::new(places.count * to_u64(U::SIZE), BLOCK * to_u64(U::SIZE), 1);
        Ok(Arc::new(AdmElements::<U> { input, places, windows, element: PhantomData }))
    }
}

impl Stage for Adm {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.input
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn summary(&self) -> Vec<String> {
        vec![self.input.name().to_owned()]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        Ok(vec![if self.input == DataType::U16 { self.stream::<u16>(input) } else { self.stream::<u32>(input) }?])
    }
}

/// Where the parts of a stream are.
#[derive(Debug, Clone, Copy)]
struct AdmPlaces {
    /// Elements.
    count: u64,
    centers: u64,
    codes: u64,
    signals: u64,
    /// Bytes of the signals of one byte of every stripe.
    stripes: u64,
}

impl AdmPlaces {
    /// The parts of a stream of `len` bytes, which decodes to `count` elements of `size` bytes.
    fn new(count: u64, size: usize, len: u64) -> Result<Self> {
        if count > len {
            return Err(Error::new(Kind::Truncated { need: count, have: len }, "adm codes"));
        }
        let blocks = count.div_ceil(BLOCK);
        let centers = 4 * blocks;
        // One unused bit per block precedes the codes.
        let codes = centers + to_u64(size) * blocks + blocks.div_ceil(8);
        let signals = codes + count;
        let Some(bytes) = len.checked_sub(signals) else {
            return Err(Error::new(Kind::Truncated { need: signals, have: len }, "adm codes"));
        };
        if !bytes.is_multiple_of(LANES) || count == 0 && len > 0 {
            return Err(Error::corrupt(format!("{bytes} bytes are not stripes for {count} elements"), "adm signals"));
        }
        Ok(Self { count, centers, codes, signals, stripes: bytes / LANES })
    }
}

/// An element: the arithmetic wraps.
trait WrappingSum: Unsigned {
    fn moved(self, code: u8, zeros: u32) -> Self;
}

macro_rules! sums {
    ($($ty:ty)*) => {$(
        impl WrappingSum for $ty {
            #[inline]
            fn moved(self, code: u8, zeros: u32) -> Self {
                // The reference library counts zeros in a byte.
                let by = (u32::from(code >> 1) + STEP * (zeros & 0xFF)) as $ty;
                if code & 1 == 0 { self.wrapping_add(by) } else { self.wrapping_sub(by) }
            }
        }
    )*};
}

sums!(u16 u32);

/// The decoded elements.
struct AdmElements<U> {
    input: Arc<dyn ByteStream>,
    places: AdmPlaces,
    windows: BlockWindows,
    element: PhantomData<fn() -> U>,
}

impl<U: WrappingSum> AdmElements<U> {
    /// The stripes of the blocks from `first` on: the start of each, and the end of the last, in bytes of a stripe.
    fn stripes(&self, first: u64, blocks: usize) -> Result<Vec<u64>> {
        let all = self.places.count.div_ceil(BLOCK);
        let stored = to_usize(to_u64(blocks + 1).min(all - first), "adm offsets")?;
        let mut bytes = ScratchBuffer::new(4 * stored)?;
        self.input.read(4 * first, &mut bytes)?;
        let mut starts: Vec<u64> = elements::<u32>(&bytes).map(u64::from).collect();
        if stored == blocks {
            starts.push(self.places.stripes);
        }
        let broken = |block: u64, why: String| Error::corrupt(why, "adm offsets").within(format!("block {block}"));
        if first == 0 && starts.first() != Some(&0) {
            return Err(broken(0, "the stripes do not start at byte 0".to_owned()));
        }
        for ((own, next), block) in starts.iter().zip(&starts[1..]).zip(first..) {
            if own > next || *next > self.places.stripes {
                let why = format!("bytes {own} to {next} of stripes of {} bytes", self.places.stripes);
                return Err(broken(block, why));
            }
            let most = to_u64(RUN * U::SIZE);
            if next - own > most {
                return Err(broken(block, format!("stripes of {} bytes, but {most} are the most", next - own)));
            }
        }
        Ok(starts)
    }
}

impl<U: WrappingSum> Blockwise for AdmElements<U> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let (size, block) = (U::SIZE, BLOCK as usize * U::SIZE);
        let (first, blocks) = (start / to_u64(block), out.len().div_ceil(block));
        let stripes = self.stripes(first, blocks)?;
        let (mut centers, mut codes) = (ScratchBuffer::new(size * blocks)?, ScratchBuffer::new(out.len() / size)?);
        self.input.read(self.places.centers + to_u64(size) * first, &mut centers)?;
        self.input.read(self.places.codes + BLOCK * first, &mut codes)?;
        let (from, to) = (stripes[0], stripes[blocks]);
        let mut signals = ScratchBuffer::new(to_usize(LANES * (to - from), "adm signals")?)?;
        self.input.read(self.places.signals + LANES * from, &mut signals)?;
        let parts = out.chunks_mut(block).zip(codes.chunks(BLOCK as usize)).zip(elements::<U>(&centers));
        for (i, ((out, codes), center)) in parts.enumerate() {
            let (own, next) = (stripes[i] - from, stripes[i + 1] - from);
            let signals = &signals[(LANES * own) as usize..(LANES * next) as usize];
            // Without stripes no lane has a bit, which is an error for every element.
            let stripe = signals.len() / LANES as usize;
            for (lane, (out, codes)) in out.chunks_mut(RUN * size).zip(codes.chunks(RUN)).enumerate() {
                let signals = &signals[lane * stripe..][..stripe];
                let mut zeros = [0; RUN];
                if !runs(signals, &mut zeros[..codes.len()]) {
                    let why = format!("its bits are not those of {} elements", codes.len());
                    let block = first + to_u64(i);
                    return Err(Error::corrupt(why, "adm signals").within(format!("lane {lane} of block {block}")));
                }
                for ((own, code), zeros) in out.chunks_exact_mut(size).zip(codes).zip(&zeros) {
                    center.moved(*code, *zeros).put(own);
                }
            }
        }
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}

/// Fills `zeros` with the zero bits after each one bit; returns whether there are as many one bits, the first in front.
fn runs(stripe: &[u8], zeros: &mut [u32]) -> bool {
    match stripe.len() {
        0..=7 => {
            // A bit after the last ends its run.
            let mut bits = stripe.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte)) << 1 | 1;
            bits <<= 63 - 8 * stripe.len();
            for own in zeros {
                if bits >> 63 == 0 || bits << 1 == 0 {
                    return false;
                }
                bits <<= 1;
                *own = bits.leading_zeros();
                bits <<= *own;
            }
            true
        }
        _ => long_runs(stripe, zeros),
    }
}

/// As [`runs`], for any length.
fn long_runs(stripe: &[u8], zeros: &mut [u32]) -> bool {
    if stripe.first().is_none_or(|byte| byte >> 7 == 0) {
        return zeros.is_empty();
    }
    let mut found = 0_usize;
    for byte in stripe {
        let mut bits = *byte;
        let mut left = 8;
        while left > 0 {
            let run = bits.leading_zeros().min(left);
            if let Some(own) = found.checked_sub(1).and_then(|last| zeros.get_mut(last)) {
                *own += run;
            }
            left -= run;
            if left > 0 {
                found += 1;
                left -= 1;
                bits = bits.checked_shl(run + 1).unwrap_or(0);
            }
        }
        if found > zeros.len() {
            break;
        }
    }
    found >= zeros.len()
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{Random, coded, inverse, inverse_error, parse_error, round_trip};
    use super::{long_runs, runs};

    fn config(width: u8, count: u64) -> Vec<u8> {
        [&[width, 0, 0, 0][..], &count.to_le_bytes()].concat()
    }

    #[test]
    fn codes_and_zeros_are_distances_from_the_mean() {
        // One block around 1000: equal, 1 above, 126 below, 127 above, 500 below.
        let codes = [1, 2, 126 * 2 + 1, 2, 122 * 2 + 1];
        let mut stored = [&0_u32.to_le_bytes()[..], &1000_u16.to_le_bytes(), &[0xFF], &codes].concat();
        // 1 1 1 10 1000, and ones up to the end of the byte.
        let lanes: Vec<u8> = std::iter::once([0b1111_0100, 0b0111_1111]).chain([[0xFF, 0]; 31]).flatten().collect();
        stored.extend(lanes);
        let want = [1000, 1001, 874, 1127, 500_u16].map(u16::to_le_bytes).concat();
        assert_eq!(inverse(19, &config(0, 5), &[&stored]).unwrap(), want);
        assert!(inverse(19, &config(1, 0), &[&[]]).unwrap().is_empty());
    }

    #[test]
    fn runs_of_any_length_are_counted_in_both_ways() {
        let mut random = Random(77);
        for _ in 0..2000 {
            let stripe: Vec<u8> = (0..random.below(12)).map(|_| (random.next() & random.next()) as u8).collect();
            let bits = || stripe.iter().flat_map(|byte| (0..8).map(move |bit| byte << bit & 0x80 != 0));
            let n = random.below(17) as usize;
            let ones: Vec<usize> = bits().enumerate().filter(|(_, bit)| *bit).map(|(at, _)| at).collect();
            let ends = ones.iter().skip(1).copied().chain([8 * stripe.len()]);
            let want: Vec<u32> = ones.iter().zip(ends).map(|(at, end)| (end - at - 1) as u32).take(n).collect();
            let is_valid = n == 0 || want.len() == n && ones[0] == 0;
            for run in [runs, long_runs] {
                let mut zeros = vec![0; n];
                assert_eq!(run(&stripe, &mut zeros), is_valid, "{stripe:x?} {n}");
                assert!(!is_valid || zeros == want, "{stripe:x?} {zeros:?}");
            }
        }
    }

    #[test]
    fn both_widths_decode_at_every_length() {
        for (dtype, n) in [(Dtype::U16, 1), (Dtype::U16, 511), (Dtype::U32, 512), (Dtype::U32, 30_001)] {
            round_trip("adm", dtype, &[n], &field::smooth(dtype, &[n], 100.0, 5));
        }
        let far: Vec<u8> = (0..5000_u32).flat_map(|i| (70_000 + i % 7 * 900).to_le_bytes()).collect();
        round_trip("adm,ans", Dtype::U32, &[5000], &far);
    }

    #[test]
    fn streams_that_contradict_themselves_are_refused() {
        let data: Vec<u8> = (0..1000_u16).flat_map(u16::to_le_bytes).collect();
        let (_, ports) = coded("adm", Dtype::U16, &data);
        let stored = &ports[0];
        let with = |at: usize, bytes: &[u8]| {
            let mut stored = stored.clone();
            stored[at..at + bytes.len()].copy_from_slice(bytes);
            inverse_error(19, &config(0, 1000), &[&stored])
        };
        assert_eq!(with(0, &[1]), "the stripes do not start at byte 0 (block 0: adm offsets)");
        let e = with(4, &[0xFF; 4]);
        assert!(e.starts_with("bytes 0 to 4294967295 of stripes of ") && e.ends_with("(block 0: adm offsets)"), "{e}");
        // Two offsets, two means, flags, codes; then the first lane.
        let e = with(8 + 4 + 1 + 1000, &[0x7F]);
        assert_eq!(e, "its bits are not those of 16 elements (lane 0 of block 0: adm signals)");
        let e = inverse_error(19, &config(0, 1000), &[&stored[..1000]]);
        assert_eq!(e, "needs 1013 bytes, 1000 left (adm codes)");
        let e = inverse_error(19, &config(0, 1 << 60), &[stored]);
        assert!(e.ends_with("left (adm codes)"), "{e}");
        let e = inverse_error(19, &config(0, 1000), &[&stored[..stored.len() - 1]]);
        assert!(e.ends_with("bytes are not stripes for 1000 elements (adm signals)"), "{e}");
        assert!(parse_error(19, &config(2, 1)).starts_with("element width 2 is unknown ("));
    }
}
