//! File headers and block headers.
//!
//! Reference: sections 1, 2.1, 2.2, 8, 11.2 and 12 of the ZXC reference.
//!
//! Checked: both header hashes, versions, chunk size codes, block types, and that a payload is not larger than a block
//! of this size can need.
//!
//! Invariants: neither reads the file nor decodes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Kind as What, Result};
use crate::limits::Limits;

use super::hash;
use super::version::ZxcVersion;

/// The magic word of versions 4 and later.
pub(super) const MAGIC: [u8; 4] = [0xF5, 0x2E, 0xB0, 0x9C];
/// The magic word of versions 1 to 3.
pub(super) const OLD_MAGIC: [u8; 4] = *b"ZXC\0";

/// A file header (16 bytes).
#[derive(Debug, Clone)]
pub(super) struct FileHeader {
    pub(super) version: ZxcVersion,
    /// Maximum decoded size of a block: 4 KiB to 2 MiB.
    pub(super) block_size: u32,
    /// Whether blocks have checksums.
    pub(super) checksums: bool,
    /// The number of their algorithm: 0 is the only known one.
    algorithm: u8,
    /// The first bit or byte without a known meaning in a version 9 header: offset and value.
    unknown: Option<(u64, u8)>,
    /// Whether the frame has a seek table; only version 9 says so.
    pub(super) seek_table: bool,
    /// The id of the required dictionary.
    pub(super) dict_id: Option<u32>,
}

impl FileHeader {
    /// Size of a file header.
    pub(super) const LEN: u64 = 16;

    /// Parses the header at the cursor.
    pub(super) fn parse(cur: &mut Cursor) -> Result<Self> {
        let at = cur.at();
        let whole = cur.clone().array::<16>("file header");
        let magic = cur.array::<4>("magic word")?;
        if magic == OLD_MAGIC {
            return Err(Error::unsupported("ZXC format versions 1 to 3", "magic word").at(at));
        }
        if magic != MAGIC {
            return Err(Error::corrupt("not a ZXC file", "magic word").at(at));
        }
        let bytes = whole?;
        let version = match cur.u8("format version")? {
            4 => ZxcVersion::V4,
            5 => ZxcVersion::V5,
            6 => ZxcVersion::V6,
            7 => ZxcVersion::V7,
            8 => ZxcVersion::V8,
            9 => ZxcVersion::V9,
            n @ ..4 => {
                return Err(Error::unsupported(format!("ZXC format version {n}"), "format version").at(at.plus(4)));
            }
            n => return Err(Error::unknown(format!("ZXC format version {n}"), "format version").at(at.plus(4))),
        };
        let code = cur.u8("chunk size code")?;
        let flags = cur.u8("flags")?;
        let dict_id = cur.u32_le("dict_id")?;
        let reserved = cur.array::<3>("reserved")?;
        let stored = cur.u16_le("header checksum")?;
        let mut plain = bytes;
        plain[14] = 0;
        plain[15] = 0;
        check(stored.into(), hash::hash16(version, plain).into(), "header checksum", at.plus(14))?;

        let block_size = match (version, code) {
            (ZxcVersion::V4, 0) | (ZxcVersion::V5, 64) => 1 << 18,
            (ZxcVersion::V4, units) => u32::from(units).wrapping_shl(12),
            (_, 12..=21) => 1_u32.wrapping_shl(code.into()),
            _ => return Err(Error::corrupt(format!("{code} is not a chunk size"), "chunk size code").at(at.plus(5))),
        };
        // Readers of earlier versions, which are final, ignore unknown bits.
        let unused = [(6, flags & 0x10), (11, reserved[0]), (12, reserved[1]), (13, reserved[2])];
        let unknown = unused.into_iter().find(|&(_, bits)| version == ZxcVersion::V9 && bits != 0);
        let has_dict = version > ZxcVersion::V5 && flags & 0x40 != 0 && dict_id != 0;
        Ok(Self {
            version,
            block_size,
            checksums: flags & 0x80 != 0,
            algorithm: if version > ZxcVersion::V5 { flags & 0x0F } else { 0 },
            unknown,
            seek_table: version == ZxcVersion::V9 && flags & 0x20 != 0,
            dict_id: has_dict.then_some(dict_id),
        })
    }

    /// Whether blocks have checksums of a known algorithm.
    pub(super) fn is_verifiable(&self) -> bool {
        self.checksums && self.algorithm == 0
    }

    /// Fails if the algorithm of the checksums of the frame at `frame` is unknown.
    pub(super) fn check_algorithm(&self, frame: FileOffset) -> Result<()> {
        match self.algorithm {
            0 => Ok(()),
            n => Err(Error::unknown(format!("checksum algorithm {n}"), "flags").at(frame.plus(6))),
        }
    }

    /// Fails if blocks of the frame at `frame` may be coded in an unknown way.
    pub(super) fn check_known(&self, frame: FileOffset) -> Result<()> {
        match self.unknown {
            None => Ok(()),
            Some((6, bits)) => Err(Error::unknown(format!("the frame flag {bits:#04x}"), "flags").at(frame.plus(6))),
            Some((at, byte)) => {
                Err(Error::unknown(format!("the frame option {byte:#04x}"), "reserved").at(frame.plus(at)))
            }
        }
    }

    /// Size of the checksum after each data block.
    pub(super) fn checksum_len(&self) -> u64 {
        if self.checksums { 4 } else { 0 }
    }

    /// Number of blocks that `total` bytes fill.
    pub(super) fn blocks_of(&self, total: u64) -> u64 {
        total.div_ceil(u64::from(self.block_size))
    }
}

/// The type of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZxcBlockKind {
    Raw,
    Glo,
    Num,
    Ghi,
    /// The seek table, which can only follow the last block.
    Sek,
    /// The end of the blocks.
    Eof,
    /// A data block of a type without a known meaning.
    Unknown(u8),
}

impl ZxcBlockKind {
    /// Its name in the reference.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Raw => "RAW",
            Self::Glo => "GLO",
            Self::Num => "NUM",
            Self::Ghi => "GHI",
            Self::Sek => "SEK",
            Self::Eof => "EOF",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// A block header (8 bytes).
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockHeader {
    pub(super) kind: ZxcBlockKind,
    /// Two bytes without a known meaning in version 9; earlier readers ignore them.
    options: [u8; 2],
    /// Size of the payload; in a SEK block of version 9 a hash of the size.
    pub(super) comp_size: u32,
}

impl BlockHeader {
    /// Size of a block header.
    pub(super) const LEN: u64 = 8;

    /// Parses the header in `bytes`, which are at `at`.
    pub(super) fn parse(version: ZxcVersion, bytes: [u8; 8], at: FileOffset) -> Result<Self> {
        let [kind, flags, reserved, a, b, c, d, stored] = bytes;
        check(stored.into(), hash::hash8(version, bytes).into(), "block header checksum", at.plus(7))?;
        let kind = match (kind, version) {
            (0, _) => ZxcBlockKind::Raw,
            (1, _) => ZxcBlockKind::Glo,
            (2, ZxcVersion::V4 | ZxcVersion::V5) => ZxcBlockKind::Num,
            (3, ZxcVersion::V4 | ZxcVersion::V5) | (2, _) => ZxcBlockKind::Ghi,
            (254, _) if version > ZxcVersion::V4 => ZxcBlockKind::Sek,
            (255, _) => ZxcBlockKind::Eof,
            _ => ZxcBlockKind::Unknown(kind),
        };
        let comp_size = u32::from_le_bytes([a, b, c, d]);
        if kind == ZxcBlockKind::Eof && comp_size != 0 {
            return Err(Error::corrupt("an EOF block has no payload", "EOF comp_size").at(at.plus(3)));
        }
        let options = if version == ZxcVersion::V9 { [flags, reserved] } else { [0; 2] };
        if matches!(kind, ZxcBlockKind::Eof | ZxcBlockKind::Sek) && options != [0; 2] {
            return Err(Error::corrupt("must be 0 in an EOF or SEK block", "block flags").at(at.plus(1)));
        }
        Ok(Self { kind, options, comp_size })
    }

    /// Fails if it is not known how the block at `at` is coded.
    pub(super) fn check_known(self, at: FileOffset) -> Result<()> {
        match (self.kind, self.options) {
            (ZxcBlockKind::Unknown(kind), _) => Err(Error::unknown(format!("block type {kind}"), "block type").at(at)),
            (_, [0, 0]) => Ok(()),
            (_, [flags, reserved]) => {
                let part = format!("the block flag {:#06x}", u16::from_be_bytes([reserved, flags]));
                Err(Error::unknown(part, "block flags").at(at.plus(1)))
            }
        }
    }

    /// Size of this data block with its header at `at`: header, payload and checksum.
    ///
    /// # Errors
    /// Fails for a SEK block, which is not a data block, and if the payload exceeds the maximum for a block of this
    /// size.
    pub(super) fn physical_size(self, header: &FileHeader, at: FileOffset) -> Result<u64> {
        let limit = match self.kind {
            ZxcBlockKind::Sek => return Err(Error::corrupt("a seek table before the EOF block", "block type").at(at)),
            ZxcBlockKind::Raw | ZxcBlockKind::Eof => u64::from(header.block_size),
            _ if header.version >= ZxcVersion::V8 => u64::from(header.block_size),
            // Upper bound of the expansion of an incompressible block by headers, descriptors and padding.
            _ => u64::from(header.block_size).saturating_add(1 << 16),
        };
        Limits::check(self.comp_size.into(), limit, "comp_size").map_err(|e| e.at(at.plus(3)))?;
        Ok(Self::LEN.saturating_add(self.comp_size.into()).saturating_add(header.checksum_len()))
    }
}

/// Fails with an error at `at` unless both values are equal.
pub(super) fn check(stored: u64, computed: u64, what: &'static str, at: FileOffset) -> Result<()> {
    if stored == computed { Ok(()) } else { Err(Error::new(What::Checksum { stored, computed }, what).at(at)) }
}
