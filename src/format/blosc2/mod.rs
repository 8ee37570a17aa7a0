//! Blosc2: contiguous frames, sparse frame directories, b2nd arrays in both, archives of frames, and bare chunks.
//!
//! Reference: the Blosc2 frame, chunk and b2nd documents; section numbers are those of our own reference.
//!
//! Shows as: `data.raw`; `chunks/` and `stored/`, one file per chunk; `metalayers/` and `vlmetalayers/`, one
//! file per value and its JSON; `frames/000001/` and on for the frames that follow the first in one file. An archive
//! shows as a directory for each of its frames.
//! Piece: a chunk, or consecutive blocks of it of about 1 MiB together.
//! Checked: all structure at open; tables and streams at decode. The format has no checksums except those of its
//! codecs (Adler-32 in zlib); for archives see `archive`.
//! Limits: counts against the size of the file; of decoded data at most one block is held whole.
//!
//! Invariants: headers never decode; block decoding does no I/O; only `series` and `chunk` read chunks.
#![forbid(unsafe_code)]

mod archive;
mod b2nd;
mod block;
mod blosclz;
mod cell;
mod chunk;
mod codec;
mod data;
mod entries;
mod filter;
mod frame;
mod header;
mod index_chunk;
mod info;
mod memory;
mod meta;
mod msgpack;
mod ndlz;
mod series;
mod store;
mod stored_map;
mod table;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::once::Once;
use crate::source::{Folder, Source};

use super::{Check, Container, Directory, Dtype, Entry, Format, Info, Input, Node, Options};

use archive::Archive;
use chunk::Place;
use entries::{Decoded, Metalayers, Typed};
use filter::Item;
use frame::Frame;
use header::Header;
use memory::Memory;
use series::Series;

/// The entry in the table of formats.
pub(super) const FORMAT: Format = Format { name: "blosc2", detect, open };

/// Maximum number of frames in one file.
const FRAMES: usize = 10_000;

fn detect(input: &Input) -> bool {
    match &input.source {
        None => match input.dir.as_ref().map(|dir| dir.source(store::INDEX)) {
            Some(Ok(index)) => Frames::is_frame(&index, FileOffset(0)),
            // An index exists but cannot be opened; opening the container reports why.
            Some(Err(e)) => matches!(e.kind(), Kind::Unsupported(_)),
            None => false,
        },
        Some(source) => {
            let head = &input.head;
            head.starts_with(&frame::MAGIC) || archive::detect(head) || is_chunk(head, source.len())
        }
    }
}

/// A bare chunk has no magic: its `cbytes` must equal the file size, and its header must be plausible.
fn is_chunk(head: &[u8], len: u64) -> bool {
    match Header::parse(head, FileOffset(0), len) {
        Ok(header) => u64::from(header.cbytes) == len && head.get(1) == Some(&1),
        Err(_) => false,
    }
}

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let dtype = options.dtype.as_deref().map(|text| {
        let usage = || Error::new(Kind::Usage(format!("{text} is no element type").into()), "dtype");
        Dtype::parse(text).filter(|dtype| dtype.itemsize > 0).ok_or_else(usage)
    });
    let typed = Typed { dtype: dtype.transpose()?, shape: options.shape.clone() };
    let memory = Memory::new(options.account.clone(), options.limits.piece);
    let Some(source) = &input.source else {
        let dir = input.dir.as_ref().ok_or_else(|| Error::unsupported("neither a file nor a directory", "file"))?;
        return Ok(Arc::new(Frames::new(Frame::sparse(dir, &memory)?, typed, memory)?));
    };
    if input.head.starts_with(&frame::MAGIC) {
        return Ok(Arc::new(Frames::new(Frame::contiguous(source, FileOffset(0), &memory)?, typed, memory)?));
    }
    if input.head.starts_with(&archive::LOCAL) {
        return Ok(Arc::new(Archive::open(source, options, &memory)?));
    }
    // The version byte of a chunk is 1 to 6; anything else is a damaged frame.
    if input.head.first().is_none_or(|&version| version == 0 || version > 6) {
        return Err(Error::corrupt("no frame starts here", "magic").at(FileOffset(0)));
    }
    Ok(Arc::new(Bare::open(source, typed, memory)?))
}

/// A frame and its decoded content.
struct Opened {
    frame: Frame,
    decoded: Decoded,
}

impl Opened {
    fn new(frame: Frame) -> Self {
        let (chunks, array, gate) = (frame.chunks.clone(), frame.array.clone(), frame.gate.clone());
        let decoded = Decoded::new(chunks, frame.header.typesize, array, frame.stored(), gate);
        Self { frame, decoded }
    }

    fn entries(&self, typed: &Typed) -> Result<Vec<Entry>> {
        let mut entries = self.decoded.entries(typed)?;
        entries.extend(Metalayers::entries_of(&self.frame));
        Ok(entries)
    }

    fn checks(&self, name: &str) -> Vec<Check> {
        let mut checks = self.decoded.data.checks(name);
        for layer in &self.frame.vlmetalayers {
            let (source, layer) = (self.frame.source.clone(), layer.clone());
            let name = format!("{name}metalayer {:?}", String::from_utf8_lossy(&layer.name));
            let memory = Arc::clone(&self.frame.chunks.item().memory);
            let run = move || {
                let value = entries::value_of(&source, &layer, &memory)?;
                value.verify(0, 0..value.total(), 1 << 20)
            };
            checks.push(Check::Run { name, bytes: 0, run: Box::new(run) });
        }
        checks
    }
}

/// A frame, and the frames that follow it in the same file.
struct Frames {
    first: Opened,
    typed: Typed,
    memory: Arc<Memory>,
    rest: Once<Vec<Arc<Opened>>>,
}

impl Frames {
    fn new(frame: Frame, typed: Typed, memory: Arc<Memory>) -> Result<Self> {
        let first = Opened::new(frame);
        first.decoded.typed(&typed)?;
        Ok(Self { first, typed, memory, rest: Once::new() })
    }

    /// Whether a frame starts at `at`.
    fn is_frame(source: &Source, at: FileOffset) -> bool {
        let mut magic = [0; frame::MAGIC.len()];
        source.read(at, &mut magic, "magic").is_ok() && magic == frame::MAGIC
    }

    fn has_more(&self) -> bool {
        !self.first.frame.header.sparse && Self::is_frame(&self.first.frame.source, self.first.frame.end())
    }

    /// The frames after the first, opened on first use.
    fn rest(&self) -> Result<&[Arc<Opened>]> {
        let open = || {
            let mut frames: Vec<Arc<Opened>> = Vec::new();
            let source = &self.first.frame.source;
            let mut at = self.first.frame.end();
            while self.has_more() && Self::is_frame(source, at) {
                if frames.len() >= FRAMES {
                    let limit = to_u64(FRAMES);
                    return Err(Error::new(Kind::TooLarge { value: limit + 1, limit }, "number of frames").at(at));
                }
                let number = frames.len() + 1;
                let frame = Frame::contiguous(source, at, &self.memory)
                    .map_err(|e| e.within(format_args!("frame {number}")))?;
                at = frame.end();
                frames.push(Arc::new(Opened::new(frame)));
            }
            Ok(frames)
        };
        self.rest.get(open).map(Vec::as_slice)
    }
}

/// `frames/N/`: the directory of a frame after the first, or of one in an archive.
struct FrameDir(Arc<Opened>);

impl Directory for FrameDir {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.0.entries(&Typed::default())?;
        let info = Value::Object(info::frame(&self.0.frame, &self.0.decoded));
        entries.insert(0, Entry::own("info.json", super::File::new(super::Content::json(&info))));
        Ok(entries)
    }
}

impl Container for Frames {
    fn info(&self) -> Info {
        let Opened { frame, decoded } = &self.first;
        let mut details = info::frame(frame, decoded);
        if self.has_more() {
            let count = self.rest().map_or(Value::Null, |rest| (rest.len() + 1).into());
            details.insert("frames".into(), count);
        }
        let file_size = if frame.header.sparse { frame.stored() } else { frame.source.len() };
        Info {
            format: FORMAT.name,
            format_version: frame.header.version.to_string(),
            file_size,
            decoded_size: Some(decoded.len()),
            checksums: Value::String("none".into()),
            details,
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.first.entries(&self.typed)?;
        if self.has_more() {
            let frames = self.rest()?.iter().enumerate().map(|(i, frame)| {
                let dir = Node::Dir(Arc::new(FrameDir(frame.clone())));
                Entry::named(format!("{:06}", i + 1), "", dir)
            });
            entries.push(Entry::own("frames", Node::dir(Vec::new(), frames.collect())));
        }
        Ok(entries)
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = self.first.checks("");
        match self.rest() {
            Ok(rest) => {
                for (i, frame) in rest.iter().enumerate() {
                    checks.extend(frame.checks(&format!("frame {}: ", i + 1)));
                }
            }
            Err(e) => {
                checks.push(Check::Run { name: "frames".into(), bytes: 0, run: Box::new(move || Err(e.clone())) });
            }
        }
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.first.frame.source.clone()]
    }

    fn folder(&self) -> Option<Arc<Folder>> {
        self.first.frame.chunks.store().files().cloned()
    }
}

/// A file that consists of one chunk.
struct Bare {
    source: Arc<Source>,
    header: Header,
    decoded: Decoded,
    typed: Typed,
}

impl Bare {
    fn open(source: &Arc<Source>, typed: Typed, memory: Arc<Memory>) -> Result<Self> {
        let place = Place { source: source.clone(), at: FileOffset(0), room: source.len() };
        let header = place.header()?;
        if u64::from(header.cbytes) != source.len() {
            let why = format!("{} bytes in a file of {}", header.cbytes, source.len());
            return Err(Error::corrupt(why, "cbytes").at(FileOffset(0x0C)));
        }
        let series =
            Arc::new(Series::single(place, header.nbytes.into(), Item { memory, typesize: None, blockshape: None }));
        let decoded = Decoded::new(series, header.typesize.into(), None, source.len(), None);
        decoded.typed(&typed)?;
        Ok(Self { source: source.clone(), header, decoded, typed })
    }
}

impl Container for Bare {
    fn info(&self) -> Info {
        Info {
            format: FORMAT.name,
            format_version: self.header.version.to_string(),
            file_size: self.source.len(),
            decoded_size: Some(self.decoded.len()),
            checksums: Value::String("none".into()),
            details: info::chunk(&self.header),
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.decoded.entries(&self.typed)
    }

    fn checks(&self) -> Vec<Check> {
        self.decoded.data.checks("")
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.source.clone()]
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({:?})", self.first.frame.source.path())
    }
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bare({:?})", self.source.path())
    }
}
