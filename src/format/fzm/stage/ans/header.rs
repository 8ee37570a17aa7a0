//! The header of an ANS stream: sizes and weights.
#![forbid(unsafe_code)]

use super::{BITS, BLOCK};
use crate::bytes::to_u64;
use crate::codec::range_ans::{LANES, Slots};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::types::elements;
use crate::format::fzm::stream::ByteStream;
use crate::limits::Charge;

/// Bytes before the weights, and of the weights.
const FIXED: usize = 32;
const WEIGHTS: usize = 512;
/// The upper half of the first field.
const MAGIC: u32 = 0xD00D;
/// The lower half.
const VERSION: u32 = 1;

/// Where the parts of a stream start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// The number of blocks.
    pub(super) blocks: u64,
    pub(super) states: u64,
    pub(super) table: u64,
    pub(super) words: u64,
}

impl Places {
    /// The places in a stream of `size` bytes, which are less than 2^32.
    pub(super) fn new(size: u64) -> Self {
        let blocks = size.div_ceil(BLOCK);
        let states = to_u64(FIXED + WEIGHTS);
        let table = states + to_u64(4 * LANES) * blocks;
        // The words start at a multiple of 16 bytes.
        Self { blocks, states, table, words: table + 8 * blocks.next_multiple_of(2) }
    }
}

/// The fields of a header that decoding needs.
pub(super) struct AnsHeader {
    pub(super) slots: Slots,
    /// Words of all blocks, with the padding of each block.
    pub(super) words: u64,
    _charge: Charge,
}

impl AnsHeader {
    /// Reads the header of `input`, which decodes to `size` bytes and has space for the tables.
    pub(super) fn read(input: &dyn ByteStream, size: u64, places: &Places, cx: &Context) -> Result<Self> {
        let charge = cx.account.charge_list(to_u64(size_of::<Slots>()), "ans weights")?;
        let mut bytes = [0; FIXED + WEIGHTS];
        input.read(0, &mut bytes)?;
        let (fixed, weights) = bytes.split_at(FIXED);
        let mut fixed = elements::<u32>(fixed);
        let mut next = || fixed.next().unwrap_or(0);
        let (magic, blocks, stored, words, bits) = (next(), next(), next(), next(), next());
        if magic >> 16 != MAGIC {
            return Err(Error::corrupt(format!("{magic:#010x} is not the start of an ANS stream"), "ans magic"));
        }
        if magic & 0xFFFF != VERSION {
            return Err(Error::unsupported(format!("version {}", magic & 0xFFFF), "ans version"));
        }
        // The writer leaves the other bits undefined.
        if bits & 15 != u32::from(BITS) {
            return Err(Error::unsupported(format!("a table of {} bits", bits & 15), "ans probability bits"));
        }
        if u64::from(stored) != size {
            let why = format!("{stored} in the stream, {size} in the configuration");
            return Err(Error::corrupt(why, "ans decoded size"));
        }
        if u64::from(blocks) != places.blocks {
            let why = format!("{blocks} blocks, but {size} bytes need {}", places.blocks);
            return Err(Error::corrupt(why, "ans block count"));
        }
        let (words, need) = (u64::from(words), places.words + 2 * u64::from(words));
        if need > input.len() {
            return Err(Error::new(Kind::Truncated { need, have: input.len() }, "ans words"));
        }
        let slots = Slots::new(elements(weights))
            .ok_or_else(|| Error::corrupt("the weights do not add up to 1024", "ans weights"))?;
        Ok(Self { slots, words, _charge: charge })
    }
}
