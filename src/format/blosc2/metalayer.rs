//! Metalayer sections: names, and the location of each value.
//!
//! Reference: sections 2 (from byte 57 on) and 4 (from byte 02 on): header and trailer have the same layout.
//! Checked: the map and every value are inside their part of the frame.
//! Limits: at most 16 metalayers are read from a header and 8192 from a trailer (about 300 KiB); values are not read.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use rmp::Marker;

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::source::Source;

use super::msgpack;

/// A metalayer: its name and the location of its value.
#[derive(Debug, Clone)]
pub(super) struct Metalayer {
    /// Arbitrary bytes, at most 31.
    pub(super) name: Vec<u8>,
    pub(super) at: FileOffset,
    pub(super) len: u64,
}

/// The part of a frame that contains a metalayer section.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetalayerSection {
    /// Base of the offsets of values.
    pub(super) start: FileOffset,
    /// Size of the part.
    pub(super) len: u64,
    /// Offset of the section in the part.
    pub(super) section: u64,
    /// Maximum number of metalayers.
    pub(super) max_count: u16,
}

/// Maximum size of a map entry: a name and an offset, each with its marker.
const ENTRY: u64 = 1 + 31 + 5;
/// Bytes before the entries, and after them.
const AROUND: u64 = 7 + 3;

impl MetalayerSection {
    /// Reads the map of the section and locates each value.
    pub(super) fn read(self, source: &Source) -> Result<Vec<Metalayer>> {
        let max_len = u64::from(self.max_count).saturating_mul(ENTRY).saturating_add(AROUND);
        let at = self.start.plus(self.section);
        let bytes = source.get(at, self.len.saturating_sub(self.section).min(max_len), "metalayers")?;
        let mut cur = Cursor::new(&bytes, at);
        msgpack::marker(&mut cur, Marker::FixArray(3), "metalayers")?;
        // The size of the map is redundant.
        msgpack::u16(&mut cur, "metalayer index size")?;
        msgpack::marker(&mut cur, Marker::Map16, "metalayer map")?;
        let count_at = cur.at();
        let count = cur.u16_be("number of metalayers")?;
        if count > self.max_count {
            let why = format!("must be at most {}, is {count}", self.max_count);
            return Err(Error::corrupt(why, "number of metalayers").at(count_at));
        }
        let mut metalayers = Vec::new();
        for _ in 0..count {
            let name_at = cur.at();
            let byte = cur.u8("metalayer name")?;
            let Marker::FixStr(len) = Marker::from_u8(byte) else {
                let why = format!("must begin with 0xa0 to 0xbf, begins with {byte:#04x}");
                return Err(Error::corrupt(why, "metalayer name").at(name_at));
            };
            let name = cur.take(len.into(), "metalayer name")?.to_vec();
            let offset_at = cur.at();
            let offset = msgpack::size(&mut cur, "metalayer offset")?;
            let (at, len) = self.value(source, offset.into()).map_err(|e| {
                let name = String::from_utf8_lossy(&name).into_owned();
                e.within(format_args!("metalayer {name:?}")).at(offset_at)
            })?;
            metalayers.push(Metalayer { name, at, len });
        }
        msgpack::marker(&mut cur, Marker::Array16, "metalayer values")?;
        let values_at = cur.at();
        let values = cur.u16_be("number of metalayer values")?;
        if values != count {
            let why = format!("{values} values for {count} names");
            return Err(Error::corrupt(why, "number of metalayer values").at(values_at));
        }
        Ok(metalayers)
    }

    /// Offset and size of the value at `offset`.
    fn value(self, source: &Source, offset: u64) -> Result<(FileOffset, u64)> {
        let room = self.len.saturating_sub(offset);
        if offset < self.section || room < 5 {
            return Err(Error::corrupt(format!("{offset} is outside the section"), "metalayer offset"));
        }
        let at = self.start.plus(offset);
        let mut head = [0; 5];
        source.read(at, &mut head, "metalayer value")?;
        let mut cur = Cursor::new(&head, at);
        msgpack::marker(&mut cur, Marker::Bin32, "metalayer value")?;
        let len_at = cur.at();
        let len = u64::from(cur.u32_be("metalayer length")?);
        let head = to_u64(head.len());
        if len > room.saturating_sub(head) {
            let why = format!("{len} bytes, only {} left", room.saturating_sub(head));
            return Err(Error::corrupt(why, "metalayer length").at(len_at));
        }
        Ok((at.plus(head), len))
    }
}
