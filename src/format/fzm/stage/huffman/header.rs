//! The header of a PHF stream: counts, and the offsets of its sections.
//!
//! Checked: the counts against the configuration, the sections against the stream.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::{Huffman, book};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};

/// Bytes of the header that are used; 64 unused bytes follow.
pub(super) const HEADER: usize = 64;

/// The parts of the header needed for decoding.
pub(super) struct HuffmanHeader {
    pub(super) bklen: u64,
    pub(super) sublen: u64,
    total_nbit: u64,
    /// Offsets of the sections.
    pub(super) book: u64,
    pub(super) par_nbit: u64,
    pub(super) par_entry: u64,
    pub(super) cells: Range<u64>,
}

impl HuffmanHeader {
    /// Whether the alphabet has one symbol, with a code of no bits. The partition tables must agree, see
    /// [`Symbols::no_bits`](super::Symbols::no_bits).
    pub(super) fn is_single(&self) -> bool {
        self.total_nbit == 0 && self.cells.is_empty()
    }

    pub(super) fn parse(bytes: &[u8; HEADER], config: &Huffman, len: u64) -> Result<Self> {
        // The header is complete, so these reads cannot fail.
        let mut cur = Cursor::new(bytes, FileOffset(0));
        let bklen = cur.u16_le("bklen")?;
        cur.take(2, "PHF header")?;
        let (sublen, pardeg) = (cur.u32_le("sublen")?, cur.u32_le("pardeg")?);
        cur.take(4, "PHF header")?;
        let (count, total_nbit) = (cur.u64_le("original_len")?, cur.u64_le("total_nbit")?);
        let total_ncell = cur.u64_le("total_ncell")?;
        let mut entry = [0; 6];
        for own in &mut entry {
            *own = u64::from(cur.u32_le("section offsets")?);
        }
        if bklen != config.bklen {
            return Err(Error::corrupt(
                format!("{bklen} in the stream, {} in the configuration", config.bklen),
                "bklen",
            ));
        }
        if count != config.num_elements {
            let why = format!("{count} in the stream, {} in the configuration", config.num_elements);
            return Err(Error::corrupt(why, "original_len"));
        }
        if i32::try_from(sublen).is_err() || sublen == 0 {
            return Err(Error::corrupt(format!("{} symbols per partition", sublen as i32), "sublen"));
        }
        let (sublen, pardeg, bklen) = (u64::from(sublen), u64::from(pardeg), u64::from(bklen));
        if pardeg != count.div_ceil(sublen) {
            let why = format!("{pardeg} partitions, but {count} symbols need {}", count.div_ceil(sublen));
            return Err(Error::corrupt(why, "pardeg"));
        }
        let [_, book, par_nbit, par_entry, cells, end] = entry;
        // Offsets and counts are below 2^32, except the number of cells, which is checked by division.
        let fits = book + to_u64(book::TABLES) + bklen * to_u64(config.ty.size()) <= par_nbit
            && par_nbit + 4 * pardeg <= par_entry
            && par_entry + 4 * pardeg <= cells
            && end.checked_sub(cells).is_some_and(|bytes| total_ncell <= bytes / 4)
            && end <= len;
        if !fits {
            return Err(Error::corrupt("sections overlap or are outside the stream", "section offsets"));
        }
        let cells = cells..cells + 4 * total_ncell;
        Ok(Self { bklen, sublen, total_nbit, book, par_nbit, par_entry, cells })
    }
}
