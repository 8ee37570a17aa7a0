//! The peaks, sorted by frame and row.
//!
//! A record has its numbers in big-endian order, so that records sort like their bytes.
#![forbid(unsafe_code)]

use super::{FieldShape, Row};
use crate::account::{Account, decode_budget};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stream::ByteStream;

/// Bytes of a stored peak: z in 4, x and y in 2.
pub(super) const STORED: u64 = 8;
/// Bytes of a record: z (4), y (2), the number of the peak (4), x (2).
const RECORD: usize = 12;
/// Peaks that are read at a time.
const BATCH: u64 = 1 << 13;
/// Peaks that are looked up at a time.
const LOOKED_UP: u64 = 64;

/// All peaks.
pub(super) struct Peaks {
    records: ArrayStore,
    count: u64,
}

/// The line of a box that covers a part of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoxPart {
    pub(super) index: BoxLine,
    pub(super) row: Row,
    /// The column of the peak.
    pub(super) x: u64,
}

/// A line of a box: the number of the peak, and of the line in its box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BoxLine {
    pub(super) number: u64,
    pub(super) line: u64,
}

/// A decoded record.
struct Peak {
    z: u64,
    y: u64,
    number: u64,
    x: u64,
}

impl Peak {
    fn get(record: &[u8; RECORD]) -> Self {
        let &[z0, z1, z2, z3, y0, y1, n0, n1, n2, n3, x0, x1] = record;
        Self {
            z: u32::from_be_bytes([z0, z1, z2, z3]).into(),
            y: u16::from_be_bytes([y0, y1]).into(),
            number: u32::from_be_bytes([n0, n1, n2, n3]).into(),
            x: u16::from_be_bytes([x0, x1]).into(),
        }
    }

    fn record(&self) -> [u8; RECORD] {
        let ([z0, z1, z2, z3], [y0, y1]) = ((self.z as u32).to_be_bytes(), (self.y as u16).to_be_bytes());
        let ([n0, n1, n2, n3], [x0, x1]) = ((self.number as u32).to_be_bytes(), (self.x as u16).to_be_bytes());
        [z0, z1, z2, z3, y0, y1, n0, n1, n2, n3, x0, x1]
    }
}

impl Peaks {
    /// Reads and sorts the peaks; a frame beyond the last one is the last one.
    pub(super) fn sort(stored: &dyn ByteStream, shape: &FieldShape, account: &Account) -> Result<Self> {
        let (count, what) = (shape.peaks, "peaks");
        let mut records = ArrayStore::new(count * to_u64(RECORD), account, what)?;
        let mut first = 0;
        while first < count {
            let n = BATCH.min(count - first);
            let mut batch = ScratchBuffer::new(to_usize(n * STORED, what)?)?;
            stored.read(first * STORED, &mut batch)?;
            let own = records.get_mut(first * to_u64(RECORD), to_usize(n, what)? * RECORD)?;
            let both = own.as_chunks_mut::<RECORD>().0.iter_mut().zip(batch.as_chunks::<8>().0);
            for (number, (own, &[z0, z1, z2, z3, x0, x1, y0, y1])) in (first..).zip(both) {
                let z = u64::from(u32::from_le_bytes([z0, z1, z2, z3])).min(shape.nz - 1);
                let [x, y] = [[x0, x1], [y0, y1]].map(|bytes| u16::from_le_bytes(bytes).into());
                *own = Peak { z, y, number, x }.record();
            }
            first += n;
        }
        let bytes = to_usize(records.len(), what)?;
        if count > 0 {
            records.get_mut(0, bytes)?.as_chunks_mut::<RECORD>().0.sort_unstable();
        }
        Ok(Self { records, count })
    }

    /// The lines of boxes that cover `rows`, in the order in which they are copied.
    pub(super) fn near(&self, rows: impl Iterator<Item = Row>, shape: &FieldShape) -> Result<Vec<BoxPart>> {
        let mut found = Vec::new();
        for row in rows {
            // Lines beyond the last row are copied to that row.
            let is_last = row.y + 1 == shape.ny;
            let mut at = self.place(row.z, row.y.saturating_sub(shape.half))?;
            'row: while at < self.count {
                let n = LOOKED_UP.min(self.count - at);
                let bytes = self.records.get(at * to_u64(RECORD), to_usize(n, "peaks")? * RECORD)?;
                for record in bytes.as_chunks::<RECORD>().0 {
                    let Peak { z, y, number, x } = Peak::get(record);
                    if z != row.z || y > row.y + shape.half && !is_last {
                        break 'row;
                    }
                    // One line counts: the exact one, or the last one in the last row.
                    let line = if is_last { 2 * shape.half } else { row.y + shape.half - y };
                    let reaches = x.saturating_sub(shape.half) < row.to && x + shape.half >= row.from;
                    if reaches || x + shape.half >= shape.nx && row.to == shape.nx {
                        // The charge bounds the length of the list.
                        decode_budget::charge(to_u64(size_of::<BoxPart>()))?;
                        found.push(BoxPart { index: BoxLine { number, line }, row, x });
                    }
                }
                at += n;
            }
        }
        found.sort_unstable_by_key(|found| (found.index, found.row.y));
        Ok(found)
    }

    /// The index of the first peak in frame `z` and row `y`, or after that.
    fn place(&self, z: u64, y: u64) -> Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let record = self.records.get(middle * to_u64(RECORD), RECORD)?.first_chunk();
            let peak = Peak::get(record.ok_or_else(|| Error::corrupt("a peak is missing", "peaks"))?);
            if (peak.z, peak.y) < (z, y) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
