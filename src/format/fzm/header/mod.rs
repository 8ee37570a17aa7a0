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

mod core_header;
mod records;

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Kind, Result};
use crate::source::Source;
use core_header::{CORE_V30, Core};

pub(super) use core_header::{AT_SOURCE_SIZES, CoreVersion, MAGIC};
#[cfg(test)]
pub(super) use records::BufferSlot;
pub(super) use records::{BufferEntry, StageInfo, UNUSED};

const RECORD: u64 = 256;
const HAS_DATA_CHECKSUM: u16 = 1;
const HAS_HEADER_CHECKSUM: u16 = 2;

pub(super) const AT_DATA_CHECKSUM: FileOffset = FileOffset(72);
const AT_HEADER_CHECKSUM: FileOffset = FileOffset(76);

/// The whole header, parsed and validated.
#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "the fields have the names of the reference")]
pub(super) struct Header {
    pub(super) version: CoreVersion,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]

    use super::*;
    use crate::bytes::to_u64;

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
        assert_eq!(stage.inputs, [BufferSlot { id: 1, at: FileOffset(88) }]);
        assert_eq!(stage.outputs, [BufferSlot { id: 0, at: FileOffset(104) }]);
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
