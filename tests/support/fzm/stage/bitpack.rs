//! Bitpack (section 5.6): the low bits of every element.

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
    bits: usize,
}

impl Bitpack {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let dtype = p.dtype("t", if input == Dtype::Opaque { Dtype::U8 } else { input.unsigned() })?;
        let bits = p.take("bits", 8 * dtype.size())?;
        if !matches!(dtype, Dtype::U8 | Dtype::U16 | Dtype::U32) {
            return Err(format!("does not know {}", dtype.name()));
        }
        if !bits.is_power_of_two() || bits > 8 * dtype.size() {
            return Err(format!("bits={bits}: must be a power of two within the element"));
        }
        Ok(Self { dtype, bits })
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
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
        let mut out = vec![0; (n * self.bits).div_ceil(8)];
        // A unit is the fewest bytes that hold whole elements.
        let (unit, elements) = if self.bits < 8 { (1, 8 / self.bits) } else { (self.bits / 8, 1) };
        out.par_chunks_mut(unit << 16).zip(input.par_chunks((elements * size) << 16)).for_each(|(out, input)| {
            for (out, input) in out.chunks_mut(unit).zip(input.chunks(elements * size)) {
                let packed = input
                    .chunks_exact(size)
                    .enumerate()
                    .fold(0, |word, (k, e)| word | ((load(e, size) & self.mask()) << (k * self.bits)));
                store(out, unit, packed);
            }
        });
        let config = Record::default().u8(self.dtype.code()).u8(self.bits as u8).u64(n as u64);
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        let size = self.dtype.size();
        let input = whole(input, size);
        if self.bits == 8 * size {
            return lossless(input, ports);
        }
        lossless(map(input, size, |v| v & self.mask()), ports)
    }
}
