//! Chunk headers: 16 bytes, or 32 with an explicit filter pipeline.
//!
//! Reference: sections 6.1 (fields), 6.2 (classification), 6.9 (Blosc1), 6.10 (lazy chunks).
//! Checked: every field against its range, and the size of the chunk against the space that it may take.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};

use super::registry::codec_name;
use super::special::{MAX_BLOCK, Special};

/// Size of the extended header.
pub(super) const EXTENDED: u64 = 32;
/// Size of the short header.
pub(super) const SHORT: u64 = 16;

/// A slot of the filter pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Filter {
    pub(super) id: u8,
    pub(super) meta: u8,
}

/// The six slots of a pipeline.
pub(super) type Slots = [Filter; 6];

impl Filter {
    /// The slots with the given ids and parameters.
    pub(super) fn slots(ids: [u8; 6], metas: [u8; 6]) -> Slots {
        let mut slots = Slots::default();
        for ((slot, id), meta) in slots.iter_mut().zip(ids).zip(metas) {
            *slot = Self { id, meta };
        }
        slots
    }
}

/// The body after the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// Nothing: the chunk is empty.
    Empty,
    Special(Special),
    /// The uncompressed bytes.
    Memcpyed,
    /// Blocks of `blocksize` bytes.
    Blocks,
    /// This many blocks of different sizes.
    VlBlocks {
        count: u32,
    },
    /// Something that a later library added. The sizes are known.
    Unknown(UnknownPart),
}

/// A part of a header without a known meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownPart {
    /// Bits of `blosc2_flags2`.
    Flags2(u8),
    /// Bits of `blosc2_flags`.
    Flags(u8),
    /// A special type.
    Special(u8),
}

impl UnknownPart {
    /// Bits without a known meaning in `blosc2_flags2` and `blosc2_flags`, and an unknown special type in the latter.
    fn of(flags2: u8, flags: u8, special: u8) -> Option<Self> {
        match (flags2 & !1, flags & 0x04, special) {
            (0, 0, 0..=4) => None,
            (0, 0, _) => Some(Self::Special(special)),
            (0, bits, _) => Some(Self::Flags(bits)),
            (bits, ..) => Some(Self::Flags2(bits)),
        }
    }

    /// The error of a chunk at `at`.
    pub(super) fn error(self, at: FileOffset) -> Error {
        let (part, field, skip) = match self {
            Self::Flags2(bits) => (format!("the chunk flag {bits:#04x}"), "blosc2_flags2", 0x1E),
            Self::Flags(bits) => (format!("the chunk flag {bits:#04x}"), "blosc2_flags", 0x1F),
            Self::Special(number) => (format!("the special type {number}"), "special type", 0x1F),
        };
        Error::unknown(part, field).at(at.plus(skip))
    }
}

/// A chunk header with consistent fields.
#[derive(Debug, Clone)]
pub(super) struct ChunkHeader {
    pub(super) version: u8,
    /// Size of the header.
    pub(super) len: u64,
    pub(super) kind: ChunkKind,
    /// Item size in bytes, 1 to 255; 1 if the items of the frame are wider.
    pub(super) typesize: u8,
    /// Decoded size of the chunk.
    pub(super) nbytes: u32,
    /// Decoded size of a block, at most `nbytes`; 0 for an empty chunk.
    pub(super) blocksize: u32,
    /// Stored size of the chunk, header included.
    pub(super) cbytes: u32,
    /// Blocks are not split into one stream per byte of an item.
    pub(super) unsplit: bool,
    pub(super) dictionary: bool,
    pub(super) instrumented: bool,
    pub(super) codec: Codec,
    pub(super) filters: Slots,
}

/// The codec as given in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Codec {
    /// Version of the format of the streams.
    pub(super) version: u8,
    /// The format number in the flags.
    pub(super) format: u8,
    /// The id and parameter of a codec that has no format number.
    pub(super) id: u8,
    pub(super) meta: u8,
}

/// The fields that only an extended header has; of a short one, what its flags say.
struct Extension {
    /// Size of the header.
    len: u64,
    codec: Codec,
    filters: Slots,
    flags2: u8,
    more: u8,
}

impl Extension {
    /// Reads the fields after the sizes.
    fn read(cur: &mut Cursor<'_>, version: u8, codec_version: u8, flags: u8) -> Result<Self> {
        let codec = Codec { version: codec_version, format: flags >> 5, id: 0, meta: 0 };
        let mut this = Self { len: SHORT, codec, filters: Slots::default(), flags2: 0, more: 0 };
        if flags & 0x05 == 0x05 {
            this.len = EXTENDED;
            let ids = cur.array::<6>("filters")?;
            this.codec.id = cur.u8("codec id")?;
            this.codec.meta = cur.u8("codec meta")?;
            this.filters = Filter::slots(ids, cur.array("filter metas")?);
            this.flags2 = cur.u8("blosc2_flags2")?;
            this.more = cur.u8("blosc2_flags")?;
        } else {
            let [.., delta, shuffle] = &mut this.filters;
            delta.id = if flags & 0x08 == 0 { 0 } else { 3 };
            shuffle.id = if flags & 0x04 != 0 { 2 } else { flags & 0x01 };
        }
        if version == 3 {
            // Alpha versions wrote chunks with five slots.
            let [.., last] = &mut this.filters;
            *last = Filter::default();
        }
        Ok(this)
    }
}

fn chunk_version(cur: &mut Cursor<'_>) -> Result<u8> {
    let at = cur.at();
    match cur.u8("chunk version")? {
        0 => Err(Error::corrupt("must not be 0", "chunk version").at(at)),
        version @ 1..=6 => Ok(version),
        version => Err(Error::unknown(format!("chunk version {version}"), "chunk version").at(at)),
    }
}

/// Checks that the stored size `cbytes` is at least `len`, and at most `max_len`.
fn check_cbytes(cbytes: u32, len: u64, max_len: u64) -> Result<()> {
    let why = match u64::from(cbytes) {
        few if few < len => format!("must be at least {len}, is {cbytes}"),
        many if many > max_len => format!("{cbytes} bytes, only {max_len} available"),
        _ => return Ok(()),
    };
    Err(Error::corrupt(why, "cbytes"))
}

impl ChunkKind {
    /// The kind of the special chunk `number`, of `cbytes` stored bytes.
    fn of_special(number: u8, cbytes: u32) -> Self {
        match number {
            1 => Self::Special(Special::Zeros),
            2 => Self::Special(Special::Nan),
            3 => Self::Special(Special::Value { len: cbytes.saturating_sub(32) }),
            4 => Self::Special(Special::Uninitialised),
            other => Self::Unknown(UnknownPart::Special(other)),
        }
    }
}

impl ChunkHeader {
    /// Parses the header at the start of `bytes`, which are at `at`; the chunk may take up to `max_len` bytes.
    pub(super) fn parse(bytes: &[u8], at: FileOffset, max_len: u64) -> Result<Self> {
        let mut cur = Cursor::new(bytes, at);
        let version = chunk_version(&mut cur)?;
        let codec_version = cur.u8("versionlz")?;
        let flags = cur.u8("flags")?;
        let typesize_at = cur.at();
        let typesize = cur.u8("typesize")?;
        if typesize == 0 {
            return Err(Error::corrupt("must not be 0", "typesize").at(typesize_at));
        }
        let nbytes = unsigned(&mut cur, "nbytes")?;
        let blocksize_at = cur.at();
        let blocksize = unsigned(&mut cur, "blocksize")?;
        let cbytes_at = cur.at();
        let cbytes = unsigned(&mut cur, "cbytes")?;

        let Extension { len, codec, filters, flags2, more } = Extension::read(&mut cur, version, codec_version, flags)?;
        let special = (more >> 4) & 0x07;
        let unknown = UnknownPart::of(flags2, more, special);
        let more_at = at.plus(0x1F);
        if more & 0x08 != 0 {
            return Err(Error::corrupt("a lazy chunk has no streams", "blosc2_flags").at(more_at));
        }
        check_cbytes(cbytes, len, max_len).map_err(|e| e.at(cbytes_at))?;
        let vl = flags2 & 1 != 0;
        if unknown.is_none() && (blocksize == 0 || (!vl && blocksize > MAX_BLOCK)) {
            return Err(
                Error::corrupt(format!("must be 1 to {MAX_BLOCK}, is {blocksize}"), "blocksize").at(blocksize_at)
            );
        }
        let kind = match (unknown, special, flags & 0x02 != 0) {
            (Some(part), ..) => ChunkKind::Unknown(part),
            (None, 1.., _) if vl => {
                return Err(Error::corrupt("a chunk of VL-blocks cannot be special", "special type").at(more_at));
            }
            (None, 0, true) if vl => {
                return Err(Error::corrupt("a chunk of VL-blocks cannot be memcpyed", "flags").at(at.plus(2)));
            }
            (None, 0, true) => ChunkKind::Memcpyed,
            (None, 0, false) if nbytes == 0 => ChunkKind::Empty,
            (None, 0, false) if vl => ChunkKind::VlBlocks { count: blocksize },
            (None, 0, false) => ChunkKind::Blocks,
            (None, 1.., _) => ChunkKind::of_special(special, cbytes),
        };
        let header = Self {
            version,
            len,
            kind,
            typesize,
            nbytes,
            blocksize: if vl { nbytes } else { blocksize.min(nbytes) },
            cbytes,
            unsplit: flags & 0x10 != 0,
            dictionary: more & 0x01 != 0,
            instrumented: more & 0x80 != 0,
            codec,
            filters,
        };
        header.check_sizes(at)?;
        Ok(header)
    }

    /// Checks the sizes of a chunk without blocks.
    fn check_sizes(&self, at: FileOffset) -> Result<()> {
        let cbytes_at = at.plus(0x0C);
        match self.kind {
            ChunkKind::Memcpyed if self.len.saturating_add(self.nbytes.into()) != u64::from(self.cbytes) => {
                let why = format!("{} bytes cannot hold {} memcpyed bytes", self.cbytes, self.nbytes);
                Err(Error::corrupt(why, "cbytes").at(cbytes_at))
            }
            ChunkKind::Special(special) => special.check(self.nbytes.into(), self.typesize.into(), at),
            _ => Ok(()),
        }
    }

    /// Name of the codec or of the kind of chunk, for `info.json` and attributes.
    pub(super) fn codec_name(&self) -> &'static str {
        match self.kind {
            ChunkKind::Empty => "none",
            ChunkKind::Special(Special::Zeros) => "zeros",
            ChunkKind::Special(Special::Nan) => "nan",
            ChunkKind::Special(Special::Value { .. }) => "repeated value",
            ChunkKind::Special(Special::Uninitialised) => "uninitialised",
            ChunkKind::Memcpyed => "memcpy",
            ChunkKind::Unknown(_) => "unknown",
            ChunkKind::Blocks | ChunkKind::VlBlocks { .. } => self.codec.name(),
        }
    }
}

impl Codec {
    /// The name of the codec, or else the class of its id.
    pub(super) fn name(self) -> &'static str {
        match (self.format, self.id) {
            (0, _) => "blosclz",
            (1, 2) => "lz4hc",
            (1, _) => "lz4",
            (2, _) => "snappy",
            (3, _) => "zlib",
            (4, _) => "zstd",
            (6, id) => codec_name(id),
            _ => "reserved",
        }
    }
}

/// Reads an `i32` size, which must not be negative.
fn unsigned(cur: &mut Cursor<'_>, what: &'static str) -> Result<u32> {
    let at = cur.at();
    let n = cur.i32_le(what)?;
    u32::try_from(n).map_err(|_| Error::corrupt(format!("must not be negative, is {n}"), what).at(at))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    /// LZ4 with shuffle, 256 bytes in one block, 117 stored.
    fn good() -> Vec<u8> {
        let mut h = vec![5, 1, 0x25, 4, 0, 1, 0, 0, 0, 1, 0, 0, 0x75, 0, 0, 0];
        h.extend([0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        h
    }

    #[test]
    fn a_header_has_the_layout_of_the_reference() {
        let h = ChunkHeader::parse(&good(), FileOffset(0), 117).unwrap();
        assert_eq!((h.version, h.len, h.kind), (5, 32, ChunkKind::Blocks));
        assert_eq!((h.typesize, h.nbytes, h.blocksize, h.cbytes), (4, 256, 256, 117));
        assert_eq!((h.codec.name(), h.filters[5]), ("lz4", Filter { id: 1, meta: 0 }));
        let mut short = good();
        short[2] = 0x6A & !0x04 | 0x01; // zlib, delta, memcpyed, shuffle
        short[12] = 16;
        short[4] = 0;
        short[5] = 0;
        let h = ChunkHeader::parse(&short[..16], FileOffset(0), 16).unwrap();
        assert_eq!((h.len, h.kind, h.filters[4].id, h.filters[5].id), (16, ChunkKind::Memcpyed, 3, 1));
    }

    #[test]
    fn every_prefix_is_an_error() {
        for len in 0..32 {
            assert!(ChunkHeader::parse(&good()[..len], FileOffset(0), 117).is_err(), "{len}");
        }
    }

    #[test]
    fn every_invalid_field_is_reported_with_its_offset() {
        let rows: &[(&[(usize, u8)], &str)] = &[
            (&[(0, 0)], "must not be 0 (chunk version, at byte 0x100)"),
            (&[(3, 0)], "must not be 0 (typesize, at byte 0x103)"),
            (&[(7, 0x80)], "must not be negative, is -2147483392 (nbytes, at byte 0x104)"),
            (&[(9, 0)], "must be 1 to 536866816, is 0 (blocksize, at byte 0x108)"),
            (&[(12, 31)], "must be at least 32, is 31 (cbytes, at byte 0x10c)"),
            (&[(12, 118)], "118 bytes, only 117 available (cbytes, at byte 0x10c)"),
            (&[(2, 0x27)], "117 bytes cannot hold 256 memcpyed bytes (cbytes, at byte 0x10c)"),
            (&[(0x1F, 8)], "a lazy chunk has no streams (blosc2_flags, at byte 0x11f)"),
            (&[(0x1F, 0x30)], "repeating a value of 85 bytes does not fill 256 bytes (special type, at byte 0x100)"),
            (
                &[(0x1F, 0x20), (3, 3)],
                "NaN requires items of 4 or 8 bytes: 256 bytes of items of 3 (special type, at byte 0x100)",
            ),
            (&[(0x1E, 1), (0x1F, 0x10)], "a chunk of VL-blocks cannot be special (special type, at byte 0x11f)"),
            (&[(0x1E, 1), (2, 0x27)], "a chunk of VL-blocks cannot be memcpyed (flags, at byte 0x102)"),
        ];
        for (changes, want) in rows {
            let mut h = good();
            for &(i, byte) in *changes {
                h[i] = byte;
            }
            let got = ChunkHeader::parse(&h, FileOffset(0x100), 117).unwrap_err();
            assert_eq!(got.to_string(), *want);
        }
    }

    #[test]
    fn what_a_later_library_added_is_unknown_and_the_sizes_are_kept() {
        for (at, byte, part, message) in [
            (0x1E, 6, UnknownPart::Flags2(6), "the chunk flag 0x06"),
            (0x1F, 4, UnknownPart::Flags(4), "the chunk flag 0x04"),
            (0x1F, 0x50, UnknownPart::Special(5), "the special type 5"),
        ] {
            let mut bytes = good();
            bytes[at] = byte;
            let header = ChunkHeader::parse(&bytes, FileOffset(0x100), 117).unwrap();
            assert_eq!((header.kind, header.nbytes, header.cbytes), (ChunkKind::Unknown(part), 256, 117));
            let error = part.error(FileOffset(0x100));
            assert!(error.is_unknown() && error.to_string().starts_with(message), "{error}");
            assert_eq!(error.offset(), Some(FileOffset(0x100 + at as u64)));
        }
        let mut bytes = good();
        bytes[0] = 7;
        let error = ChunkHeader::parse(&bytes, FileOffset(0x100), 117).unwrap_err();
        assert!(error.is_unknown() && error.to_string().starts_with("chunk version 7 is unknown to "), "{error}");
    }
}
