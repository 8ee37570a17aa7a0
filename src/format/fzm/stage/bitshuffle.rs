//! Bitshuffle (type 17): blocks stored as bit planes, the most significant plane first.
//!
//! Reference: section 5.8. Small blocks are read whole; of larger blocks, only the range of each plane that a window
//! needs.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise, STEP};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::codec::bit_planes::Elements;
use crate::codec::simd_dispatch::run_widest;
use crate::error::{Error, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 17,
    name: "bitshuffle",
    family: Family::Shuffler,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Bitshuffle::parse(config)?)),
};

const LAYOUT: ConfigLayout =
    ConfigLayout { sizes: &[5], fields: &[Field::u32("block_size", 0), Field::u8("element_width", 4)] };

/// A stage.
struct Bitshuffle {
    config: Config,
    block_size: u32,
    element_width: u8,
}

impl Bitshuffle {
    fn parse(config: Config) -> Result<Self> {
        let (block_size, element_width) = (config.u32("block_size"), config.u8("element_width"));
        if !matches!(element_width, 1 | 2 | 4 | 8) {
            return Err(config.corrupt("element_width", format!("{element_width} is not 1, 2, 4 or 8")));
        }
        let granule = GRANULE * u32::from(element_width);
        if block_size == 0 || !block_size.is_multiple_of(granule) {
            let why = format!("{block_size} is not a positive multiple of {granule}");
            return Err(config.corrupt("block_size", why));
        }
        Ok(Self { config, block_size, element_width })
    }
}

impl Stage for Bitshuffle {
    fn input_type(&self, _input: usize) -> DataType {
        match self.element_width {
            1 => DataType::U8,
            2 => DataType::U16,
            4 => DataType::U32,
            _ => DataType::U64,
        }
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("width {}", self.element_width), format!("blocks of {} bytes", self.block_size)]
    }

    fn alignment(&self) -> u64 {
        self.block_size.into()
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let (len, block, width) = (input.len(), u64::from(self.block_size), u64::from(self.element_width));
        let windows = if block <= WHOLE {
            BlockWindows::new(len, block, input.unit())
        } else {
            // One granule from each plane; the input's unit unless it is too large.
            let granule = u64::from(GRANULE) * width;
            BlockWindows::new(len, granule, input.unit().saturating_mul(8 * width).min(8 * STEP))
        };
        Ok(vec![Arc::new(Unshuffled { input, block, width, full: len - len % block, windows })])
    }
}

/// The number of elements in a block is a multiple of this.
const GRANULE: u32 = 1024;

/// Larger blocks are read in parts.
const WHOLE: u64 = 8 * STEP;

struct Unshuffled {
    input: Arc<dyn ByteStream>,
    block: u64,
    width: u64,
    /// Total bytes of all full blocks; the rest is stored unchanged.
    full: u64,
    windows: BlockWindows,
}

impl Unshuffled {
    /// Fills `out` from offset `within` of the block at `block`.
    fn part(&self, block: u64, within: u64, out: &mut [u8]) -> Result<()> {
        let mut planes = ScratchBuffer::new(out.len())?;
        if to_u64(out.len()) == self.block {
            self.input.read(block, &mut planes)?;
        } else {
            let count = 8 * self.width;
            for (plane, bits) in (0..count).zip(planes.chunks_exact_mut(out.len() / to_usize(count, "planes")?)) {
                self.input.read(block + plane * (self.block / count) + within / count, bits)?;
            }
        }
        let is_complete = match self.width {
            1 => run_widest(Elements::<8> { planes: &planes, from: 0, out }),
            2 => run_widest(Elements::<16> { planes: &planes, from: 0, out }),
            4 => run_widest(Elements::<32> { planes: &planes, from: 0, out }),
            _ => run_widest(Elements::<64> { planes: &planes, from: 0, out }),
        };
        if is_complete { Ok(()) } else { Err(Error::corrupt("the planes do not fill the block", "block")) }
    }
}

impl Blockwise for Unshuffled {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            if at >= self.full {
                return self.input.read(at, rest);
            }
            let within = at % self.block;
            let n = rest.len().min(to_usize(self.block - within, "block_size")?);
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            self.part(at - within, within, head)?;
            (at, rest) = (at + to_u64(n), tail);
        }
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let inverse = inverse::Bitshuffle { block: self.block, width: self.width, full: self.full };
        Some(Derivation { inverse: Inverse::Bitshuffle(inverse), input: Arc::clone(&self.input) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, assert_windows, inverse, parse_error, stream, whole};

    fn config(block: u32, width: u8) -> Vec<u8> {
        [&block.to_le_bytes()[..], &[width]].concat()
    }

    /// The planes of `data`, computed bit by bit from section 5.8.
    fn shuffled(data: &[u8], block: usize, width: usize) -> Vec<u8> {
        let mut out = data.to_vec();
        for (data, out) in data.chunks_exact(block).zip(out.chunks_exact_mut(block)) {
            out.fill(0);
            let elements = block / width;
            for plane in 0..8 * width {
                let bit = 8 * width - 1 - plane;
                for e in 0..elements {
                    let value = data[e * width + bit / 8] >> (bit % 8) & 1;
                    let position = match width {
                        1 | 2 => e,
                        4 => e / 32 * 32 + 31 - e % 32,
                        _ => e / 64 * 64 + 63 - e % 64,
                    };
                    out[plane * elements / 8 + position / 8] |= value << (position % 8);
                }
            }
        }
        out
    }

    #[test]
    fn planes_come_back_as_elements_in_any_window() {
        for width in [1, 2, 4, 8] {
            for (block, len) in [(1024 * width, 3 * 1024 * width + 77), (16384, 70_000), (1 << 19, (1 << 20) + 5)] {
                let data = Random(width as u64).bytes(len);
                let stored = shuffled(&data, block, width);
                let stream = stream(17, &config(block as u32, width as u8), &[&stored]).unwrap();
                assert!(whole(&*stream).unwrap() == data, "{width} {block}");
                assert_windows(&*stream, &data);
            }
        }
    }

    #[test]
    fn bytes_after_the_last_full_block_are_copied() {
        assert_eq!(inverse(17, &config(16384, 4), &[&[1, 2, 3]]).unwrap(), [1, 2, 3]);
        assert!(inverse(17, &config(u32::MAX - 8191, 8), &[&[]]).unwrap().is_empty());
    }

    #[test]
    fn invalid_widths_and_blocks_are_refused() {
        assert_eq!(parse_error(17, &config(16384, 3)), "3 is not 1, 2, 4 or 8 (element_width, at byte 0x104)");
        let e = "1000 is not a positive multiple of 1024 (block_size, at byte 0x100)";
        assert_eq!(parse_error(17, &config(1000, 1)), e);
        assert_eq!(parse_error(17, &config(0, 8)), "0 is not a positive multiple of 8192 (block_size, at byte 0x100)");
    }
}
