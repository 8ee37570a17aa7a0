//! Bitshuffle (section 5.8): the bits of a block's elements, sorted by significance.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct Bitshuffle {
    block: usize,
    width: usize,
}

impl Bitshuffle {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let stage = Self { width: p.take("w", input.size())?, block: p.take("block", 16384)? };
        if !matches!(stage.width, 1 | 2 | 4 | 8) {
            return Err(format!("w={}: must be 1, 2, 4 or 8", stage.width));
        }
        if stage.block == 0 || !stage.block.is_multiple_of(1024 * stage.width) {
            return Err(format!("block={}: must be a multiple of {}", stage.block, 1024 * stage.width));
        }
        Ok(stage)
    }

    fn shuffle(&self, block: &[u8], out: &mut [u8]) {
        let w = self.width;
        let plane = block.len() / (8 * w);
        // Elements of one word of a plane; for wide elements the first one is its highest bit.
        let (lanes, reversed) = if w == 8 { (64, true) } else { (32, w == 4) };
        for (k, elements) in block.chunks_exact(lanes * w).enumerate() {
            let mut words = [0_u64; 64];
            for (e, element) in elements.chunks_exact(w).enumerate() {
                let value = load(element, w);
                let bit = if reversed { lanes - 1 - e } else { e };
                for (p, word) in words[..8 * w].iter_mut().enumerate() {
                    *word |= ((value >> (8 * w - 1 - p)) & 1) << bit;
                }
            }
            for (p, word) in words[..8 * w].iter().enumerate() {
                let at = p * plane + k * lanes / 8;
                out[at..at + lanes / 8].copy_from_slice(&word.to_le_bytes()[..lanes / 8]);
            }
        }
    }
}

impl Stage for Bitshuffle {
    fn kind(&self) -> u16 {
        17
    }

    fn name(&self) -> &'static str {
        "bitshuffle"
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn alignment(&self) -> usize {
        self.block
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let mut out = input.to_vec();
        out.par_chunks_exact_mut(self.block)
            .zip(input.par_chunks_exact(self.block))
            .for_each(|(out, block)| self.shuffle(block, out));
        Ok(Encoded::one(Record::default().u32(self.block as u32).u8(self.width as u8).0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(input, ports)
    }
}
