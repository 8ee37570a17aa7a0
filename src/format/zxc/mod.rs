//! ZXC files: an LZ format of independent blocks, made for fast decoding.
//!
//! Reference: the whole ZXC reference; versions 4, 5 (all four dialects), 6, 7, 8 and 9.
//!
//! Shows as: `data.raw`, with a link to it named like the file without its suffix; `data.npy` if the user gives a
//! type; `chunks/` (each data block decoded), `stored/` (the payload of each block).
//! Piece: a block of 256 KiB or more; smaller blocks share a piece.
//! Checked: header hashes at open (of block headers at decode if there is a seek table); the hash over all block
//! checksums before the first byte (subject to `verify`); block checksums at decode, and before a payload is served as
//! stored (subject to `verify`; version 9 has no checksum over payloads).
//! Limits: see `index`, `stream` and `block`; a block decodes to at most 2 MiB.
//!
//! Invariants: opening reads headers, footers and seek tables only.
#![forbid(unsafe_code)]

mod block;
mod block_checksums;
mod block_extent;
mod block_sizes;
mod decode_buffers;
mod decode_error;
mod decoded_stream;
mod dict;
mod footer;
mod frame_state;
mod hash;
mod header;
mod huffman;
mod huffman_lengths;
mod index;
mod lz;
mod num;
mod offset_list;
mod pivco;
mod plain_offsets;
mod rle;
mod sections;
mod seek;
mod single_block;
mod version;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::bytes::Cursor;
use crate::error::{Error, Result};
use crate::source::{SmallReads, Source};

use super::{
    Array, ArrayList, Arrays, Blob, BlobRef, Check, Container, Content, Entry, File, Format, IndexedDir, Info, Input,
    Node, Options, ratio,
};
use block_extent::BlockExtent;
use decoded_stream::DecodedStream;
use frame_state::FrameState;
use header::{BlockHeader, MAGIC, OLD_MAGIC};
use seek::Seek;
use single_block::SingleBlock;
use version::ZxcVersion;

/// The entry in the table of formats.
pub(super) const FORMAT: Format = Format {
    name: "zxc",
    extensions: &["zxc"],
    enclosed: &[],
    detect: |input| input.head.starts_with(&MAGIC) || input.head.starts_with(&OLD_MAGIC),
    open,
    kernels: &[],
};

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let source = input.file()?;
    let frames = index::frames(&source, &options.limits, &options.account)?;
    let stream = DecodedStream::new(&source, frames, options)?;
    let array = options.array(None, stream.layout()?.len())?;
    let blob = BlobRef::shared(stream.clone());
    Ok(Arc::new(Zxc { source, stream, blob, array }))
}

struct Zxc {
    source: Arc<Source>,
    stream: Arc<DecodedStream>,
    blob: BlobRef,
    /// Element type and shape given by the user.
    array: Option<Array>,
}

impl Container for Zxc {
    fn info(&self) -> Info {
        let frames = &self.stream.frames;
        let total = frames.iter().fold(0_u64, |n, p| n.saturating_add(p.frame.footer.total));
        let first = frames.first().map(|p| &p.frame.header);
        let version = first.map_or(ZxcVersion::V5, |h| h.version);
        let mut details = Map::new();
        let sizes: BTreeMap<u32, ()> = frames.iter().map(|p| (p.frame.header.block_size, ())).collect();
        let sizes: Vec<u32> = sizes.into_keys().collect();
        details.insert("block_size".into(), if let [one] = sizes[..] { one.into() } else { sizes.into() });
        details.insert("blocks".into(), self.stream.blocks().into());
        details.insert("frames".into(), frames.len().into());
        details.insert("ratio".into(), ratio(total, self.source.len()));
        details.insert("seek_table".into(), one_for_all(frames, seek_state));
        details.insert("dictionary".into(), one_for_all(frames, dictionary_state));
        let is_walked = frames.iter().any(|state| !matches!(state.frame.seek, Seek::Used));
        details.insert("walked".into(), is_walked.into());
        Info {
            format: FORMAT.name,
            format_version: version.number().to_string(),
            file_size: self.source.len(),
            decoded_size: Some(total),
            checksums: one_for_all(frames, checksum_state),
            checksum_count: Some(frames.iter().map(checksum_count).fold(0, u64::saturating_add)),
            details,
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let blocks = |decoded| Node::IndexedDir(Arc::new(BlockDir { zxc: self.share(), decoded }));
        Ok(vec![
            Entry::own("data.raw", self.data().principal()),
            Entry::own("chunks", blocks(true)),
            Entry::own("stored", blocks(false)),
            Entry::stem_link("data.raw"),
        ])
    }

    fn stream(&self) -> Option<BlobRef> {
        Some(self.blob.clone())
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(ArrayList::data(self.data()))
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        for (number, state) in self.stream.frames.iter().enumerate() {
            let name = |what: &str| match self.stream.frames.len() {
                1 => what.to_owned(),
                _ => format!("frame {number}: {what}"),
            };
            if let Seek::Wrong(error) = &state.frame.seek {
                let error = error.clone();
                checks.push(Check::Run {
                    name: name("seek table"),
                    bytes: 0,
                    run: Box::new(move || Err(error.clone())),
                });
            }
            if let Err(error) = state.frame.header.check_algorithm(state.frame.at) {
                let run = Box::new(move || Err(error.clone()));
                checks.push(Check::Run { name: name("block checksums"), bytes: 0, run });
            }
            if let Some(gate) = state.gate.clone() {
                let bytes = state.frame.count().saturating_mul(4);
                checks.push(Check::Run { name: name("block checksums"), bytes, run: Box::new(move || gate.check()) });
            }
            // Otherwise decoding all pieces already decodes all blocks.
            if !state.frame.has_full_count() {
                let stream = Arc::clone(&self.stream);
                let gone = || Error::corrupt("there are fewer frames", "frame");
                let run = move || stream.check_sizes(stream.frames.get(number).ok_or_else(gone)?);
                checks.push(Check::Run { name: name("block sizes"), bytes: 0, run: Box::new(run) });
            }
        }
        checks.push(Check::Decode { name: "data.raw".into(), blob: self.blob.clone() });
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![Arc::clone(&self.source)]
    }
}

impl Zxc {
    fn data(&self) -> File {
        File::new(Content::Blob(self.blob.clone())).typed(self.array.clone()).stored(self.source.len())
    }

    fn share(&self) -> BlockDirs {
        BlockDirs { source: Arc::clone(&self.source), stream: Arc::clone(&self.stream), blob: self.blob.clone() }
    }
}

/// Common state of the directories of blocks.
struct BlockDirs {
    source: Arc<Source>,
    stream: Arc<DecodedStream>,
    blob: BlobRef,
}

/// `chunks/` and `stored/`: one file per block.
struct BlockDir {
    zxc: BlockDirs,
    /// Whether files are decoded blocks rather than payloads.
    decoded: bool,
}

impl IndexedDir for BlockDir {
    fn count(&self) -> u64 {
        self.zxc.stream.blocks()
    }

    fn suffix(&self) -> &'static str {
        if self.decoded { ".raw" } else { ".bin" }
    }

    fn file(&self, number: u64) -> Result<File> {
        let BlockDirs { source, stream, blob } = &self.zxc;
        let (frame_number, state, index) = stream.block(number)?;
        let header = &state.frame.header;
        let stored = BlockExtent::find(&state.frame, index)?;
        let (at, len) = (stored.payload_at(), stored.payload_len(header));
        let alone = || BlobRef::new(SingleBlock { stream: Arc::clone(stream), frame: frame_number, index });
        let part = || -> Result<Content> {
            let range = stream.block_range(state, index)?;
            let from_start = |at| state.start.saturating_add(at);
            Ok(Content::Blob(blob.clone()).slice(from_start(range.start)..from_start(range.end)))
        };
        let file = if !self.decoded {
            let gate = stream.payload_gate(state, index);
            File::new(Content::FileExtent(super::FileExtent { source: Arc::clone(source), at, len, gate }))
        } else if !state.is_sized() {
            // Finding the range of the block may need decoding, which a listing must not do.
            File::new(Content::Blob(alone()))
        } else if state.shares_pieces() {
            File::new(Content::Blob(alone())).part_of(part()?)
        } else {
            File::new(part()?)
        };
        let mut file = file.stored(len).attr("offset", at.0).attr("stored_size", len);
        // A corrupt header is reported when the block is read.
        if let Ok(kind) = kind(source, state, stored) {
            file = file.attr("codec", kind);
        }
        if header.is_verifiable()
            && let Ok(checksum) = block_checksums::stored(&mut SmallReads::new(source), &state.frame, index)
        {
            file = file.attr("checksum", format_args!("rapidhash32:{checksum:08x}"));
        }
        Ok(file)
    }
}

/// Maximum number of frames that `info.json` describes one by one.
const LISTED: usize = 1000;

/// The name of the type of a block.
fn kind(source: &Source, state: &FrameState, block: BlockExtent) -> Result<&'static str> {
    let bytes = source.get(block.at, BlockHeader::LEN, "block header")?;
    let bytes = Cursor::new(&bytes, block.at).array("block header")?;
    Ok(BlockHeader::parse(state.frame.header.version, bytes, block.at)?.kind.name())
}

/// The values of `of` for the first [`LISTED`] frames; a single value if all are equal.
fn one_for_all(frames: &[FrameState], of: impl Fn(&FrameState) -> Value) -> Value {
    let mut values: Vec<Value> = frames.iter().take(LISTED).map(of).collect();
    if values.iter().all(|v| Some(v) == values.first()) { values.pop().unwrap_or(Value::Null) } else { values.into() }
}

fn seek_state(state: &FrameState) -> Value {
    match &state.frame.seek {
        Seek::Absent => Value::Null,
        Seek::Used => "used".into(),
        Seek::Wrong(error) => format!("not used: {error}").into(),
    }
}

fn dictionary_state(state: &FrameState) -> Value {
    let Some(id) = state.frame.header.dict_id else { return Value::Null };
    let state = state.dictionary.get().map_or_else(|error| error.to_string(), |_| "given".into());
    json!({ "id": format!("{id:#010x}"), "state": state })
}

/// One for each block, and one over all of them.
fn checksum_count(state: &FrameState) -> u64 {
    if state.frame.header.is_verifiable() { state.frame.count().saturating_add(1) } else { 0 }
}

fn checksum_state(state: &FrameState) -> Value {
    let header = &state.frame.header;
    let (covers, whole) = match header.version {
        ZxcVersion::V9 => ("decoded bytes", "digest"),
        _ => ("stored bytes", "global hash"),
    };
    let digits = if header.version == ZxcVersion::V9 { 16 } else { 8 };
    if let Err(error) = header.check_algorithm(state.frame.at).and_then(|()| header.check_known(state.frame.at)) {
        return json!({ "header": "hash16", "block_header": "hash8", "unknown": error.to_string() });
    }
    let block = header.checksums.then(|| format!("rapidhash32 of the {covers}"));
    let digest = header.checksums.then(|| format!("{whole} {:0digits$x}", state.frame.footer.digest));
    json!({ "header": "hash16", "block_header": "hash8", "block": block, "file": digest })
}
