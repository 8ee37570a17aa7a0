//! The `b2nd` metalayer: shape, chunk shape, block shape and element type of an array.
//!
//! Reference: section 9. Its predecessor is named `caterva` and has no element type.
//! Checked: products fit in 64 bits; chunk size and chunk count match those of the frame.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use rmp::Marker;

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};
use crate::format::Dtype;
use crate::text;

use super::msgpack;

/// Maximum number of dimensions.
const DIMS: u8 = 16;

/// Geometry of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Items per dimension, slowest first.
    pub(super) shape: Vec<u64>,
    pub(super) chunk: Vec<u32>,
    pub(super) block: Vec<u32>,
    /// The element type as stored in the file.
    pub(super) dtype: Option<String>,
}

impl Geometry {
    /// Parses the value, at `at`, of a metalayer named `b2nd` or `caterva`.
    pub(super) fn parse(bytes: &[u8], at: FileOffset) -> Result<Self> {
        let mut cur = Cursor::new(bytes, at);
        let fields = cur.u8("b2nd fields")?;
        let fields = match Marker::from_u8(fields) {
            Marker::FixArray(fields @ 5..=7) => fields,
            Marker::FixArray(fields @ 8..) => {
                return Err(Error::unknown(format!("b2nd with {fields} fields"), "b2nd fields").at(at));
            }
            _ => return Err(Error::corrupt(format!("must be 0x95 to 0x97, is {fields:#04x}"), "b2nd fields").at(at)),
        };
        let version_at = cur.at();
        let version = cur.u8("b2nd version")?;
        if version != 0 {
            return Err(Error::unknown(format!("b2nd version {version}"), "b2nd version").at(version_at));
        }
        let ndim_at = cur.at();
        let ndim = cur.u8("ndim")?;
        if ndim > DIMS {
            return Err(Error::corrupt(format!("must be at most {DIMS}, is {ndim}"), "ndim").at(ndim_at));
        }
        let shape = list(&mut cur, ndim, "shape", msgpack::long_size)?;
        let chunk = list(&mut cur, ndim, "chunkshape", msgpack::size)?;
        let block = list(&mut cur, ndim, "blockshape", msgpack::size)?;
        let dtype = if fields > 5 { dtype(&mut cur)? } else { None };
        let array = Self { shape, chunk, block, dtype };
        for (i, &len) in array.shape.iter().enumerate() {
            for (sides, what) in [(&array.chunk, "chunkshape"), (&array.block, "blockshape")] {
                if len > 0 && sides.get(i) == Some(&0) {
                    return Err(Error::corrupt(format!("must not be 0 in dimension {i}"), what).at(at));
                }
            }
        }
        Ok(array)
    }

    /// Number of items in the array; `None` if it exceeds 64 bits.
    pub(super) fn items(&self) -> Option<u64> {
        product(self.shape.iter().copied())
    }

    /// Number of items in a chunk with sides padded to whole blocks.
    fn chunk_items(&self) -> Option<u64> {
        let sides = self.chunk.iter().zip(&self.block);
        product(sides.map(|(&k, &b)| u64::from(k.div_ceil(b.max(1))).saturating_mul(b.into())))
    }

    /// Number of chunks that the shape needs.
    fn chunks(&self) -> Option<u64> {
        product(self.shape.iter().zip(&self.chunk).map(|(&s, &k)| s.div_ceil(u64::from(k.max(1)))))
    }

    /// Checks the geometry against the frame: item size, chunk size, number of chunks.
    pub(super) fn check(&self, typesize: u32, chunksize: u64, count: u64, at: FileOffset) -> Result<()> {
        let fits = |n: Option<u64>| n.and_then(|n| n.checked_mul(typesize.into()));
        let extended = product(
            self.shape.iter().zip(&self.chunk).map(|(&s, &k)| s.div_ceil(u64::from(k.max(1))).saturating_mul(k.into())),
        );
        if fits(self.items()).is_none() || fits(extended).is_none() {
            return Err(Error::corrupt(format!("{} exceeds 64 bits", text::shape(&self.shape)), "shape").at(at));
        }
        if self.items() == Some(0) {
            return Ok(());
        }
        if fits(self.chunk_items()) != Some(chunksize) {
            let why = format!(
                "chunks of {} in blocks of {} do not have the chunk size of the frame, {chunksize} bytes",
                text::shape(&self.chunk),
                text::shape(&self.block)
            );
            return Err(Error::corrupt(why, "chunkshape").at(at));
        }
        if self.chunks() != Some(count) {
            let why = format!("{} is not {count} chunks of {}", text::shape(&self.shape), text::shape(&self.chunk));
            return Err(Error::corrupt(why, "shape").at(at));
        }
        Ok(())
    }

    /// The element type for a `.npy` header; opaque items if the stored type is missing or has another size.
    pub(super) fn descr(&self, typesize: u32) -> Dtype {
        let named = self.dtype.as_deref().and_then(Dtype::parse);
        named.filter(|d| d.itemsize == u64::from(typesize)).unwrap_or_else(|| Dtype::opaque(typesize.into()))
    }
}

fn product(mut sides: impl Iterator<Item = u64>) -> Option<u64> {
    sides.try_fold(1_u64, u64::checked_mul)
}

/// Parses a list of `n` integers. Its marker is a single byte even for 16 items, which is not valid `MessagePack`.
fn list<T>(
    cur: &mut Cursor<'_>,
    n: u8,
    what: &'static str,
    item: fn(&mut Cursor<'_>, &'static str) -> Result<T>,
) -> Result<Vec<T>> {
    let at = cur.at();
    let marker = cur.u8(what)?;
    if marker != n.saturating_add(0x90) {
        return Err(Error::corrupt(format!("must be a list of {n}, begins with {marker:#04x}"), what).at(at));
    }
    (0..n).map(|_| item(cur, what)).collect()
}

/// Parses the element type: its format byte, which early files omit, and its name; `None` if the format is unknown.
fn dtype(cur: &mut Cursor<'_>) -> Result<Option<String>> {
    let at = cur.at();
    let mut marker = cur.u8("dtype")?;
    match Marker::from_u8(marker) {
        Marker::FixPos(0) => marker = cur.u8("dtype")?,
        Marker::FixPos(_) => return Ok(None),
        _ => {}
    }
    if Marker::from_u8(marker) != Marker::Str32 {
        return Err(Error::corrupt(format!("must be a string, is {marker:#04x}"), "dtype").at(at));
    }
    let len = cur.u32_be("dtype")?;
    let bytes = cur.take(usize::try_from(len).unwrap_or(usize::MAX), "dtype")?;
    Ok(Some(String::from_utf8_lossy(bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    /// The worked example of the reference: 2 x 3 in chunks of 2 x 2 and blocks of 1 x 2, `<i2`.
    fn example() -> Vec<u8> {
        let mut b = vec![0x97, 0, 2, 0x92];
        for n in [2_i64, 3] {
            b.push(0xd3);
            b.extend(n.to_be_bytes());
        }
        for list in [[2_i32, 2], [1, 2]] {
            b.push(0x92);
            for n in list {
                b.push(0xd2);
                b.extend(n.to_be_bytes());
            }
        }
        b.extend([0, 0xdb, 0, 0, 0, 3, b'<', b'i', b'2']);
        b
    }

    #[test]
    fn the_worked_example_of_the_reference() {
        let array = Geometry::parse(&example(), FileOffset(0)).unwrap();
        assert_eq!((&*array.shape, &*array.chunk, &*array.block), (&[2, 3][..], &[2, 2][..], &[1, 2][..]));
        assert_eq!(array.descr(2).descr, "'<i2'");
        assert_eq!(array.descr(4).descr, "'|V4'");
        array.check(2, 8, 2, FileOffset(0)).unwrap();
        assert!(array.check(2, 8, 3, FileOffset(0)).is_err());
        assert!(array.check(2, 16, 2, FileOffset(0)).is_err());
        for len in 0..example().len() {
            assert!(Geometry::parse(&example()[..len], FileOffset(0)).is_err(), "{len}");
        }
    }

    #[test]
    fn early_versions_are_read() {
        let mut caterva = example();
        caterva[0] = 0x95;
        caterva.truncate(caterva.len() - 9);
        assert_eq!(Geometry::parse(&caterva, FileOffset(0)).unwrap().dtype, None);
        let mut early = example();
        early[0] = 0x96;
        early.remove(early.len() - 9);
        assert_eq!(Geometry::parse(&early, FileOffset(0)).unwrap().dtype.as_deref(), Some("<i2"));
    }

    #[test]
    fn every_invalid_field_is_reported_with_its_offset() {
        let rows: &[(usize, u8, &str)] = &[
            (0, 0x94, "must be 0x95 to 0x97, is 0x94 (b2nd fields, at byte 0x40)"),
            (2, 17, "must be at most 16, is 17 (ndim, at byte 0x42)"),
            (3, 0x93, "must be a list of 2, begins with 0x93 (shape, at byte 0x43)"),
            (4, 0xc0, "must begin with 0xd3, begins with 0xc0 (shape, at byte 0x44)"),
            (5, 0x80, "must not be negative, is -9223372036854775806 (shape, at byte 0x44)"),
            (27, 0, "must not be 0 in dimension 0 (chunkshape, at byte 0x40)"),
            (43, 0, "must not be 0 in dimension 1 (blockshape, at byte 0x40)"),
            (45, 0xda, "must be a string, is 0xda (dtype, at byte 0x6c)"),
            (46, 1, "needs 16777219 bytes, 3 left (dtype, at byte 0x72)"),
        ];
        for &(i, byte, want) in rows {
            let mut bytes = example();
            bytes[i] = byte;
            assert_eq!(Geometry::parse(&bytes, FileOffset(0x40)).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn what_a_later_library_added_is_unknown() {
        for (i, byte, part) in [(0, 0x98, "b2nd with 8 fields is unknown to "), (1, 1, "b2nd version 1 is unknown to ")]
        {
            let mut bytes = example();
            bytes[i] = byte;
            let error = Geometry::parse(&bytes, FileOffset(0x40)).unwrap_err();
            assert!(error.is_unknown() && error.to_string().starts_with(part), "{error}");
        }
        // An element type of another format than NumPy's: the items are opaque.
        let mut bytes = example();
        bytes[44] = 1;
        assert_eq!(Geometry::parse(&bytes, FileOffset(0)).unwrap().descr(2).descr, "'|V2'");
    }
}
