//! Frames: header, metalayers, index and trailer; contiguous or, as a directory, sparse.
//!
//! Reference: sections 2 (header), 3 (chunk section), 4 (trailer), 5 (sparse frames), 9 (arrays).
//! Checked: every field against its range and the length of the frame; the geometry of the array against the chunks.
//! Limits: at most 16 metalayers in the header and 8192 in the trailer; of their values only the geometry of the
//! array is read.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use rmp::Marker;

use crate::bytes::{Cursor, FileOffset};
use crate::checksum::ChecksumGate;
use crate::error::{Error, Kind, Result};
use crate::source::{Files, Place, Source};

use super::b2nd;
use super::chunk::Chunk;
use super::chunk_index::ChunkIndex;
use super::chunk_store::{self, ChunkStore};
use super::header::{Filter, Slots};
use super::item_spec::ItemSpec;
use super::memory::{ChunkKey, ContainerMemory, INDEX};
use super::metalayer::{Metalayer, MetalayerSection};
use super::msgpack;
use super::stored_chunk::ChunkLocation;

/// Magic at the start of a frame.
pub(super) const MAGIC: [u8; 10] = *b"\x9e\xa8b2frame\0";
/// Bytes of the header up to the metalayers.
const FIXED: u64 = 0x57;
/// Smallest `trailer_len`.
const MIN_TRAILER: u64 = 25;
/// Size of the closing fields: trailer length, fingerprint.
const CLOSING: u64 = 23;
/// Maximum number of chunks: the index chunk cannot be larger.
const MAX_CHUNKS: u64 = 268_435_455;
/// Maximum size of a `b2nd` value that is read.
const MAX_B2ND: u64 = 1 << 16;

/// An opened frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: FrameHeader,
    pub(super) source: Arc<Source>,
    /// Offset of the frame in the file.
    pub(super) start: FileOffset,
    pub(super) metalayers: Vec<Metalayer>,
    /// Metalayers of the trailer; each value is a chunk. An error if the trailer is of an unknown version.
    pub(super) vlmetalayers: Result<Vec<Metalayer>>,
    pub(super) fingerprint: Fingerprint,
    /// An error if its geometry is unknown: then only the chunks by themselves can be decoded.
    pub(super) array: Result<Option<b2nd::Geometry>>,
    pub(super) chunks: Arc<ChunkIndex>,
    /// The checksum to verify before bytes are served; only a frame in an archive has one.
    pub(super) gate: Option<ChecksumGate>,
}

/// The fixed part of a frame's header.
#[derive(Debug, Clone)]
pub(super) struct FrameHeader {
    pub(super) header_len: u64,
    pub(super) frame_len: u64,
    /// Version of the frame format: 1, 2 or 3.
    pub(super) version: u8,
    pub(super) general_flags: u8,
    pub(super) sparse: bool,
    pub(super) codec_flags: u8,
    pub(super) split_mode: u8,
    pub(super) nbytes: u64,
    pub(super) cbytes: u64,
    pub(super) typesize: u32,
    pub(super) blocksize: i32,
    pub(super) chunksize: u32,
    pub(super) filters: Slots,
    pub(super) codec_id: u8,
    pub(super) codec_meta: u8,
    pub(super) dictionaries: bool,
}

/// The fingerprint in the trailer. Its coverage is not specified, and no known writer sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) kind: u8,
    pub(super) value: [u8; 16],
}

/// The flags of a frame.
struct Flags {
    version: u8,
    general: u8,
    sparse: bool,
    codec: u8,
    split_mode: u8,
}

impl Flags {
    fn read(cur: &mut Cursor<'_>) -> Result<Self> {
        msgpack::marker(cur, Marker::FixStr(4), "flags")?;
        let flags_at = cur.at();
        let [general, frame_type, codec, other_flags] = cur.array::<4>("flags")?;
        let version = general & 0x0f;
        match version {
            0 => return Err(Error::corrupt("must not be 0", "frame version").at(flags_at)),
            1..=3 => {}
            _ => return Err(Error::unknown(format!("frame version {version}"), "frame version").at(flags_at)),
        }
        if general & 0x30 != 0x10 {
            return Err(Error::unsupported("offsets of other than 64 bits", "general_flags").at(flags_at));
        }
        let sparse = match frame_type & 0x0f {
            0 => false,
            1 => true,
            other => {
                return Err(Error::unknown(format!("frame type {other}"), "frame_type").at(flags_at.plus(1)));
            }
        };
        Ok(Self { version, general, sparse, codec, split_mode: other_flags & 0x03 })
    }
}

/// The sizes of the header and of the frame, which may take up to `max_len` bytes.
fn lengths(cur: &mut Cursor<'_>, max_len: u64) -> Result<(u64, u64)> {
    let header_len_at = cur.at();
    let header_len = u64::from(msgpack::size(cur, "header_len")?);
    let frame_len_at = cur.at();
    let frame_len = msgpack::u64(cur, "frame_len")?;
    check_len(frame_len, max_len).map_err(|kind| Error::new(kind, "frame_len").at(frame_len_at))?;
    if header_len < FIXED || header_len > frame_len {
        let why = format!("must be {FIXED} to {frame_len}, is {header_len}");
        return Err(Error::corrupt(why, "header_len").at(header_len_at));
    }
    Ok((header_len, frame_len))
}

/// The size of a chunk; 0 for that of a frame that `is_empty` and never had a chunk.
fn chunk_size(cur: &mut Cursor<'_>, is_empty: bool) -> Result<u32> {
    let at = cur.at();
    let size = msgpack::i32(cur, "chunksize")?;
    match u32::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) if is_empty => Ok(0),
        Err(_) => Err(Error::corrupt(format!("must not be negative, is {size}"), "chunksize").at(at)),
    }
}

impl FrameHeader {
    /// Reads the fixed part of the header of the frame at `start`.
    pub(super) fn read(source: &Source, start: FileOffset) -> Result<Self> {
        let mut bytes = [0; 0x57];
        source.read(start, &mut bytes, "frame header")?;
        let mut cur = Cursor::new(&bytes, start);
        if cur.array::<10>("magic")? != MAGIC {
            return Err(Error::corrupt("not a Blosc2 frame", "magic").at(start));
        }
        let (header_len, frame_len) = lengths(&mut cur, source.len().saturating_sub(start.0))?;
        let Flags { version, general: general_flags, sparse, codec: codec_flags, split_mode } = Flags::read(&mut cur)?;
        let nbytes = msgpack::long_size(&mut cur, "nbytes")?;
        let cbytes_at = cur.at();
        let cbytes = msgpack::long_size(&mut cur, "cbytes")?;
        // After all chunks were deleted, the field keeps its last value.
        let cbytes = if nbytes == 0 { 0 } else { cbytes };
        if !sparse && cbytes > frame_len.saturating_sub(header_len) {
            let why = format!("{cbytes} bytes of chunks in a frame of {frame_len}");
            return Err(Error::corrupt(why, "cbytes").at(cbytes_at));
        }
        let typesize_at = cur.at();
        let typesize = msgpack::size(&mut cur, "typesize")?;
        if typesize == 0 {
            return Err(Error::corrupt("must not be 0", "typesize").at(typesize_at));
        }
        let blocksize = msgpack::i32(&mut cur, "blocksize")?;
        let chunksize = chunk_size(&mut cur, nbytes == 0)?;
        msgpack::i16(&mut cur, "threads for compression")?;
        msgpack::i16(&mut cur, "threads for decompression")?;
        let has_at = cur.at();
        let has = cur.u8("has_vlmetalayers")?;
        if !matches!(Marker::from_u8(has), Marker::True | Marker::False) {
            return Err(Error::corrupt(format!("must be a bool, is {has:#04x}"), "has_vlmetalayers").at(has_at));
        }
        msgpack::marker(&mut cur, Marker::FixExt16, "filter pipeline")?;
        let slots_at = cur.at();
        let slots = cur.u8("number of filters")?;
        if slots > 6 {
            return Err(Error::corrupt(format!("must be at most 6, is {slots}"), "number of filters").at(slots_at));
        }
        let ids = cur.array::<6>("filters")?;
        let codec_id = cur.u8("udcodec")?;
        let codec_meta = cur.u8("codec_meta")?;
        let metas = cur.array::<6>("filters_meta")?;
        let other_flags2 = cur.u8("other_flags2")?;
        Ok(Self {
            header_len,
            frame_len,
            version,
            general_flags,
            sparse,
            codec_flags,
            split_mode,
            nbytes,
            cbytes,
            typesize,
            blocksize,
            chunksize,
            filters: Filter::slots(ids, metas),
            codec_id,
            codec_meta,
            dictionaries: other_flags2 & 1 != 0,
        })
    }
}

impl Frame {
    /// Opens the contiguous frame that starts at `start`.
    pub(super) fn contiguous(source: &Arc<Source>, start: FileOffset, memory: &Arc<ContainerMemory>) -> Result<Self> {
        let header = FrameHeader::read(source, start)?;
        if header.sparse {
            let why = "this is the index of a sparse frame; open its directory instead";
            return Err(Error::corrupt(why, "frame_type").at(start.plus(0x1A)));
        }
        Self::open(source.clone(), start, header, None, memory)
    }

    /// Opens the sparse frame in the directory `dir`.
    pub(super) fn sparse(dir: &Place, memory: &Arc<ContainerMemory>) -> Result<Self> {
        let source = dir.source(chunk_store::INDEX).map_err(|e| e.within(chunk_store::INDEX))?;
        let start = FileOffset(0);
        let header = FrameHeader::read(&source, start)?;
        if !header.sparse {
            return Err(Error::corrupt("the index of a sparse frame directory is a contiguous frame", "frame_type")
                .at(FileOffset(0x1A)));
        }
        Self::open(source, start, header, Some(chunk_store::pin(dir, memory.account())?), memory)
    }

    fn open(
        source: Arc<Source>,
        start: FileOffset,
        header: FrameHeader,
        files: Option<Files>,
        memory: &Arc<ContainerMemory>,
    ) -> Result<Self> {
        let (trailer_len, fingerprint) = closing(&source, start, &header)?;
        let section = MetalayerSection { start, len: header.header_len, section: FIXED, max_count: 16 };
        let metalayers = section.read(&source)?;
        let trailer_at = header.frame_len.saturating_sub(trailer_len);
        let vlmetalayers = or_unknown(trailer(&source, start.plus(trailer_at), trailer_len))?;

        let mut array = Ok(None);
        let named = |name: &[u8]| metalayers.iter().find(|m| m.name == name);
        if let Some(layer) = named(b"b2nd").or_else(|| named(b"caterva")) {
            let bytes = source.get(layer.at, layer.len.min(MAX_B2ND), "b2nd")?;
            array = or_unknown(b2nd::Geometry::parse(&bytes, layer.at))?.map(|array| Some((layer.at, array)));
        }
        let blockshape = match &array {
            Ok(array) => Ok(array.as_ref().map(|(_, array)| array.block.clone())),
            Err(error) => Err(error.clone()),
        };
        let item = ItemSpec { memory: Arc::clone(memory), typesize: Some(header.typesize), blockshape };

        // The index chunk follows the chunk section, which a sparse frame does not have.
        let section = if files.is_some() { 0 } else { header.cbytes };
        let index_pos = header.header_len.saturating_add(section);
        let index_at = start.plus(index_pos);
        let Some(max_len) = trailer_at.checked_sub(index_pos) else {
            let why = format!(
                "the chunks end at {index_pos:#x} of the frame, after the start of its trailer at {trailer_at:#x}"
            );
            return Err(Error::corrupt(why, "cbytes").at(start.plus(0x26)));
        };
        let store = match files {
            Some(files) => ChunkStore::Directory { files, frame: source.clone() },
            None => {
                ChunkStore::Section { source: source.clone(), start: start.plus(header.header_len), len: header.cbytes }
            }
        };
        let chunks = if header.nbytes == 0 {
            ChunkIndex::empty(store, item)
        } else {
            let location = ChunkLocation { source: source.clone(), at: index_at, max_len };
            indexed(&header, &location, store, item)?
        };
        if let Ok(Some((at, array))) = &array {
            array.check(header.typesize, header.chunksize.into(), chunks.count(), *at)?;
        }
        let array = array.map(|array| array.map(|(_, array)| array));
        let chunks = Arc::new(chunks);
        Ok(Self { header, source, start, metalayers, vlmetalayers, fingerprint, array, chunks, gate: None })
    }

    /// The parts that this version does not know, by the names that they have in `info.json`.
    pub(super) fn unknown(&self) -> impl Iterator<Item = (&'static str, Error)> {
        let fingerprint = (self.fingerprint.kind > 3).then(|| {
            let part = format!("fingerprint type {}", self.fingerprint.kind);
            Error::unknown(part, "fingerprint type").at(self.start.plus(self.header.frame_len.saturating_sub(17)))
        });
        let array = self.array.as_ref().err().cloned();
        let vlmetalayers = self.vlmetalayers.as_ref().err().cloned();
        let all = [("array", array), ("vlmetalayers", vlmetalayers), ("fingerprint", fingerprint)];
        all.into_iter().filter_map(|(name, error)| Some((name, error?)))
    }

    /// Offset of the end of the frame in the file.
    pub(super) fn end(&self) -> FileOffset {
        self.start.plus(self.header.frame_len)
    }

    /// Stored size of the chunks, the index and the metadata of the frame.
    pub(super) fn stored(&self) -> u64 {
        if self.header.sparse {
            self.header.frame_len.saturating_add(self.header.cbytes)
        } else {
            self.header.frame_len
        }
    }
}

/// Checks the length that a frame states, of at most `most` bytes that there are.
fn check_len(len: u64, most: u64) -> Result<(), Kind> {
    match len {
        _ if len > most => Err(Kind::Truncated { need: len, have: most }),
        _ if len < FIXED.saturating_add(MIN_TRAILER) => {
            Err(Kind::Corrupt(format!("{len} bytes are not a frame").into()))
        }
        _ => Ok(()),
    }
}

/// The chunks listed in the index at `location`.
fn indexed(header: &FrameHeader, location: &ChunkLocation, store: ChunkStore, item: ItemSpec) -> Result<ChunkIndex> {
    let within = |e: Error| e.within("index chunk");
    let id = item.memory.new_index();
    let key = ChunkKey { index: id, chunk: INDEX };
    let index_item = ItemSpec { typesize: Some(8), blockshape: Ok(None), ..item.clone() };
    let index = Chunk::open(location, &index_item, key).map_err(within)?;
    let count = match u64::from(header.chunksize) {
        0 => index.len() / 8,
        size => header.nbytes.div_ceil(size),
    };
    if index.header().typesize != 8 {
        let why = format!("must be 8, is {}", index.header().typesize);
        return Err(within(Error::corrupt(why, "typesize").at(location.at.plus(3))));
    }
    if count > MAX_CHUNKS || count.checked_mul(8) != Some(index.len()) {
        let why = format!("{} bytes do not index {count} chunks", index.len());
        return Err(within(Error::corrupt(why, "nbytes").at(location.at.plus(4))));
    }
    Ok(ChunkIndex::indexed(id, store, index, count, header.nbytes, header.chunksize.into(), item))
}

/// Separates an unknown part, without which the rest can be read, from other errors.
fn or_unknown<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if !error.is_unknown() => Err(error),
        read => Ok(read),
    }
}

/// Reads the closing fields of the trailer: its length and the fingerprint.
fn closing(source: &Source, start: FileOffset, header: &FrameHeader) -> Result<(u64, Fingerprint)> {
    let at = start.plus(header.frame_len.saturating_sub(CLOSING));
    let bytes = source.get(at, CLOSING, "trailer")?;
    let mut cur = Cursor::new(&bytes, at);
    let trailer_len = u64::from(msgpack::u32(&mut cur, "trailer_len")?);
    let max_len = header.frame_len.saturating_sub(FIXED).min(i32::MAX.unsigned_abs().into());
    if !(MIN_TRAILER..=max_len).contains(&trailer_len) {
        let why = format!("must be {MIN_TRAILER} to {max_len}, is {trailer_len}");
        return Err(Error::corrupt(why, "trailer_len").at(at));
    }
    msgpack::marker(&mut cur, Marker::FixExt16, "fingerprint")?;
    let kind = cur.u8("fingerprint type")?;
    Ok((trailer_len, Fingerprint { kind, value: cur.array("fingerprint")? }))
}

/// Reads the variable-length metalayers from the trailer at `at`.
fn trailer(source: &Source, at: FileOffset, len: u64) -> Result<Vec<Metalayer>> {
    let head = source.get(at, 2, "trailer")?;
    let mut cur = Cursor::new(&head, at);
    msgpack::marker(&mut cur, Marker::FixArray(4), "trailer")?;
    let version_at = cur.at();
    let version = cur.u8("trailer version")?;
    if version > 1 {
        return Err(Error::unknown(format!("trailer version {version}"), "trailer version").at(version_at));
    }
    MetalayerSection { start: at, len: len.saturating_sub(CLOSING), section: 2, max_count: 8192 }.read(source)
}
