//! The header of an FZM file: core, stage table, buffer table.
//!
//! Reference: sections 1 (container), 2 (size fields), 11 (validation rules) of the FZM reference, and the record
//! tables of the v3.1 layout.
//!
//! Checked: magic and version, counts against their limits, the position of the payload and of every segment in it, the
//! header's CRC-32. The graph checks the ids.
//!
//! Invariants: nothing here decodes; every offset returned is within the file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::Source;

/// The first four bytes: `0x464D5A32`, little-endian.
pub(super) const MAGIC: [u8; 4] = *b"2ZMF";

/// An unused id slot.
pub(super) const UNUSED: u16 = 0xFFFF;

const CORE_V30: u64 = 72;
const CORE: u64 = 80;
const RECORD: u64 = 256;
const MAX_STAGES: u64 = 32;
const MAX_BUFFERS: u64 = 32;
const MAX_SOURCES: usize = 4;
const PORTS: usize = 8;
const CONFIG: usize = 128;
const HAS_DATA_CHECKSUM: u16 = 1;
const HAS_HEADER_CHECKSUM: u16 = 2;

/// Offsets of fields in the core.
const AT_COMPRESSED_SIZE: FileOffset = FileOffset(16);
const AT_HEADER_SIZE: FileOffset = FileOffset(24);
pub(super) const AT_SOURCE_SIZES: FileOffset = FileOffset(40);
pub(super) const AT_DATA_CHECKSUM: FileOffset = FileOffset(72);
const AT_HEADER_CHECKSUM: FileOffset = FileOffset(76);

/// The format version: `3.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) major: u8,
    pub(super) minor: u8,
}

impl Version {
    /// Values up to 0xFF are a major version only, from before minor versions existed.
    const fn of(field: u16) -> Self {
        match field.to_be_bytes() {
            [0, major] => Self { major, minor: 0 },
            [major, minor] => Self { major, minor },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The whole header, parsed and validated.
#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "the fields have the names of the reference")]
pub(super) struct Header {
    pub(super) version: Version,
    pub(super) flags: u16,
    pub(super) uncompressed_size: u64,
    pub(super) compressed_size: u64,
    /// Offset of the payload.
    pub(super) header_size: u64,
    /// The decoded size of each source: `num_sources` entries, 1 to 4.
    pub(super) source_sizes: Vec<u64>,
    /// CRC-32 of the payload, if present.
    pub(super) data_checksum: Option<u32>,
    /// CRC-32 of the header, if present; already verified.
    pub(super) header_checksum: Option<u32>,
    pub(super) stages: Vec<StageInfo>,
    pub(super) buffers: Vec<BufferEntry>,
}

/// One record of the stage table.
#[derive(Debug, Clone)]
pub(super) struct StageInfo {
    /// Offset of the record.
    pub(super) at: FileOffset,
    pub(super) stage_type: u16,
    pub(super) stage_version: u16,
    /// The buffers that the stage reads forward, in port order, without unused slots.
    pub(super) inputs: Vec<Slot>,
    /// The buffers that the stage writes forward, in port order, without unused slots.
    pub(super) outputs: Vec<Slot>,
    /// The valid bytes of `stage_config`.
    pub(super) config: Vec<u8>,
}

impl StageInfo {
    /// Offset of `stage_config`.
    pub(super) const fn config_at(&self) -> FileOffset {
        self.at.plus(40)
    }
}

/// A buffer id in a stage record, and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) id: u16,
    pub(super) at: FileOffset,
}

/// One record of the buffer table: a segment of the payload.
#[derive(Debug, Clone)]
pub(super) struct BufferEntry {
    /// Offset of the record.
    pub(super) at: FileOffset,
    pub(super) stage_type: u16,
    pub(super) stage_version: u16,
    pub(super) data_type: u8,
    pub(super) producer_output_idx: u8,
    pub(super) dag_buffer_id: u16,
    /// The producer's port name, up to the first NUL; arbitrary bytes.
    pub(super) name: Vec<u8>,
    /// Bytes of the segment.
    pub(super) data_size: u64,
    pub(super) allocated_size: u64,
    pub(super) uncompressed_size: u64,
    /// Offset of the segment in the payload.
    pub(super) byte_offset: u64,
    /// The valid bytes of `stage_config`.
    pub(super) config: Vec<u8>,
}

impl BufferEntry {
    /// Offset of `dag_buffer_id`.
    pub(super) const fn id_at(&self) -> FileOffset {
        self.at.plus(6)
    }
}

impl Header {
    /// Reads and validates the header of `source`.
    ///
    /// # Errors
    /// Fails with the name and offset of the invalid field. Allocates no more than the size of the tables.
    pub(super) fn read(source: &Source) -> Result<Self> {
        let start = source.get(FileOffset(0), CORE_V30, "core header")?;
        let mut cur = Cursor::new(&start, FileOffset(0));
        let core = Core::parse(&mut cur)?;
        let tables = RECORD.saturating_mul(core.num_stages.saturating_add(core.num_buffers));
        let len = core.len().saturating_add(tables);
        let bytes = source.get(FileOffset(0), len, "stage and buffer tables")?;
        let mut cur = Cursor::new(&bytes, FileOffset(0));
        cur.take(usize::try_from(CORE_V30).unwrap_or(usize::MAX), "core header")?;
        let checksums = if core.version.minor == 0 {
            (None, None)
        } else {
            let data = cur.u32_le("data_checksum")?;
            let header = cur.u32_le("header_checksum")?;
            (
                (core.flags & HAS_DATA_CHECKSUM != 0).then_some(data),
                (core.flags & HAS_HEADER_CHECKSUM != 0).then_some(header),
            )
        };
        if let Some(stored) = checksums.1 {
            check_crc(&bytes, stored)?;
        }
        core.check_payload(len, source.len())?;

        let stages: Result<Vec<_>> = (0..core.num_stages)
            .map(|i| StageInfo::parse(&mut cur).map_err(|e| e.within(format_args!("stage {i}"))))
            .collect();
        let buffers: Result<Vec<_>> = (0..core.num_buffers)
            .map(|i| {
                BufferEntry::parse(&mut cur, core.compressed_size).map_err(|e| e.within(format_args!("buffer {i}")))
            })
            .collect();
        Ok(Self {
            version: core.version,
            flags: core.flags,
            uncompressed_size: core.uncompressed_size,
            compressed_size: core.compressed_size,
            header_size: core.header_size,
            source_sizes: core.source_sizes,
            data_checksum: checksums.0,
            header_checksum: checksums.1,
            stages: stages?,
            buffers: buffers?,
        })
    }

    /// Offset of the segment of `entry`.
    pub(super) const fn segment_at(&self, entry: &BufferEntry) -> FileOffset {
        FileOffset(self.header_size).plus(entry.byte_offset)
    }
}

/// The first 72 bytes.
struct Core {
    version: Version,
    num_buffers: u64,
    uncompressed_size: u64,
    compressed_size: u64,
    header_size: u64,
    num_stages: u64,
    flags: u16,
    source_sizes: Vec<u64>,
}

impl Core {
    fn parse(cur: &mut Cursor<'_>) -> Result<Self> {
        if cur.array::<4>("magic")? != MAGIC {
            return Err(Error::corrupt("not an FZM file", "magic").at(FileOffset(0)));
        }
        let at = cur.at();
        let version = Version::of(cur.u16_le("version")?);
        if version.major != 3 {
            return Err(Error::unsupported(format!("version {version} (supported: 3.x)"), "version").at(at));
        }
        let at = cur.at();
        let num_buffers = Limits::check(cur.u16_le("num_buffers")?.into(), MAX_BUFFERS, "num_buffers");
        let num_buffers = num_buffers.map_err(|e| e.at(at))?;
        let uncompressed_size = cur.u64_le("uncompressed_size")?;
        let compressed_size = cur.u64_le("compressed_size")?;
        let header_size = cur.u64_le("header_size")?;
        let at = cur.at();
        let num_stages = Limits::check(cur.u32_le("num_stages")?.into(), MAX_STAGES, "num_stages");
        let num_stages = num_stages.map_err(|e| e.at(at))?;
        if num_stages == 0 {
            return Err(Error::corrupt("there are no stages", "num_stages").at(at));
        }
        let at = cur.at();
        let num_sources = usize::from(cur.u16_le("num_sources")?);
        if !(1..=MAX_SOURCES).contains(&num_sources) {
            return Err(Error::corrupt(format!("must be 1 to {MAX_SOURCES}, not {num_sources}"), "num_sources").at(at));
        }
        let flags = cur.u16_le("flags")?;
        let sizes: Result<Vec<u64>> = (0..num_sources).map(|_| cur.u64_le("source_uncompressed_sizes")).collect();
        Ok(Self {
            version,
            num_buffers,
            uncompressed_size,
            compressed_size,
            header_size,
            num_stages,
            flags,
            source_sizes: sizes?,
        })
    }

    /// Bytes of the core; only versions 3 and 3.0 have no checksum fields.
    const fn len(&self) -> u64 {
        if self.version.minor == 0 { CORE_V30 } else { CORE }
    }

    /// Checks that the payload starts at or after `tables_end` and ends within the file.
    fn check_payload(&self, tables_end: u64, file_len: u64) -> Result<()> {
        if self.header_size < tables_end {
            let why = format!("{} is inside the tables, which end at {tables_end}", self.header_size);
            return Err(Error::corrupt(why, "header_size").at(AT_HEADER_SIZE));
        }
        let Some(have) = file_len.checked_sub(self.header_size) else {
            let why = format!("{} is past the end of the file of {file_len} bytes", self.header_size);
            return Err(Error::corrupt(why, "header_size").at(AT_HEADER_SIZE));
        };
        if self.compressed_size > have {
            let kind = Kind::Truncated { need: self.compressed_size, have };
            return Err(Error::new(kind, "compressed_size").at(AT_COMPRESSED_SIZE));
        }
        Ok(())
    }
}

/// Verifies the header's checksum. It covers the core and both tables, with its own four bytes zero.
///
/// The reference library checks it for version 3.1 only. Later minor versions only add fields, and real files of 3.2
/// have a valid checksum, so here only the flag decides.
fn check_crc(header: &[u8], stored: u32) -> Result<()> {
    let mut hasher = crc32fast::Hasher::new();
    let mut cur = Cursor::new(header, FileOffset(0));
    hasher.update(cur.take(usize::try_from(AT_HEADER_CHECKSUM.0).unwrap_or(usize::MAX), "header")?);
    cur.u32_le("header_checksum")?;
    hasher.update(&[0; 4]);
    hasher.update(cur.rest());
    let computed = hasher.finalize();
    if computed != stored {
        let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
        return Err(Error::new(kind, "header_checksum").at(AT_HEADER_CHECKSUM));
    }
    Ok(())
}

impl StageInfo {
    fn parse(cur: &mut Cursor<'_>) -> Result<Self> {
        let at = cur.at();
        let stage_type = cur.u16_le("stage_type")?;
        let stage_version = cur.u16_le("stage_version")?;
        let count_at = cur.at();
        let num_inputs = count(cur.u8("num_inputs")?, "num_inputs", count_at)?;
        let num_outputs = count(cur.u8("num_outputs")?, "num_outputs", count_at.plus(1))?;
        cur.u16_le("reserved1")?;
        let inputs = slots(cur, num_inputs, "input_buffer_ids")?;
        let outputs = slots(cur, num_outputs, "output_buffer_ids")?;
        let config = config(cur)?;
        cur.take(84, "reserved")?;
        Ok(Self { at, stage_type, stage_version, inputs, outputs, config })
    }
}

fn count(n: u8, what: &'static str, at: FileOffset) -> Result<usize> {
    Limits::check(n.into(), to_u64(PORTS), what).map_err(|e| e.at(at))?;
    Ok(n.into())
}

/// Reads all eight slots; of the first `count`, keeps those with an id.
fn slots(cur: &mut Cursor<'_>, count: usize, what: &'static str) -> Result<Vec<Slot>> {
    let all: Result<Vec<Slot>> = (0..PORTS).map(|_| Ok(Slot { at: cur.at(), id: cur.u16_le(what)? })).collect();
    Ok(all?.into_iter().take(count).filter(|slot| slot.id != UNUSED).collect())
}

/// `stage_config` and `config_size`, which end both kinds of records.
fn config(cur: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let bytes = cur.take(CONFIG, "stage_config")?;
    let at = cur.at();
    let size = cur.u32_le("config_size")?;
    Limits::check(size.into(), to_u64(CONFIG), "config_size").map_err(|e| e.at(at))?;
    Ok(bytes.iter().copied().take(usize::try_from(size).unwrap_or(CONFIG)).collect())
}

impl BufferEntry {
    fn parse(cur: &mut Cursor<'_>, payload: u64) -> Result<Self> {
        let at = cur.at();
        let stage_type = cur.u16_le("stage_type")?;
        let stage_version = cur.u16_le("stage_version")?;
        let data_type = cur.u8("data_type")?;
        let producer_output_idx = cur.u8("producer_output_idx")?;
        let dag_buffer_id = cur.u16_le("dag_buffer_id")?;
        let name = cur.take(64, "name")?.iter().copied().take_while(|&b| b != 0).collect();
        let size_at = cur.at();
        let data_size = cur.u64_le("data_size")?;
        let allocated_size = cur.u64_le("allocated_size")?;
        let uncompressed_size = cur.u64_le("uncompressed_size")?;
        let offset_at = cur.at();
        let byte_offset = cur.u64_le("byte_offset")?;
        let config = config(cur)?;
        cur.take(20, "reserved")?;
        let Some(have) = payload.checked_sub(byte_offset) else {
            let why = format!("{byte_offset} is past the end of the payload of {payload} bytes");
            return Err(Error::corrupt(why, "byte_offset").at(offset_at));
        };
        if data_size > have {
            return Err(Error::new(Kind::Truncated { need: data_size, have }, "data_size").at(size_at));
        }
        Ok(Self {
            at,
            stage_type,
            stage_version,
            data_type,
            producer_output_idx,
            dag_buffer_id,
            name,
            data_size,
            allocated_size,
            uncompressed_size,
            byte_offset,
            config,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]

    use super::*;

    /// Offsets of the records in [`file`].
    const STAGE: usize = 80;
    const BUFFER: usize = 80 + 256;
    const PAYLOAD: usize = 80 + 512;

    /// One stage, one segment of 10 bytes at offset 2 of a 16-byte payload, both checksums.
    fn file() -> Vec<u8> {
        let mut f = vec![0; PAYLOAD + 16];
        let mut put = |at: usize, bytes: &[u8]| f[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &0x0301_u16.to_le_bytes());
        put(6, &1_u16.to_le_bytes());
        put(8, &40_u64.to_le_bytes());
        put(16, &16_u64.to_le_bytes());
        put(24, &to_u64(PAYLOAD).to_le_bytes());
        put(32, &1_u32.to_le_bytes());
        put(36, &1_u16.to_le_bytes());
        put(38, &3_u16.to_le_bytes());
        put(40, &40_u64.to_le_bytes());
        put(72, &0x1234_u32.to_le_bytes());
        put(STAGE, &[15, 0, 1, 0, 1, 1]);
        put(STAGE + 8, &[1, 0]);
        put(STAGE + 10, &[0xFF; 14]);
        put(STAGE + 24, &[0, 0]);
        put(STAGE + 26, &[0xFF; 14]);
        put(STAGE + 40, &[6, 2]);
        put(STAGE + 168, &2_u32.to_le_bytes());
        put(BUFFER, &[15, 0, 1, 0, 2, 0, 0, 0]);
        put(BUFFER + 8, b"output");
        put(BUFFER + 72, &10_u64.to_le_bytes());
        put(BUFFER + 96, &2_u64.to_le_bytes());
        sealed(f)
    }

    /// The file with a correct header checksum.
    fn sealed(mut f: Vec<u8>) -> Vec<u8> {
        f[76..80].fill(0);
        let crc = crc32fast::hash(&f[..PAYLOAD]);
        f[76..80].copy_from_slice(&crc.to_le_bytes());
        f
    }

    fn read(f: Vec<u8>) -> Result<Header> {
        Header::read(&Source::from_bytes(f))
    }

    #[test]
    fn every_field_is_where_the_reference_says() {
        let h = read(file()).unwrap();
        assert_eq!(h.version.to_string(), "3.1");
        assert_eq!((h.uncompressed_size, h.compressed_size, h.header_size), (40, 16, 592));
        assert_eq!((h.flags, h.source_sizes.as_slice(), h.data_checksum), (3, &[40][..], Some(0x1234)));
        let [stage] = h.stages.as_slice() else { panic!() };
        assert_eq!((stage.at, stage.stage_type, stage.stage_version), (FileOffset(80), 15, 1));
        assert_eq!(stage.inputs, [Slot { id: 1, at: FileOffset(88) }]);
        assert_eq!(stage.outputs, [Slot { id: 0, at: FileOffset(104) }]);
        assert_eq!((stage.config.as_slice(), stage.config_at()), (&[6, 2][..], FileOffset(120)));
        let [buffer] = h.buffers.as_slice() else { panic!() };
        assert_eq!((buffer.name.as_slice(), buffer.data_type, buffer.data_size), (&b"output"[..], 2, 10));
        assert_eq!(h.segment_at(buffer), FileOffset(594));
    }

    #[test]
    fn unused_slots_among_the_ports_are_skipped() {
        let mut f = file();
        f[STAGE + 5] = 3;
        f[STAGE + 28] = 7;
        f[STAGE + 29] = 0;
        let outputs = read(sealed(f)).unwrap().stages[0].outputs.iter().map(|slot| slot.id).collect::<Vec<_>>();
        assert_eq!(outputs, [0, 7]);
    }

    #[test]
    fn older_and_newer_minor_versions_are_read() {
        for (field, want, core) in [(3_u16, "3.0", 72), (0x0300, "3.0", 72), (0x0302, "3.2", 80), (0x03FF, "3.255", 80)]
        {
            let mut f = file();
            f[4..6].copy_from_slice(&field.to_le_bytes());
            let mut f = sealed(f);
            if core == 72 {
                f.drain(72..80);
                f[24..32].copy_from_slice(&to_u64(PAYLOAD - 8).to_le_bytes());
            }
            let h = read(f).unwrap();
            assert_eq!(h.version.to_string(), want);
            assert_eq!(h.header_checksum.is_some(), core == 80, "3.0 has no checksums, whatever offset 38 says");
            assert_eq!(h.stages[0].at, FileOffset(core));
        }
    }

    #[test]
    fn the_header_checksum_is_verified_only_if_its_flag_is_set() {
        let mut f = file();
        f[STAGE + 200] ^= 1;
        let e = read(f.clone()).unwrap_err();
        assert!(matches!(e.kind(), Kind::Checksum { .. }), "{e}");
        assert_eq!((e.what(), e.offset()), ("header_checksum", Some(FileOffset(76))));
        f[38] = 1;
        assert_eq!(read(f).unwrap().header_checksum, None);
    }

    #[test]
    fn invalid_fields_are_refused_with_name_and_offset() {
        let cases: &[(usize, &[u8], &str)] = &[
            (0, b"FZM2", "not an FZM file (magic, at byte 0x0)"),
            (4, &[0, 4], "not supported: version 4.0 (supported: 3.x) (version, at byte 0x4)"),
            (4, &[2, 0], "not supported: version 2.0 (supported: 3.x) (version, at byte 0x4)"),
            (6, &[33, 0], "33 is over the limit of 32 (num_buffers, at byte 0x6)"),
            (16, &[17], "needs 17 bytes, 16 left (compressed_size, at byte 0x10)"),
            (16, &[0xFF; 8], "needs 18446744073709551615 bytes, 16 left (compressed_size, at byte 0x10)"),
            (24, &[0x4F, 2], "591 is inside the tables, which end at 592 (header_size, at byte 0x18)"),
            (24, &[0x61, 2], "609 is past the end of the file of 608 bytes (header_size, at byte 0x18)"),
            (32, &[33], "33 is over the limit of 32 (num_stages, at byte 0x20)"),
            (32, &[0], "there are no stages (num_stages, at byte 0x20)"),
            (36, &[0], "must be 1 to 4, not 0 (num_sources, at byte 0x24)"),
            (36, &[5], "must be 1 to 4, not 5 (num_sources, at byte 0x24)"),
            (STAGE + 4, &[9], "9 is over the limit of 8 (stage 0: num_inputs, at byte 0x54)"),
            (STAGE + 5, &[9], "9 is over the limit of 8 (stage 0: num_outputs, at byte 0x55)"),
            (STAGE + 168, &[129], "129 is over the limit of 128 (stage 0: config_size, at byte 0xf8)"),
            (BUFFER + 72, &[15], "needs 15 bytes, 14 left (buffer 0: data_size, at byte 0x198)"),
            (BUFFER + 72, &[0xFF; 8], "needs 18446744073709551615 bytes, 14 left (buffer 0: data_size, at byte 0x198)"),
            (
                BUFFER + 96,
                &[17],
                "17 is past the end of the payload of 16 bytes (buffer 0: byte_offset, at byte 0x1b0)",
            ),
            (BUFFER + 232, &[200], "200 is over the limit of 128 (buffer 0: config_size, at byte 0x238)"),
        ];
        for &(at, bytes, want) in cases {
            let mut f = file();
            f[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(read(sealed(f)).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn every_prefix_is_an_error() {
        let whole = file();
        for len in 0..whole.len() {
            read(whole[..len].to_vec()).unwrap_err();
        }
    }
}
