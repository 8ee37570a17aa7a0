//! Bitpack (type 7): small unsigned integers, 1 to 32 bits each, packed densely.
//!
//! Reference: section 5.6. Below 8 bits per element, the first element of a byte is in its lowest bits; from 8 bits,
//! elements are little-endian integers. Configurations of 15 bytes pack the element minus a base, without its lowest
//! bits.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::{Element, elements};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 7,
    name: "bitpack",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Bitpack::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[10, 15],
    fields: &[
        Field::element_type("data_type", 0),
        Field::u8("nbits", 1),
        Field::u64("num_elements", 2),
        Field::u8("shift", 10),
        Field::u32("base", 11),
    ],
};

/// A stage.
struct Bitpack {
    config: Config,
    ty: DataType,
    nbits: u8,
    num_elements: u64,
    scale: Option<Scale>,
}

/// From packed numbers to elements: a shift to the left, then the sum with a base.
#[derive(Debug, Clone, Copy)]
struct Scale {
    shift: u32,
    base: u32,
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
        let bits = 8 * ty.size();
        let scale = Scale { shift: config.u32("shift"), base: config.u32("base") };
        if scale.shift as usize >= bits {
            return Err(config.corrupt("shift", format!("a shift of {} bits of {bits}", scale.shift)));
        }
        if u64::from(scale.base) >> bits != 0 {
            return Err(config.corrupt("base", format!("{} does not fit {}", scale.base, ty.name())));
        }
        let scale = (scale.shift > 0 || scale.base > 0).then_some(scale);
        let num_elements = config.u64("num_elements");
        Ok(Self { config, ty, nbits, num_elements, scale })
    }
}

impl Stage for Bitpack {
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
        Ok(vec![Arc::new(Unpacked { input, nbits: self.nbits, packed, block, unpack, scale: self.scale, windows })])
    }
}

/// The elements.
struct Unpacked {
    input: Arc<dyn ByteStream>,
    nbits: u8,
    /// Input bytes of a block.
    packed: usize,
    /// Output bytes of a block.
    block: usize,
    unpack: fn(u8, Option<Scale>, &[u8], &mut [u8]),
    scale: Option<Scale>,
    windows: BlockWindows,
}

impl Blockwise for Unpacked {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let mut packed = ScratchBuffer::new(out.len().div_ceil(self.block) * self.packed)?;
        self.input.read(start / to_u64(self.block) * to_u64(self.packed), &mut packed)?;
        (self.unpack)(self.nbits, self.scale, &packed, out);
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        if self.scale.is_some() {
            return None;
        }
        let (block, packed, nbits) = (to_u64(self.block), to_u64(self.packed), u32::from(self.nbits));
        let size = if nbits < 8 { block * u64::from(nbits) / 8 } else { block };
        let inverse = Inverse::Bitpack(inverse::Bitpack { size, nbits, block, packed });
        Some(Derivation { inverse, input: Arc::clone(&self.input) })
    }
}

trait Widen: Element + From<u8> {
    /// The element in `bytes`, zero-extended; 1 to `SIZE` bytes.
    fn widen(bytes: &[u8]) -> Self;
    /// The element for a packed number.
    fn scaled(self, scale: Scale) -> Self;
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

            #[inline(always)]
            fn scaled(self, scale: Scale) -> Self {
                self.wrapping_shl(scale.shift).wrapping_add(scale.base as Self)
            }
        }
    )*};
}

widen!(u8 u16 u32);

/// Unpacks into `out`; its last block may be partial.
fn unpack<T: Widen>(nbits: u8, scale: Option<Scale>, packed: &[u8], out: &mut [u8]) {
    zero_extended::<T>(nbits, packed, out);
    if let Some(scale) = scale {
        for own in out.chunks_exact_mut(T::SIZE) {
            T::get(own).scaled(scale).put(own);
        }
    }
}

fn zero_extended<T: Widen>(nbits: u8, packed: &[u8], out: &mut [u8]) {
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
    use fzm_writer::{Dtype, field};

    use super::super::testing::{
        Random, inverse, inverse_error, parse_error, round_trip, unknown_error, windows_agree,
    };

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

    fn scaled(ty: u8, nbits: u8, n: u64, shift: u8, base: u32) -> Vec<u8> {
        [&config(ty, nbits, n)[..], &[shift], &base.to_le_bytes()].concat()
    }

    #[test]
    fn a_shift_and_a_base_are_undone_modulo_the_width() {
        for (config, packed, want) in [
            (scaled(0, 4, 3, 1, 100), &[0xF2, 0x08][..], &[104, 130, 116][..]),
            (scaled(0, 8, 2, 0, 200), &[55, 56], &[255, 0]),
            (scaled(1, 1, 2, 15, 1), &[0b10], &[1, 0, 1, 0x80]),
            (scaled(2, 8, 1, 28, 1 << 31), &[0x1F], &[0, 0, 0, 0x70]),
            (scaled(2, 2, 4, 0, 0), &[0b1101_1000], &[0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]),
        ] {
            assert_eq!(inverse(7, &config, &[packed]).unwrap(), want, "{config:?}");
        }
        windows_agree(7, &scaled(1, 4, 9_999, 3, 7), &[&Random(1).bytes(5000)]);
    }

    #[test]
    fn every_base_and_shift_decodes_as_specified() {
        for (text, dtype) in [
            ("bitpack:bits=4,shift=2,base=9", Dtype::U8),
            ("bitpack:bits=8,base=65530", Dtype::U16),
            ("bitpack:bits=16,shift=15,base=4000000000", Dtype::U32),
            ("bitpack:adaptive=1", Dtype::U32),
            ("bitpack:config=15,bits=8", Dtype::U8),
        ] {
            round_trip(text, dtype, &[5003], &field::smooth(dtype, &[5003], 3.0, 6));
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
        assert_eq!(unknown_error(7, &config(3, 1, 0)), "element type uint64 (data_type, at byte 0x100)");
        for (nbits, ty, most) in [(0, 0, 8), (3, 0, 8), (16, 0, 8), (32, 1, 16), (64, 2, 32)] {
            let want = format!("{nbits} is not a power of two up to {most} (nbits, at byte 0x101)");
            assert_eq!(parse_error(7, &config(ty, nbits, 0)), want);
        }
        for len in [3, 9, 11, 14, 16] {
            let want = format!("a configuration of {len} bytes (config_size, at byte 0x100)");
            assert_eq!(unknown_error(7, &vec![0; len]), want);
        }
        assert_eq!(parse_error(7, &scaled(0, 1, 0, 8, 0)), "a shift of 8 bits of 8 (shift, at byte 0x10a)");
        assert_eq!(parse_error(7, &scaled(1, 1, 0, 15, 65536)), "65536 does not fit uint16 (base, at byte 0x10b)");
        assert_eq!(inverse_error(7, &config(0, 4, 5), &[&[0, 0]]), "needs 3 bytes, 2 left (num_elements)");
        assert_eq!(
            inverse_error(7, &config(0, 8, u64::MAX), &[&[0]]),
            "needs 18446744073709551615 bytes, 1 left (num_elements)"
        );
        let e = inverse_error(7, &config(0, 1, 0), &[&[], &[]]);
        assert!(e.starts_with("a stage with 1 inputs and 2 outputs, not 1 and 1, is unknown"), "{e}");
    }
}
