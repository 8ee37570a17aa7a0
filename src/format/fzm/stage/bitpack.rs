//! Bitpack (type 7): small unsigned integers, 1 to 32 bits each, packed densely.
//!
//! Reference: section 5.6. Below 8 bits per element, the first element of a byte is in its lowest bits; from 8 bits,
//! elements are little-endian integers.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::config::{Config, Field, Layout};
use super::scratch::ScratchBuffer;
use super::types::{Element, elements};
use super::{Context, DataType, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// The stage type.
pub(super) const TYPE: StageType =
    StageType { code: 7, name: "bitpack", layout: &LAYOUT, parse: |config| Ok(Box::new(Bitpack::parse(config)?)) };

const LAYOUT: Layout = Layout {
    sizes: &[10],
    fields: &[Field::element_type("data_type", 0), Field::u8("nbits", 1), Field::u64("num_elements", 2)],
};

/// A stage.
struct Bitpack {
    config: Config,
    ty: DataType,
    nbits: u8,
    num_elements: u64,
}

impl Bitpack {
    fn parse(config: Config) -> Result<Self> {
        let defined = [DataType::U8, DataType::U16, DataType::U32];
        let ty = config.element_type("data_type", &defined, DataType::Opaque)?;
        let nbits = config.u8("nbits");
        if !nbits.is_power_of_two() || usize::from(nbits) > 8 * ty.size() {
            let why = format!("{nbits} is not a power of two up to {}", 8 * ty.size());
            return Err(config.corrupt("nbits", why));
        }
        let num_elements = config.u64("num_elements");
        Ok(Self { config, ty, nbits, num_elements })
    }
}

impl Stage for Bitpack {
    fn name(&self) -> &'static str {
        "bitpack"
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("{} bits of {}", self.nbits, self.ty.name())]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let bits = u128::from(self.num_elements) * u128::from(self.nbits);
        let need = bits.div_ceil(8);
        if need > u128::from(input.len()) {
            let need = u64::try_from(need).unwrap_or(u64::MAX);
            return Err(Error::new(Kind::Truncated { need, have: input.len() }, "num_elements"));
        }
        let too_large =
            || Error::new(Kind::TooLarge { value: self.num_elements, limit: u64::MAX >> 3 }, "num_elements");
        let len = self.num_elements.checked_mul(to_u64(self.ty.size())).ok_or_else(too_large)?;
        // Elements that share a byte form a block; from 8 bits, each element is a block.
        let (packed, count) = match self.nbits {
            1..=7 => (1, usize::from(8 / self.nbits)),
            nbits => (usize::from(nbits / 8), 1),
        };
        let block = count * self.ty.size();
        let unpack = match self.ty {
            DataType::U8 => unpack::<u8>,
            DataType::U16 => unpack::<u16>,
            _ => unpack::<u32>,
        };
        let windows = BlockWindows::new(len, to_u64(block), scaled(input.unit(), packed, block));
        Ok(vec![Arc::new(Unpacked { input, nbits: self.nbits, packed, block, unpack, windows })])
    }
}

/// The elements, zero-extended.
struct Unpacked {
    input: Arc<dyn ByteStream>,
    nbits: u8,
    /// Input bytes of a block.
    packed: usize,
    /// Output bytes of a block.
    block: usize,
    unpack: fn(u8, &[u8], &mut [u8]),
    windows: BlockWindows,
}

impl Blockwise for Unpacked {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let mut packed = ScratchBuffer::new(out.len().div_ceil(self.block) * self.packed)?;
        self.input.read(start / to_u64(self.block) * to_u64(self.packed), &mut packed)?;
        (self.unpack)(self.nbits, &packed, out);
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let (block, packed, nbits) = (to_u64(self.block), to_u64(self.packed), u32::from(self.nbits));
        let size = if nbits < 8 { block * u64::from(nbits) / 8 } else { block };
        let inverse = Inverse::Bitpack(inverse::Bitpack { size, nbits, block, packed });
        Some(Derivation { inverse, input: Arc::clone(&self.input) })
    }
}

trait Widen: Element + From<u8> {
    /// The element in `bytes`, zero-extended; 1 to `SIZE` bytes.
    fn widen(bytes: &[u8]) -> Self;
}

macro_rules! widen {
    ($($ty:ty)*) => {$(
        impl Widen for $ty {
            #[inline(always)]
            fn widen(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$ty>()];
                own[..bytes.len()].copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )*};
}

widen!(u8 u16 u32);

/// Unpacks into `out`, whose last block may be partial.
fn unpack<T: Widen>(nbits: u8, packed: &[u8], out: &mut [u8]) {
    match nbits {
        1 => split::<T, 1>(packed, out),
        2 => split::<T, 2>(packed, out),
        4 => split::<T, 4>(packed, out),
        8 => {
            for (own, byte) in out.chunks_exact_mut(T::SIZE).zip(elements::<u8>(packed)) {
                T::from(byte).put(own);
            }
        }
        _ => {
            for (own, bytes) in out.chunks_exact_mut(T::SIZE).zip(packed.chunks_exact(usize::from(nbits / 8))) {
                T::widen(bytes).put(own);
            }
        }
    }
}

fn split<T: Widen, const NBITS: usize>(packed: &[u8], out: &mut [u8]) {
    for (group, byte) in out.chunks_mut(8 / NBITS * T::SIZE).zip(packed) {
        for (i, own) in group.chunks_exact_mut(T::SIZE).enumerate() {
            T::from((byte >> (i * NBITS)) & (0xFF >> (8 - NBITS))).put(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, inverse, inverse_error, parse_error, windows_agree};

    fn config(ty: u8, nbits: u8, n: u64) -> Vec<u8> {
        [&[ty, nbits][..], &n.to_le_bytes()].concat()
    }

    #[test]
    fn elements_unpack_from_the_lowest_bits_up() {
        for (ty, nbits, n, packed, want) in [
            (0, 1, 10, &[0b1000_0101, 0b10][..], &[1, 0, 1, 0, 0, 0, 0, 1, 0, 1][..]),
            (0, 2, 3, &[0b0011_1001], &[1, 2, 3]),
            (1, 4, 3, &[0xBA, 0x0C], &[0xA, 0, 0xB, 0, 0xC, 0]),
            (1, 8, 2, &[7, 8], &[7, 0, 8, 0]),
            (2, 16, 1, &[1, 2], &[1, 2, 0, 0]),
            (2, 32, 1, &[1, 2, 3, 4], &[1, 2, 3, 4]),
            (2, 32, 0, &[], &[]),
        ] {
            assert_eq!(inverse(7, &config(ty, nbits, n), &[packed]).unwrap(), want, "{ty} {nbits}");
        }
    }

    #[test]
    fn windows_equal_ranges_of_the_whole() {
        let packed = Random(1).bytes(5000);
        for (ty, nbits, n) in [(0, 1, 39_997), (1, 4, 9_999), (2, 2, 20_000), (2, 16, 2500), (1, 8, 5000)] {
            windows_agree(7, &config(ty, nbits, n), &[&packed]);
        }
    }

    #[test]
    fn invalid_types_and_widths_are_refused() {
        assert_eq!(parse_error(7, &config(3, 1, 0)), "element type uint64 is unknown (data_type, at byte 0x100)");
        for (nbits, ty, most) in [(0, 0, 8), (3, 0, 8), (16, 0, 8), (32, 1, 16), (64, 2, 32)] {
            let want = format!("{nbits} is not a power of two up to {most} (nbits, at byte 0x101)");
            assert_eq!(parse_error(7, &config(ty, nbits, 0)), want);
        }
        assert_eq!(parse_error(7, &[0, 1, 0]), "a configuration of 3 bytes is unknown (config_size, at byte 0x100)");
        assert_eq!(inverse_error(7, &config(0, 4, 5), &[&[0, 0]]), "needs 3 bytes, 2 left (num_elements)");
        assert_eq!(
            inverse_error(7, &config(0, 8, u64::MAX), &[&[0]]),
            "needs 18446744073709551615 bytes, 1 left (num_elements)"
        );
        assert_eq!(
            inverse_error(7, &config(0, 1, 0), &[&[], &[]]),
            "a stage with 1 inputs and 2 outputs, not 1 and 1, is unknown (output_buffer_ids)"
        );
    }
}
