//! Bitpack (section 5.6): the low bits of every element; with `config=15`, of what is left after a base and a shift.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, map, store, whole};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct Bitpack {
    dtype: Dtype,
    packing: Packing,
    /// Whether the base, the shift and the bits follow from the data.
    adaptive: bool,
    config: usize,
}

/// `bits` bits of `(x - base) >> shift`.
#[derive(Debug, Clone, Copy)]
struct Packing {
    bits: usize,
    shift: u32,
    base: u64,
}

impl Bitpack {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let dtype = p.dtype("t", if input == Dtype::Opaque { Dtype::U8 } else { input.unsigned() })?;
        let bits = p.take("bits", 8 * dtype.size())?;
        let (shift, base, adaptive) = (p.take("shift", 0)?, p.take("base", 0)?, p.flag("adaptive")?);
        let config = p.one_of("config", if adaptive || shift > 0 || base > 0 { &[15] } else { &[10, 15] })?;
        if !matches!(dtype, Dtype::U8 | Dtype::U16 | Dtype::U32) {
            return Err(format!("does not know {}", dtype.name()));
        }
        if !bits.is_power_of_two() || bits > 8 * dtype.size() {
            return Err(format!("bits={bits}: must be a power of two within the element"));
        }
        if shift as usize >= 8 * dtype.size() || base > dtype_mask(dtype) {
            return Err(format!("shift={shift}, base={base}: must be within the element"));
        }
        Ok(Self { dtype, packing: Packing { bits, shift, base }, adaptive, config })
    }

    fn packing_of(&self, input: &[u8]) -> Packing {
        let size = self.dtype.size();
        let numbers = || input.chunks_exact(size).map(|e| load(e, size));
        let Some(base) = numbers().min().filter(|_| self.adaptive) else { return self.packing };
        let all = numbers().fold(0, |all, x| all | (x - base));
        let shift = if all == 0 { 0 } else { all.trailing_zeros() };
        let most = numbers().map(|x| (x - base) >> shift).max().unwrap_or(0);
        Packing { bits: (64 - most.leading_zeros()).max(1).next_power_of_two() as usize, shift, base }
    }
}

fn dtype_mask(dtype: Dtype) -> u64 {
    u64::MAX >> (64 - 8 * dtype.size())
}

impl Packing {
    fn pack(self, x: u64, dtype: Dtype) -> u64 {
        (x.wrapping_sub(self.base) & dtype_mask(dtype)) >> self.shift & (u64::MAX >> (64 - self.bits))
    }

    fn unpack(self, v: u64) -> u64 {
        (v << self.shift).wrapping_add(self.base)
    }
}

impl Stage for Bitpack {
    fn kind(&self) -> u16 {
        7
    }

    fn name(&self) -> &'static str {
        "bitpack"
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let input = whole(input, size);
        let n = input.len() / size;
        let packing @ Packing { bits, shift, base } = self.packing_of(input);
        let mut out = vec![0; (n * bits).div_ceil(8)];
        // A unit is the fewest bytes that hold whole elements.
        let (unit, elements) = if bits < 8 { (1, 8 / bits) } else { (bits / 8, 1) };
        out.par_chunks_mut(unit << 16).zip(input.par_chunks((elements * size) << 16)).for_each(|(out, input)| {
            for (out, input) in out.chunks_mut(unit).zip(input.chunks(elements * size)) {
                let packed = input
                    .chunks_exact(size)
                    .enumerate()
                    .fold(0, |word, (k, e)| word | (packing.pack(load(e, size), self.dtype) << (k * bits)));
                store(out, unit, packed);
            }
        });
        let mut config = Record::default().u8(self.dtype.code()).u8(bits as u8).u64(n as u64);
        if self.config == 15 {
            config = config.u8(shift as u8).u32(base as u32);
        }
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        let size = self.dtype.size();
        let input = whole(input, size);
        if self.adaptive || self.packing.bits == 8 * size && self.packing.shift == 0 {
            return lossless(input, ports);
        }
        lossless(map(input, size, |v| self.packing.unpack(self.packing.pack(v, self.dtype))), ports)
    }
}
