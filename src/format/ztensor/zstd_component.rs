//! Components compressed with Zstandard: frames one after the other, or of equal size with a seek table.
//!
//! Reference: sections 6.5 and 9.
//!
//! Piece: 1 MiB; neighbouring small frames share one.
//! Checked: the decoded length against the manifest; the digest over the decoded bytes, as `verify=` says.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::bytes::{FileOffset, to_usize};
use crate::checksum::{ChecksumGate, FailedChecks, StreamHash, Verified, Verify};
use crate::codec::zstd::{
    ContentStream, Dictionaries, FrameList, Frames, Policy, SeekTable, find_frames, length_error,
};
use crate::error::{Error, Kind, Result};
use crate::format::{Blob, FileExtent, Fragmented, InOrder, Layout, Measured, Options, Piece};
use crate::limits::Limits;
use crate::once::Once;

use super::digest::{Digest, Hasher};

/// Maximum decoded size of a component without a size in its manifest entry.
const MAX_UNKNOWN: u64 = 4 << 30;
/// Maximum content of a frame of a seekable component.
const MAX_FRAME: u32 = 16 << 20;

/// Zstandard frames.
pub(super) struct ZstdComponent {
    stored: FileExtent,
    seekable: bool,
    expected: Option<u64>,
    digest: ComponentDigest,
    options: Options,
    stream: Once<Arc<ContentStream>>,
    /// The hash of the decoded bytes, in progress.
    hash: Arc<StreamHash<Hasher>>,
    gate: OnceLock<ChecksumGate>,
}

/// The digest of the decoded bytes, which only dialect 2 has, and whether it has failed.
pub(super) struct ComponentDigest {
    pub(super) digest: Option<Digest>,
    pub(super) described_at: FileOffset,
    pub(super) failed: FailedChecks,
}

impl ComponentDigest {
    /// When checksums of the component are verified.
    fn mode(&self, options: &Options) -> Verify {
        self.failed.mode(self.described_at, &options.verify)
    }

    /// Notes `error` if it is a checksum error: a frame may have its own checksum.
    fn note(&self, error: &Error) {
        if matches!(error.kind(), Kind::Checksum { .. }) {
            self.failed.note(self.described_at, error);
        }
    }
}

impl ZstdComponent {
    /// The decoded bytes of `stored`, which must be `expected` in number; `digest` covers them.
    pub(super) fn new(
        stored: FileExtent,
        is_seekable: bool,
        expected: Option<u64>,
        digest: ComponentDigest,
        options: &Options,
    ) -> Self {
        let (stream, gate, options) = (Once::new(), OnceLock::new(), options.clone());
        // Without a digest nothing is hashed.
        let hash = Arc::new(StreamHash::new(
            digest.digest.as_ref().map_or(Hasher::Crc32c(0), Digest::start),
            &options.account,
        ));
        Self { stored, seekable: is_seekable, expected, digest, options, stream, hash, gate }
    }

    /// The frames, found by scanning their headers.
    fn stream(&self) -> Result<&Arc<ContentStream>> {
        self.stream.get(|| self.open().map(Arc::new))
    }

    /// The frames, checked to decode to the expected length; counts the content once if necessary.
    fn counted(&self) -> Result<&Arc<ContentStream>> {
        let (stream, at) = (self.stream()?, self.stored.at);
        if let Some(expected) = self.expected {
            let len = stream.size()?;
            return if len == expected { Ok(stream) } else { Err(length_error(len, expected).at(at)) };
        }
        if let Some(len) = stream.known_len() {
            Limits::check(len, MAX_UNKNOWN, "decoded length").map_err(|e| e.at(at))?;
        }
        Ok(stream)
    }

    fn open(&self) -> Result<ContentStream> {
        let FileExtent { source, at, len, .. } = &self.stored;
        let range = *at..at.plus(*len);
        let (mut scan, table) = find_frames(source, range, &self.options.limits, &self.options.account, None)?;
        if let Some(error) = scan.unknown.take().or(scan.cut.take().map(|cut| cut.error)) {
            return Err(error);
        }
        if self.seekable {
            let table = table?.ok_or_else(|| Error::corrupt("is missing", "seek table").at(*at))?;
            check_table(&table, &scan.frames, self.expected)?;
            scan.frames.adopt_seek_sizes()?;
        } else if scan.frames.len() == 1 {
            // A single frame without a content size must decode to the expected length.
            scan.frames.update(0, |only| only.content = only.content.or(self.expected))?;
        }
        let policy = Policy {
            verify: self.digest.mode(&self.options),
            threads: self.options.threads.clone(),
            window: self.options.window,
            content: MAX_UNKNOWN,
            account: self.options.account.clone(),
            records: None,
        };
        let pieces = Arc::clone(&self.options.pieces);
        let frames = Frames::new(Arc::clone(source), scan.frames, Dictionaries::default(), policy, pieces)?;
        Ok(ContentStream::all(frames))
    }

    /// The frames, if they were found.
    fn frames(&self) -> Option<&Arc<ContentStream>> {
        self.stream.ready()?.ok()
    }

    /// The frames, if `piece` may be served as they keep it: nothing withholds it, and the digest has no use for it.
    fn served(&self, piece: u64) -> Option<&Arc<ContentStream>> {
        let is_hashed = |gate: &ChecksumGate| {
            gate.is_open() && (!matches!(gate.verified(), Verified::Pending) || self.hash.next() > piece)
        };
        let is_checked = self.digest.digest.is_none() || self.gate.get().is_some_and(is_hashed);
        let is_open = self.stored.gate.as_ref().is_none_or(ChecksumGate::is_open);
        self.frames().filter(|_| is_checked && is_open)
    }

    /// Decodes `piece` into `dst`; the digest is verified before or after that if `is_confirmed`.
    fn decode_hashed(&self, piece: u64, dst: &mut [u8], is_confirmed: bool) -> Result<()> {
        self.checked(piece, is_confirmed, |stream, is_digested| {
            stream.decode(piece, dst)?;
            if is_digested {
                self.hash.feed(piece, dst, Hasher::update);
            }
            Ok(())
        })
    }

    /// Decodes bytes of `piece` with `decode`, which learns whether there is a digest. The checksums that cover them
    /// are verified before or after it, the one over decoded bytes if `is_confirmed`.
    fn checked(
        &self,
        piece: u64,
        is_confirmed: bool,
        decode: impl FnOnce(&ContentStream, bool) -> Result<()>,
    ) -> Result<()> {
        let stream = self.counted()?;
        let digest_gate = self.digest_gate(stream);
        let gate = digest_gate.filter(|_| is_confirmed);
        let is_end = Self::is_end(stream, piece)?;
        ChecksumGate::wait_before(self.stored.gate.as_ref(), is_end)?;
        // The last piece is decoded before it is waited for, so that the hash needs no second decode.
        if !is_end {
            ChecksumGate::wait_before(gate, false)?;
        }
        decode(stream, digest_gate.is_some()).inspect_err(|e| self.digest.note(e))?;
        if is_end { ChecksumGate::wait_before(gate, true) } else { Ok(()) }
    }

    /// Whether `piece` of `stream` is the last one.
    fn is_end(stream: &ContentStream, piece: u64) -> Result<bool> {
        Ok(piece.saturating_add(1) >= Layout::from(stream.pieces()?).count())
    }

    /// The gate that verifies the decoded bytes of `stream`, the stream of `self`, against the digest, if there is one.
    fn digest_gate(&self, stream: &Arc<ContentStream>) -> Option<&ChecksumGate> {
        let ComponentDigest { digest, described_at, failed } = &self.digest;
        let digest = digest.as_ref()?;
        Some(self.gate.get_or_init(|| {
            let (stream, digest, at) = (Arc::clone(stream), digest.clone(), self.stored.at);
            let (hash, cost) = (Arc::clone(&self.hash), self.expected.unwrap_or(u64::MAX));
            let (mode, described_at, failed) = (self.digest.mode(&self.options), *described_at, failed.clone());
            let (near, hashed) = (Arc::clone(&stream), Arc::clone(&hash));
            let stored = digest.bytes();
            let check = self.options.index.once(&self.stored.source, at, &stored, cost, move || {
                check(&stream, &digest, &hash).map_err(|e| e.at(at)).inspect_err(|e| failed.note(described_at, e))
            });
            let gate = ChecksumGate::lazy(&mode, cost, &self.options.threads, check);
            // The readers have decoded all but a few pieces at the end.
            gate.near(move || near.pieces().is_ok_and(|pieces| hashed.is_almost(Layout::from(pieces).count())))
        }))
    }
}

/// Verifies the decoded bytes of `stream` against `digest`; decodes the ones that are not in `hash` yet.
fn check(stream: &ContentStream, digest: &Digest, hash: &StreamHash<Hasher>) -> Result<()> {
    let layout = Layout::from(stream.pieces()?);
    let decode = |piece, buffer: &mut Vec<u8>| {
        let range = layout.range(piece);
        buffer.resize(to_usize(range.end - range.start, "piece")?, 0);
        stream.decode(piece, buffer)
    };
    digest.check(hash.finish(layout.count(), decode, Hasher::update)?)
}

/// Checks a seek table against the additional rules of dialect 2.
fn check_table(table: &SeekTable, frames: &FrameList, expected: Option<u64>) -> Result<()> {
    let wrong = |why: String| Err(Error::corrupt(why, "seek table").at(table.at));
    if table.descriptor & 0x7F != 0 {
        return wrong(format!("the descriptor {:#04x} is not supported", table.descriptor));
    }
    if frames.is_empty() {
        return if expected == Some(0) { Ok(()) } else { wrong("no frames".into()) };
    }
    let sizes = || frames.iter().map(|frame| frame.seek_content.unwrap_or(0));
    let (first, front) = (sizes().next().unwrap_or(0), frames.len() - 1);
    if first > MAX_FRAME || sizes().take(front).any(|size| size != first) || sizes().any(|size| size > first) {
        return wrong("its frames are not of equal size, or larger than 16 MiB".into());
    }
    let sum: u64 = sizes().map(u64::from).sum();
    if expected.is_some_and(|expected| expected != sum) {
        return wrong(format!("its frames have {sum} bytes instead of {}", expected.unwrap_or(0)));
    }
    Ok(())
}

impl Blob for ZstdComponent {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::from(self.counted()?.pieces()?))
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.decode_hashed(piece, dst, true)
    }

    fn verified(&self, range: Range<u64>) -> Verified {
        let state = |gate: Option<&ChecksumGate>| gate.map(ChecksumGate::verified);
        let own = self.digest.digest.as_ref().map(|_| state(self.gate.get()).unwrap_or(Verified::Pending));
        let frames = || self.frames().map_or(Verified::Pending, |stream| stream.verified(range));
        own.or_else(|| state(self.stored.gate.as_ref())).unwrap_or_else(frames)
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let Some(Ok(stream)) = self.stream.ready() else { return ChecksumGate::shut(self.stored.gate.as_ref(), false) };
        let is_end = Self::is_end(stream, piece).unwrap_or(true);
        // If all pieces before the last one are hashed, decoding it completes the hash.
        let waits = is_end && self.hash.next() < piece;
        ChecksumGate::shut(self.stored.gate.as_ref(), is_end)
            .or_else(|| ChecksumGate::shut(self.digest_gate(stream), waits))
            .or_else(|| stream.gate(piece))
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }

    fn fragmented(&self) -> Option<&dyn Fragmented> {
        Some(self)
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }
}

impl Measured for ZstdComponent {
    fn known_len(&self) -> Option<u64> {
        // Until the frames are scanned, the expected length, which `counted` checks later.
        match (self.expected, self.stream.ready()) {
            (expected, Some(Ok(stream))) => stream.known_len().filter(|&len| expected.is_none_or(|want| want == len)),
            (_, Some(Err(_))) => None,
            (expected, None) => expected,
        }
    }

    fn sizing(&self) -> Option<ChecksumGate> {
        self.stream().ok()?.sizing()
    }
}

impl Fragmented for ZstdComponent {
    fn fragments(&self) -> Option<Layout> {
        self.frames()?.fragments().map(Layout::from)
    }

    fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        self.checked(piece, true, |stream, _| stream.decode_fragment(piece, at, dst))
    }
}

impl InOrder for ZstdComponent {
    fn is_run(&self, piece: u64) -> bool {
        self.frames().is_some_and(|stream| stream.is_run(piece))
    }

    fn decode_unconfirmed(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.decode_hashed(piece, dst, false)
    }

    fn confirm(&self) -> Result<()> {
        ChecksumGate::wait_before(self.digest_gate(self.counted()?), true)
    }

    fn note_read(&self, piece: u64) {
        if let Some(stream) = self.frames() {
            stream.note_read(piece);
        }
    }

    fn ready(&self, piece: u64) -> Option<Piece> {
        self.served(piece)?.ready(piece)
    }

    fn is_coming(&self, piece: u64) -> bool {
        match self.served(piece) {
            Some(stream) => stream.is_coming(piece),
            // A prefetch must not wait for the frame, but copies and hashes decoded bytes.
            None => self.frames().is_some_and(|stream| stream.is_coming(piece) && stream.ready(piece).is_none()),
        }
    }

    fn ready_soon(&self, piece: u64) -> Option<Piece> {
        self.served(piece)?.ready_soon(piece)
    }
}
