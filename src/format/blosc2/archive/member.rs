//! A member of an archive: its entry in the central directory, and the frame that it is.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use super::{FULL, LOCAL, expect};
use crate::account::decode_budget;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::checksum::{ChecksumGate, FailedChecks, Threads, Verify, crc32};
use crate::error::{Error, Kind, Result};
use crate::format::blosc2::entries::failing;
use crate::format::blosc2::frame::{Frame, MAGIC};
use crate::format::blosc2::frames::{self, FrameDir, OpenFrame, OpenFrames};
use crate::format::blosc2::memory::ContainerMemory;
use crate::format::{Content, Directory, Entry, File, FileExtent, Node, Options};
use crate::index::Index;
use crate::source::Source;

/// Bytes of a local header up to the name.
const LOCAL_LEN: u64 = 30;
/// Magic of an entry of the central directory.
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
/// Size of the id and the length before each part of an extra field.
const EXTRA_HEAD: usize = 4;

/// The members that were opened last, by the offset of their local header, and the checksums that have failed.
pub(super) struct OpenMembers {
    frames: OpenFrames,
    failed: FailedChecks,
}

impl Default for OpenMembers {
    fn default() -> Self {
        Self { frames: OpenFrames::new(frames::OPEN), failed: FailedChecks::default() }
    }
}

/// A member of an archive.
pub(super) struct Member {
    source: Arc<Source>,
    memory: Arc<ContainerMemory>,
    verify: Verify,
    threads: Threads,
    index: Index,
    pub(super) name: Vec<u8>,
    /// Compression method; 0: stored.
    method: u16,
    is_encrypted: bool,
    pub(super) crc: u32,
    /// Decoded size in bytes.
    pub(super) len: u64,
    /// Offset of its local header.
    pub(super) local: FileOffset,
    open: Arc<OpenMembers>,
}

impl Member {
    /// Reads the next entry of the central directory, which starts at `directory`.
    pub(super) fn read(
        cur: &mut Cursor,
        source: &Arc<Source>,
        directory: FileOffset,
        options: &Options,
        memory: &Arc<ContainerMemory>,
        open: &Arc<OpenMembers>,
    ) -> Result<Self> {
        let entry_at = cur.at();
        expect(cur, CENTRAL, "central directory entry")?;
        cur.take(4, "versions")?;
        let flags = cur.u16_le("flags")?;
        let method = cur.u16_le("method")?;
        cur.take(4, "time")?;
        let crc = cur.u32_le("crc-32")?;
        let [stored, len] = [cur.u32_le("compressed size")?, cur.u32_le("size")?];
        let name_len = cur.u16_le("name length")?;
        let extra_len = cur.u16_le("extra length")?;
        let comment_len = cur.u16_le("comment length")?;
        cur.take(8, "attributes")?;
        let local = cur.u32_le("local header offset")?;
        let name = cur.take(name_len.into(), "name")?.to_vec();
        let mut extra = cur.sub(extra_len.into(), "extra")?;
        cur.take(comment_len.into(), "comment")?;
        // The ZIP64 extra field holds only the fields that overflowed, in this order.
        let [mut stored, mut len, mut local] = [stored, len, local].map(u64::from);
        // Tools that align members pad the field with up to 3 bytes.
        while extra.len() >= EXTRA_HEAD {
            let id = extra.u16_le("extra id")?;
            let size = extra.u16_le("extra size")?;
            let mut field = extra.sub(size.into(), "extra")?;
            if id == 1 {
                for value in [&mut len, &mut stored, &mut local].into_iter().filter(|value| **value == FULL) {
                    *value = field.u64_le("ZIP64 field")?;
                }
            }
        }
        let fits = local.checked_add(LOCAL_LEN).and_then(|at| at.checked_add(stored)).is_some_and(|e| e <= directory.0);
        if !fits || (method == 0 && stored != len) {
            let why = if fits {
                format!("{stored} stored bytes, but {len} uncompressed ones")
            } else {
                format!("{stored} bytes at {local:#x} do not fit before the central directory")
            };
            return Err(Error::corrupt(why, "central directory entry").at(entry_at));
        }
        Ok(Self {
            source: source.clone(),
            memory: Arc::clone(memory),
            verify: options.verify.clone(),
            threads: options.threads.clone(),
            index: options.index.clone(),
            name,
            method,
            is_encrypted: flags & 1 != 0,
            crc,
            len,
            local: FileOffset(local),
            open: Arc::clone(open),
        })
    }

    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Offset of its first byte.
    pub(super) fn start(&self) -> Result<FileOffset> {
        if self.is_encrypted {
            return Err(Error::unsupported("an encrypted member", "flags").at(self.local.plus(6)));
        }
        if self.method != 0 {
            let which = format!("a compressed member (method {})", self.method);
            return Err(Error::unsupported(which, "method").at(self.local.plus(8)));
        }
        let header = self.source.get(self.local, LOCAL_LEN, "local header")?;
        let mut cur = Cursor::new(&header, self.local);
        expect(&mut cur, LOCAL, "local header")?;
        cur.take(22, "local header")?;
        let skip = u64::from(cur.u16_le("name length")?).saturating_add(cur.u16_le("extra length")?.into());
        let start = self.local.plus(LOCAL_LEN).plus(skip);
        match start.0.checked_add(self.len) {
            Some(end) if end <= self.source.len() => Ok(start),
            _ => Err(Error::corrupt("the member extends past the end of the file", "local header").at(self.local)),
        }
    }

    /// Offset of its first byte if it is a frame; `None` if it is something else.
    pub(super) fn frame_start(&self) -> Result<Option<FileOffset>> {
        let start = self.start()?;
        let mut magic = [0; MAGIC.len()];
        if self.len < to_u64(MAGIC.len()) {
            return Ok(None);
        }
        self.source.read(start, &mut magic, "magic")?;
        Ok((magic == MAGIC).then_some(start))
    }

    /// Opens the frame at `start`, unless it is open.
    fn frame(&self, start: FileOffset) -> Result<Arc<OpenFrame>> {
        let open = || {
            let mut frame = Frame::contiguous(&self.source, start, &self.memory)?;
            if frame.header.frame_len > self.len {
                let why = format!("{} bytes in a member of {} bytes", frame.header.frame_len, self.len);
                return Err(Error::corrupt(why, "frame_len").at(start.plus(0x0F)));
            }
            frame.gate = Some(self.gate(start));
            Ok(frame)
        };
        self.open.frames.get_or_open(self.local.0, || decode_budget::once(open).map(OpenFrame::shared))
    }

    /// Opens the frame that it is; `None` if it is something else.
    ///
    /// # Errors
    /// Fails if it is corrupt, or cannot be read now.
    pub(super) fn open_frame(&self) -> Result<Option<Arc<OpenFrame>>> {
        self.frame_start().and_then(|start| start.map(|start| self.frame(start)).transpose())
    }

    /// The gate that withholds the bytes from `start` on until their CRC-32 is verified.
    pub(super) fn gate(&self, start: FileOffset) -> ChecksumGate {
        let (source, len, stored, threads) = (self.source.clone(), self.len, self.crc, self.threads.clone());
        let (local, failed, near) = (self.local, self.open.failed.clone(), source.clone());
        let mode = failed.mode(local, &self.verify);
        let check = self.index.once(&near, start, &stored.to_le_bytes(), len, move || {
            match crc32(&source, start, len, &threads, "member")? {
                computed if computed == stored => Ok(()),
                computed => {
                    let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
                    let error = Error::new(kind, "crc-32").at(start);
                    failed.note(local, &error);
                    Err(error)
                }
            }
        });
        ChecksumGate::new(&mode, len, &self.threads, check).near(move || near.is_near(start, len))
    }

    /// The file or directory that the member is shown as. A corrupt member becomes a file that fails on every use.
    ///
    /// # Errors
    /// Fails if the member cannot be read now.
    pub(super) fn node(self: &Arc<Self>) -> Result<Node> {
        let stored = |at| {
            let (source, gate) = (self.source.clone(), Some(self.gate(at)));
            Content::FileExtent(FileExtent { source, at, len: self.len, gate })
        };
        let content = match self.frame_start().and_then(|frame| Ok((frame, self.start()?))) {
            Ok((Some(start), _)) => return Ok(Node::Dir(Arc::new(MemberDir { member: self.clone(), start }))),
            Ok((None, start)) => stored(start),
            Err(error) => failing(error.within(self.shown()))?,
        };
        Ok(File::new(content).stored(self.len).into())
    }
}

/// The directory of a member that is a frame.
struct MemberDir {
    member: Arc<Member>,
    start: FileOffset,
}

impl Directory for MemberDir {
    fn is_made_again(&self) -> bool {
        // That its checksum has failed is kept by the archive.
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let frame = self.member.frame(self.start).map_err(|e| e.within(self.member.shown()))?;
        FrameDir(frame).entries()
    }
}
