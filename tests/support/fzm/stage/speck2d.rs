//! SPECK2D: integers of a plane as a tree of rectangles with the highest bit in each, and the bits below.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct Speck2d {
    nx: usize,
    ny: usize,
}

/// Bits, the lowest of a byte first.
#[derive(Debug, Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn bytes(&self) -> Vec<u8> {
        self.0.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, &bit| sum << 1 | u8::from(bit))).collect()
    }
}

/// A plane while it is encoded.
struct Coder<'a> {
    codes: &'a [i32],
    nx: usize,
    /// Section A by level, and section B.
    levels: Vec<Bits>,
    values: Bits,
}

/// The position of the highest bit, -1 for 0.
fn highest(code: i32) -> i32 {
    31 - code.unsigned_abs().leading_zeros() as i32
}

impl Coder<'_> {
    /// Codes the rectangle `x, y, w, h`, whose parent's highest bit is `above`.
    fn node(&mut self, [x, y, w, h]: [usize; 4], level: usize, above: i32) {
        let pixels = (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y)));
        let onset = pixels.map(|(x, y)| highest(self.codes[y * self.nx + x])).max().unwrap_or(-1);
        if self.levels.len() == level {
            self.levels.push(Bits::default());
        }
        self.levels[level].0.extend((onset..above).map(|_| false).chain([true]));
        if onset < 0 {
            return;
        }
        if [w, h] == [1, 1] {
            let code = self.codes[y * self.nx + x];
            self.values.0.push(code < 0);
            self.values.0.extend((0..onset).map(|k| code.unsigned_abs() >> k & 1 == 1));
            return;
        }
        let (w2, h2) = (w / 2, h / 2);
        let (w1, h1) = (w - w2, h - h2);
        for child in [[x + w1, y + h1, w2, h2], [x, y + h1, w1, h2], [x + w1, y, w2, h1], [x, y, w1, h1]] {
            if child[2] > 0 && child[3] > 0 {
                self.node(child, level + 1, onset);
            }
        }
    }
}

impl Speck2d {
    pub(crate) fn new(p: &mut Params, shape: &[u32]) -> Result<Self> {
        match p.dims(shape)?.xyz.map(|n| n as usize) {
            [nx, ny, 1] if nx * ny > 0 => Ok(Self { nx, ny }),
            dims => Err(format!("codes a plane, not {dims:?}")),
        }
    }
}

impl Stage for Speck2d {
    fn kind(&self) -> u16 {
        40
    }

    fn name(&self) -> &'static str {
        "speck2d"
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let codes: Vec<i32> = input.chunks_exact(4).map(|code| load(code, 4) as u32 as i32).collect();
        let codes = codes.get(..self.nx * self.ny).ok_or("the shape has more elements than there are")?;
        let top = codes.iter().map(|&code| highest(code)).max().unwrap_or(-1);
        let mut coder = Coder { codes, nx: self.nx, levels: Vec::new(), values: Bits::default() };
        if top >= 0 {
            coder.node([0, 0, self.nx, self.ny], 0, top);
        }
        let mut bits = Bits(coder.levels.into_iter().flat_map(|level| level.0).collect());
        // Real writers do not initialise the bytes at 12.
        let config = Record::default()
            .u32(self.nx as u32)
            .u32(self.ny as u32)
            .u32(top as u32)
            .u32(0xA5A5_A5A5)
            .u64(bits.0.len() as u64);
        bits.0.extend(coder.values.0);
        Ok(Encoded::one(config.0, bits.bytes()))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(&input[..4 * self.nx * self.ny], ports)
    }
}
