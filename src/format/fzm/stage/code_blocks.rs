//! The codes that a quantizing stage reads: as they are, or as the bit planes of the bitshuffle stage below it.
//!
//! The planes of a block fit the first-level cache. Codes are made from them tile by tile, where they are used, so that
//! neither the codes of a block nor its elements pass through the second-level cache between two stages.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of kernels")]

use std::sync::Arc;

use super::scratch::ScratchBuffer;
use super::types::Unsigned;
use crate::bytes::{to_u64, to_usize};
use crate::codec::bit_planes;
use crate::codec::simd_dispatch::SimdOps;
use crate::error::{Error, Result};
use crate::format::fzm::inverse::Inverse;
use crate::format::fzm::stream::{ByteStream, Derivation};

/// Codes that are made from planes at a time.
pub(super) const TILE: usize = 1024;
/// The planes of larger blocks are not read together.
const LARGEST: u64 = 32 << 10;

/// A stream of codes.
pub(super) struct CodeBlocks {
    codes: Arc<dyn ByteStream>,
    /// Bytes of a code.
    size: u64,
    planes: Option<Planes>,
}

/// The input of the bitshuffle stage that the codes come from.
struct Planes {
    input: Arc<dyn ByteStream>,
    /// Bytes of a block, a multiple of [`TILE`] codes.
    block: u64,
    /// Total bytes of all full blocks.
    full: u64,
}

/// Some codes in order.
#[derive(Clone, Copy)]
pub(super) enum Codes<'a> {
    /// The codes.
    Plain(&'a [u8]),
    /// The planes of a multiple of [`TILE`] codes, the highest plane first.
    Planes(&'a [u8]),
}

/// An error if there are not the codes that [`CodeBlocks::each`] has announced.
pub(super) fn missing_codes() -> Error {
    Error::corrupt("there are not as many codes as elements", "codes")
}

impl CodeBlocks {
    /// The codes of `size` bytes in `codes`.
    pub(super) fn new(codes: Arc<dyn ByteStream>, size: usize) -> Self {
        let size = to_u64(size);
        let planes = match Arc::clone(&codes).derivation() {
            Some(Derivation { inverse: Inverse::Bitshuffle(shuffle), input })
                if shuffle.width == size && shuffle.block <= LARGEST =>
            {
                Some(Planes { input, block: shuffle.block, full: shuffle.full })
            }
            _ => None,
        };
        Self { codes, size, planes }
    }

    /// The stream itself.
    pub(super) fn stream(&self) -> &Arc<dyn ByteStream> {
        &self.codes
    }

    /// Reads the codes of `count` elements from element `first`.
    pub(super) fn read(&self, first: u64, count: u64) -> Result<ScratchBuffer> {
        let mut codes = ScratchBuffer::new(to_usize(count * self.size, "codes")?)?;
        self.codes.read(first * self.size, &mut codes)?;
        Ok(codes)
    }

    /// Calls `take` with the codes of `count` elements from element `first`, in order: with the number of codes so far,
    /// the number of these, and the codes.
    pub(super) fn each(
        &self,
        first: u64,
        count: u64,
        mut take: impl FnMut(usize, usize, Codes) -> Result<()>,
    ) -> Result<()> {
        let (mut at, end) = (first * self.size, (first + count) * self.size);
        while at < end {
            let done = to_usize(at / self.size - first, "codes")?;
            let mut n = end - at;
            if let Some(Planes { input, block, full }) = &self.planes {
                n = n.min(block - at % block);
                if n == *block && at + n <= *full {
                    let mut planes = ScratchBuffer::new(to_usize(n, "block_size")?)?;
                    input.read(at, &mut planes)?;
                    take(done, planes.len() / self.size as usize, Codes::Planes(&planes))?;
                    at += n;
                    continue;
                }
            }
            let codes = self.read(at / self.size, n / self.size)?;
            take(done, codes.len() / self.size as usize, Codes::Plain(&codes))?;
            at += n;
        }
        Ok(())
    }
}

impl<'a> Codes<'a> {
    /// The `count` codes of tile `tile`, made in `bytes` if necessary, which has space for a tile. `None` if there are
    /// more or fewer.
    #[inline(always)]
    pub(super) fn tile<'b, C: Unsigned>(
        self,
        vectors: impl SimdOps,
        tile: usize,
        count: usize,
        bytes: &'b mut [u8],
    ) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let size = TILE * C::SIZE;
        let codes = match self {
            Self::Plain(codes) => codes.chunks(size).nth(tile)?,
            Self::Planes(planes) => {
                let (from, out) = (tile * (TILE / 8), bytes.get_mut(..size).unwrap_or_default());
                let is_complete = match C::SIZE {
                    1 => bit_planes::elements::<8>(vectors, planes, from, out),
                    2 => bit_planes::elements::<16>(vectors, planes, from, out),
                    4 => bit_planes::elements::<32>(vectors, planes, from, out),
                    _ => bit_planes::elements::<64>(vectors, planes, from, out),
                };
                is_complete.then_some(&*out)?
            }
        };
        (codes.len() == count * C::SIZE).then_some(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::simd_dispatch::Portable;

    #[test]
    fn tiles_with_more_or_fewer_codes_are_none() {
        const LEN: usize = 2 * TILE;
        let zeros = [0; 2 * LEN];
        for (codes, tile, count, is_complete) in [
            (Codes::Plain(&zeros), 1, TILE, true),
            (Codes::Plain(&zeros[..LEN + 6]), 1, 3, true),
            (Codes::Plain(&zeros[..LEN + 6]), 1, 4, false),
            (Codes::Plain(&zeros[..LEN]), 0, TILE - 1, false),
            (Codes::Plain(&zeros[..LEN]), 1, 1, false),
            (Codes::Planes(&zeros), 1, TILE, true),
            (Codes::Planes(&zeros[..LEN]), 0, TILE, true),
            (Codes::Planes(&zeros[..LEN]), 0, TILE - 1, false),
            (Codes::Planes(&zeros[..LEN]), 1, TILE, false),
            (Codes::Planes(&zeros[..LEN - 16]), 0, TILE, false),
            (Codes::Planes(&[]), 0, TILE, false),
        ] {
            let mut bytes = [0xAA; LEN];
            let found = codes.tile::<u16>(Portable, tile, count, &mut bytes);
            assert_eq!(found.map(<[u8]>::len), is_complete.then_some(2 * count), "tile {tile} of {count}");
        }
    }
}
