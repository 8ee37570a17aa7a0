//! The decoded bytes of a component: a range of the file, byte-swapped elements, or Zstandard frames.
//!
//! Reference: sections 3 to 7 and 9, the rules of stage "read".
//!
//! Piece: 1 MiB; neighbouring small frames share one.
//! Checked: the digest over the bytes that the dialect defines (decoded or stored), before the first byte is served;
//! for a part of a shard without a digest, the digest of the shard, once; the decoded length against the shape and the
//! manifest.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::bytes::{FileOffset, to_usize};
use crate::checksum::ChecksumGate;
use crate::codec::zstd::{
    Dictionaries, Frames, Pieces, Policy, SeekTable, Stream, length_error, read_seek_table, walk,
};
use crate::error::{Error, Kind, Result};
use crate::format::{Blob, BlobRef, Content, FileExtent, Input, Layout, Options, Piece};
use crate::once::Once;
use crate::source::{Folder, Source};

use super::content::Shard;
use super::digest::{self, Digest};
use super::footer::Dialect;
use super::manifest::{self, Component, Encoding, Manifest, Tensor};
use super::quoted::quoted;

/// Maximum decoded size of a component whose manifest entry does not state it.
const MAX_UNKNOWN: u64 = 4 << 30;
/// Maximum content of a frame of a seekable component.
const MAX_FRAME: u32 = 16 << 20;

/// The decoded size of a component, if the manifest determines it.
///
/// # Errors
/// Fails if shape, stored length and decoded length contradict each other.
pub(super) fn decoded_len(tensor: &Tensor<'_>, part: &Component<'_>) -> Result<Option<u64>> {
    let dense = tensor.layout == "dense" && part.role == "data";
    let computed = match part.element().filter(|_| dense) {
        Some(element) => tensor.count().and_then(|count| element.bytes(count)),
        None => None,
    };
    let said = if part.encoding == Encoding::Raw { Some(part.len) } else { part.decoded };
    match (computed, said) {
        (Some(computed), Some(said)) if computed != said => {
            let why = format!("{said} bytes, but the shape requires {computed}");
            Err(Error::corrupt(why, "length").at(part.described_at))
        }
        (computed, said) => Ok(computed.or(said)),
    }
}

/// Whether the digest of `component` covers the stored bytes rather than the decoded ones.
fn covers_stored(dialect: Dialect, part: &Component<'_>) -> bool {
    dialect < Dialect::V2 || part.encoding == Encoding::Raw
}

/// The stored bytes of `component`, gated by its digest if that covers them, else by the digest of its shard.
pub(super) fn stored(file: &Shard, dialect: Dialect, part: &Component<'_>, options: &Options) -> FileExtent {
    let (at, len) = (part.at, part.len);
    let digest = part.digest.as_deref().filter(|_| covers_stored(dialect, part));
    let place = Covered { source: &file.source, range: at..at.plus(len), is_shard: part.shard.is_some() };
    let own = digest.and_then(|text| gate(text, part.described_at, place, options));
    FileExtent { source: Arc::clone(&file.source), at, len, gate: own.or_else(|| file.gate.clone()) }
}

/// The bytes that a digest covers.
struct Covered<'a> {
    source: &'a Arc<Source>,
    range: Range<FileOffset>,
    /// Whether they are in a shard: errors then name its file.
    is_shard: bool,
}

/// A gate that verifies `place` against the digest `text`, which is written at `described_at`. `None` for an unknown
/// algorithm.
fn gate(text: &str, described_at: FileOffset, place: Covered<'_>, options: &Options) -> Option<ChecksumGate> {
    let digest = match Digest::parse(text) {
        Ok(digest) => Ok(digest?),
        Err(e) => Err(e.at(described_at)),
    };
    let Covered { source, range, is_shard } = place;
    let (source, at, len) = (Arc::clone(source), range.start, range.end.0.saturating_sub(range.start.0));
    Some(ChecksumGate::new(options.verify.clone(), &options.threads, move || {
        let digest = digest.as_ref().map_err(Clone::clone)?;
        let read = |from, dst: &mut [u8]| source.read(at.plus(from), dst, "component");
        digest::over(digest, len, read).map_err(|e| {
            let e = e.at(at);
            if is_shard { e.within(source.path().display()) } else { e }
        })
    }))
}

/// The decoded bytes of `component`, stored at `stored`.
///
/// # Errors
/// Fails if the encoding is unknown, lengths contradict each other, or a digest over decoded bytes is malformed.
pub(super) fn content(
    stored: &FileExtent,
    dialect: Dialect,
    tensor: &Tensor<'_>,
    part: &Component<'_>,
    options: &Options,
) -> Result<Content> {
    let at = part.described_at;
    let expected = decoded_len(tensor, part)?;
    let digest = part.digest.as_deref().filter(|_| !covers_stored(dialect, part));
    let digest = digest.map(Digest::parse).transpose().map_err(|e| e.at(at))?.flatten();
    // A digest over the decoded bytes covers everything served, so the shard's digest is not needed.
    let gate = stored.gate.clone().filter(|_| digest.is_none());
    let stored = FileExtent { gate, ..stored.clone() };
    match &part.encoding {
        Encoding::Unknown(name) => Err(Error::unsupported(format!("the encoding {}", quoted(name)), "encoding").at(at)),
        Encoding::Raw => match swap_width(part)? {
            1 => Ok(Content::FileExtent(stored)),
            width => Ok(Content::Blob(BlobRef::new(ByteSwapped { stored, width }))),
        },
        encoding => Ok(Content::Blob(BlobRef::new(ZstdComponent {
            stored,
            seekable: *encoding == Encoding::Seekable,
            expected,
            digest,
            options: options.clone(),
            stream: Once::new(),
            gate: OnceLock::new(),
        }))),
    }
}

/// The width of the numbers whose bytes must be reversed; 1 if none must.
fn swap_width(part: &Component<'_>) -> Result<u64> {
    match part.endianness.as_deref() {
        None | Some("little") => Ok(1),
        Some("big") => Ok(part.element().map_or(1, |e| e.number_width())),
        Some(other) => {
            Err(Error::corrupt(format!("{} is not a byte order", quoted(other)), "data_endianness")
                .at(part.described_at))
        }
    }
}

/// Big-endian numbers, served as little-endian.
struct ByteSwapped {
    stored: FileExtent,
    width: u64,
}

/// A multiple of every element width.
const PIECE: u64 = 1 << 20;

impl Blob for ByteSwapped {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.stored.len, piece: PIECE })
    }

    fn gate(&self, _: u64) -> Option<ChecksumGate> {
        ChecksumGate::shut(self.stored.gate.as_ref())
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        if let Some(gate) = &self.stored.gate {
            gate.wait()?;
        }
        self.stored.source.read(self.stored.at.plus(piece.saturating_mul(PIECE)), dst, "component")?;
        for number in dst.chunks_exact_mut(to_usize(self.width, "element")?) {
            number.reverse();
        }
        Ok(())
    }
}

/// Zstandard frames.
struct ZstdComponent {
    stored: FileExtent,
    seekable: bool,
    expected: Option<u64>,
    /// The digest of the decoded bytes (dialect 2).
    digest: Option<Digest>,
    options: Options,
    stream: Once<Arc<Stream>>,
    gate: OnceLock<ChecksumGate>,
}

impl ZstdComponent {
    /// The frames, found by walking their headers.
    fn stream(&self) -> Result<&Arc<Stream>> {
        self.stream.get(|| self.open().map(Arc::new))
    }

    /// The frames, checked to decode to the expected length; counts the content once if necessary.
    fn counted(&self) -> Result<&Arc<Stream>> {
        let (stream, at) = (self.stream()?, self.stored.at);
        if let Some(expected) = self.expected {
            let len = stream.size()?;
            return if len == expected { Ok(stream) } else { Err(length_error(len, expected).at(at)) };
        }
        if let Some(len) = stream.known_len() {
            crate::limits::Limits::check(len, MAX_UNKNOWN, "decoded length").map_err(|e| e.at(at))?;
        }
        Ok(stream)
    }

    fn open(&self) -> Result<Stream> {
        let FileExtent { source, at, len, .. } = &self.stored;
        let range = *at..at.plus(*len);
        let mut walk = walk(source, range.clone(), &self.options.limits, &self.options.account)?;
        if self.seekable {
            let table = read_seek_table(source, range, &walk)?
                .ok_or_else(|| Error::corrupt("is missing", "seek table").at(*at))?;
            check_table(&table, self.expected)?;
            for (frame, row) in walk.frames.iter_mut().zip(&table.rows) {
                (frame.content, frame.listed) = (Some(u64::from(row.content)), row.checksum);
            }
        } else if let [only] = walk.frames.as_mut_slice() {
            // A single frame without a content size must decode to the expected length.
            only.content = only.content.or(self.expected);
        }
        let policy = Policy {
            verify: self.options.verify.clone(),
            threads: self.options.threads.clone(),
            window: self.options.window,
            content: MAX_UNKNOWN,
            account: self.options.account.clone(),
        };
        let pieces = Arc::clone(&self.options.pieces);
        let frames =
            Frames::new(Arc::clone(source), walk.frames, walk.charge, Dictionaries::default(), policy, pieces)?;
        Ok(Stream::all(frames))
    }

    fn wait(&self) -> Result<()> {
        if let Some(gate) = &self.stored.gate {
            gate.wait()?;
        }
        let stream = self.counted()?;
        self.digest_gate(stream).map_or(Ok(()), ChecksumGate::wait)
    }

    /// The gate that verifies the decoded bytes of `stream`, the stream of `self`, against the digest, if there is one.
    fn digest_gate(&self, stream: &Arc<Stream>) -> Option<&ChecksumGate> {
        let digest = self.digest.as_ref()?;
        Some(self.gate.get_or_init(|| {
            let (stream, digest, at) = (Arc::clone(stream), digest.clone(), self.stored.at);
            ChecksumGate::new(self.options.verify.clone(), &self.options.threads, move || {
                hash(&stream, &digest).map_err(|e| e.at(at))
            })
        }))
    }
}

/// Verifies the decoded bytes of `stream` against `digest`.
fn hash(stream: &Stream, digest: &Digest) -> Result<()> {
    let layout = layout(stream.pieces()?);
    let mut hasher = digest.start();
    let mut buffer = Vec::new();
    for piece in 0..layout.count() {
        let range = layout.range(piece);
        buffer.resize(to_usize(range.end - range.start, "piece")?, 0);
        stream.decode(piece, &mut buffer)?;
        hasher.update(&buffer);
    }
    digest.check(hasher)
}

fn layout(pieces: Pieces) -> Layout {
    match pieces {
        Pieces::Uniform { len, piece } => Layout::Uniform { len, piece },
        Pieces::Ends(ends) => Layout::Ends(ends),
    }
}

/// Checks a seek table against the additional rules of dialect 2.
fn check_table(table: &SeekTable, expected: Option<u64>) -> Result<()> {
    let wrong = |why: String| Err(Error::corrupt(why, "seek table").at(table.at));
    if table.descriptor & 0x7F != 0 {
        return wrong(format!("the descriptor {:#04x} is not supported", table.descriptor));
    }
    let first = table.rows.first().map_or(0, |row| row.content);
    let Some((last, front)) = table.rows.split_last() else {
        return if expected == Some(0) { Ok(()) } else { wrong("no frames".into()) };
    };
    if first > MAX_FRAME || front.iter().any(|row| row.content != first) || last.content > first {
        return wrong("its frames are not of equal size, or larger than 16 MiB".into());
    }
    let sum: u64 = table.rows.iter().map(|row| u64::from(row.content)).sum();
    if expected.is_some_and(|expected| expected != sum) {
        return wrong(format!("its frames have {sum} bytes instead of {}", expected.unwrap_or(0)));
    }
    Ok(())
}

impl Blob for ZstdComponent {
    fn known_len(&self) -> Option<u64> {
        // Until the frames are walked, the expected length, which `counted` checks later.
        match (self.expected, self.stream.ready()) {
            (expected, Some(Ok(stream))) => stream.known_len().filter(|&len| expected.is_none_or(|want| want == len)),
            (_, Some(Err(_))) => None,
            (expected, None) => expected,
        }
    }

    fn layout(&self) -> Result<Layout> {
        Ok(layout(self.counted()?.pieces()?))
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.wait()?;
        self.counted()?.decode(piece, dst)
    }

    fn sizing(&self) -> Option<ChecksumGate> {
        self.stream().ok()?.sizing()
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let own = || {
            let stream = self.stream.ready()?.ok()?;
            ChecksumGate::shut(self.digest_gate(stream)).or_else(|| stream.gate(piece))
        };
        ChecksumGate::shut(self.stored.gate.as_ref()).or_else(own)
    }

    fn ready(&self, piece: u64) -> Option<Piece> {
        let open = |gate: Option<&ChecksumGate>| gate.is_none_or(ChecksumGate::is_open);
        let checked = self.digest.is_none() || self.gate.get().is_some_and(ChecksumGate::is_open);
        (open(self.stored.gate.as_ref()) && checked).then(|| self.stream.ready()?.ok()?.ready(piece))?
    }
}

/// The file name of shard `name` of the file at `root`.
fn shard_file(root: &Path, name: &str) -> OsString {
    let mut file = root.file_stem().unwrap_or_default().to_os_string();
    file.push(format!("-{name}.zt"));
    file
}

/// Pins the files of the shards, in the directory of the file itself.
///
/// # Errors
/// Fails if the system refuses to. A missing file is only an error when the shard is opened.
pub(super) fn pin_shards(input: &Input, manifest: &Manifest) -> Result<Option<Arc<Folder>>> {
    let Some(dir) = input.dir.as_ref().filter(|_| manifest.shards() > 0) else { return Ok(None) };
    let file = |number| manifest.shard(number).map(|shard| shard_file(&input.path, &shard.name).into_encoded_bytes());
    Folder::pin(dir, (0..manifest.shards()).map(file)).map(Some)
}

/// Opens a shard and compares its size and footer with the manifest; its digest is not computed here.
///
/// # Errors
/// Fails if the file is missing, a link, of another size, or not of dialect 2.
pub(super) fn open_shard(
    root: &Path,
    files: &Arc<Folder>,
    shard: &manifest::Shard<'_>,
    options: &Options,
) -> Result<Shard> {
    let manifest::Shard { name, size, digest } = shard;
    let file = shard_file(root, name);
    let path = root.with_file_name(&file);
    let named = |e: Error| e.within(path.display());
    let source = files.source(&file).map_err(|e| match e.kind() {
        Kind::NotFound => named(Error::corrupt("the file is missing", "shard").at(FileOffset(0))),
        _ => named(e),
    })?;
    if source.len() != *size {
        let why = format!("not the {size} bytes recorded in the manifest");
        return Err(named(Error::corrupt(why, "shard size").at(FileOffset(0))));
    }
    let footer = super::footer::read(&source).map_err(named)?;
    if footer.dialect != Dialect::V2 {
        return Err(named(Error::corrupt("not a zTensor file of dialect 2", "shard").at(FileOffset(0))));
    }
    let all = Covered { source: &source, range: FileOffset(0)..FileOffset(*size), is_shard: true };
    let gate = gate(digest, FileOffset(0), all, options);
    Ok(Shard { source, gate })
}
