//! The metalayer section: names, and where the value of each lies.
//!
//! Reference: sections 2 (from byte 57 on) and 4 (from byte 02 on): the same layout in header and trailer.
//! Checked: the map stays in its part of the frame, and so does each value.
//! Limits: the map is read, at most 64 KiB or so; values are not.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use rmp::Marker;

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::source::Source;

use super::msgpack;

/// A metalayer: its name and where its value lies.
#[derive(Debug, Clone)]
pub(super) struct Metalayer {
    /// Any bytes, at most 31.
    pub(super) name: Vec<u8>,
    pub(super) at: FileOffset,
    pub(super) len: u64,
}

/// A part of a frame that holds a metalayer section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Where offsets of values count from.
    pub(super) start: FileOffset,
    /// Bytes of the part.
    pub(super) len: u64,
    /// Where in the part the section begins.
    pub(super) section: u64,
    /// Most metalayers.
    pub(super) most: u16,
}

/// Longest entry of the map: a name with its marker, an offset with its marker.
const ENTRY: u64 = 1 + 31 + 5;
/// Bytes before the entries, and behind them.
const AROUND: u64 = 7 + 3;

impl Part {
    /// Reads the section's map and looks up each value.
    pub(super) fn read(self, source: &Source) -> Result<Vec<Metalayer>> {
        let most = u64::from(self.most).saturating_mul(ENTRY).saturating_add(AROUND);
        let at = self.start.plus(self.section);
        let bytes = source.get(at, self.len.saturating_sub(self.section).min(most), "metalayers")?;
        let mut cur = Cursor::new(&bytes, at);
        msgpack::marker(&mut cur, Marker::FixArray(3), "metalayers")?;
        // The size of the map says nothing that the map does not.
        msgpack::u16(&mut cur, "metalayer index size")?;
        msgpack::marker(&mut cur, Marker::Map16, "metalayer map")?;
        let count_at = cur.at();
        let count = cur.u16_be("number of metalayers")?;
        if count > self.most {
            let why = format!("{count}, at most {} can be", self.most);
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

    /// Where the bytes of the value at `offset` lie, and how many there are.
    fn value(self, source: &Source, offset: u64) -> Result<(FileOffset, u64)> {
        let room = self.len.saturating_sub(offset);
        if offset < self.section || room < 5 {
            return Err(Error::corrupt(format!("{offset} is outside"), "metalayer offset"));
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
            let why = format!("{len} bytes, {} are left", room.saturating_sub(head));
            return Err(Error::corrupt(why, "metalayer length").at(len_at));
        }
        Ok((at.plus(head), len))
    }
}
