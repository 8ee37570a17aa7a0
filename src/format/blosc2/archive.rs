//! ZIP archives of frames (`.b2z`): members are stored uncompressed, and most of them are frames.
//!
//! Reference: section 1 (frames embedded in other containers); of ZIP the end record, the central directory, local
//! headers, and ZIP64.
//! Shows as: a directory for each member that is a frame, named after the member; other members as files.
//! Checked: the central directory is inside the file, and each member ends before it; the CRC-32 of a member before
//! its first byte is served (subject to `verify`), not when it is listed.
//! Limits: the central directory is read whole; members are opened when they are accessed, and of those that are not in
//! use the last [`OPEN`] stay open.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lru::LruCache;
use serde_json::{Map, json};

use crate::account::decode_budget;
use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::checksum::{ChecksumGate, Threads, Verify, crc32};
use crate::error::{Error, Kind, Result};
use crate::limits::{Charge, Limits};
use crate::source::Source;

use super::entries::failing;
use super::frame::{Frame, MAGIC};
use super::frames::{FrameDir, OpenFrame};
use super::info;
use super::memory::Memory;
use crate::format::{
    Arrays, Check, Container, Content, Directory, Entry, File, FileExtent, Found, Info, Node, Options,
};

/// Magic of a local header, with which every archive that has members begins.
pub(super) const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// Bytes of a local header up to the name.
const LOCAL_LEN: u64 = 30;
/// Shortest entry of the central directory.
const ENTRY_LEN: u64 = 46;
/// Magic of an entry of the central directory.
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
/// Magic of the end record, and its size without the comment.
const END: [u8; 4] = *b"PK\x05\x06";
const END_LEN: u64 = 22;
/// Magics of the ZIP64 end record and of its locator.
const END64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
/// Size of the id and the length before each part of an extra field.
const EXTRA_HEAD: usize = 4;
/// Members that stay open, of some kilobytes each.
const OPEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Marks a 32-bit field whose value is in the ZIP64 extra field.
const FULL: u64 = 0xFFFF_FFFF;

/// Whether a file that begins with `head` is an archive whose first member is a frame.
pub(super) fn detect(head: &[u8]) -> bool {
    let first = || {
        let mut cur = Cursor::new(head, FileOffset(0));
        (cur.array("magic").ok()? == LOCAL).then_some(())?;
        cur.take(22, "local header").ok()?;
        let skip = usize::from(cur.u16_le("name length").ok()?);
        let extra = usize::from(cur.u16_le("extra length").ok()?);
        cur.take(skip, "name").ok()?;
        cur.take(extra, "extra").ok()?;
        (cur.array("magic").ok()? == MAGIC).then_some(())
    };
    first().is_some()
}

/// An archive, as described by its central directory.
pub(super) struct Archive {
    source: Arc<Source>,
    members: Vec<Arc<Member>>,
    _charge: Charge,
}

/// The members that were opened last, by the offset of their local header.
struct OpenMembers(Mutex<LruCache<u64, Arc<OpenFrame>>>);

impl OpenMembers {
    fn lock(&self) -> MutexGuard<'_, LruCache<u64, Arc<OpenFrame>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member of an archive.
struct Member {
    source: Arc<Source>,
    memory: Arc<Memory>,
    verify: Verify,
    threads: Threads,
    name: Vec<u8>,
    /// Compression method; 0: stored.
    method: u16,
    is_encrypted: bool,
    crc: u32,
    /// Decoded size in bytes.
    len: u64,
    /// Offset of its local header.
    local: FileOffset,
    open: Arc<OpenMembers>,
    gate: OnceLock<ChecksumGate>,
}

impl Archive {
    /// Reads the central directory.
    pub(super) fn open(source: &Arc<Source>, options: &Options, memory: &Arc<Memory>) -> Result<Self> {
        let (at, len) = directory(source)?;
        Limits::check(len, options.limits.structure, "central directory").map_err(|e| e.at(at))?;
        // An entry of at least 46 bytes becomes a `Member`, and the name is copied.
        let each = to_u64(size_of::<Member>()).div_ceil(ENTRY_LEN).saturating_add(1);
        let charge = options.account.charge(len.saturating_mul(each), "central directory")?;
        let bytes = source.get(at, len, "central directory")?;
        let mut cur = Cursor::new(&bytes, at);
        let (mut members, open) = (Vec::new(), Arc::new(OpenMembers(Mutex::new(LruCache::sparse(OPEN)))));
        while !cur.is_empty() {
            members.push(Arc::new(Member::read(&mut cur, source, at, options, memory, &open)?));
        }
        Ok(Self { source: source.clone(), members, _charge: charge })
    }
}

/// Offset and size of the central directory.
fn directory(source: &Source) -> Result<(FileOffset, u64)> {
    // The end record is followed by a comment of up to 64 KiB.
    let max_len = END_LEN.saturating_add(u16::MAX.into()).min(source.len());
    let start = source.len().saturating_sub(max_len);
    let bytes = source.get(FileOffset(start), max_len, "end of central directory")?;
    let found = bytes.windows(END.len()).rposition(|window| window == END);
    let no_end = || Error::corrupt("missing", "end of central directory").at(FileOffset(start));
    let skip = found.ok_or_else(no_end)?;
    let end = FileOffset(start).plus(to_u64(skip));
    let mut cur = Cursor::new(bytes.get(skip..).unwrap_or_default(), end);
    cur.take(12, "end of central directory")?;
    let (mut len, mut at) = (u64::from(cur.u32_le("size")?), u64::from(cur.u32_le("offset")?));
    if len == FULL || at == FULL {
        let locator_at = FileOffset(end.0.saturating_sub(LOCATOR_LEN));
        let locator = source.get(locator_at, LOCATOR_LEN, "ZIP64 locator")?;
        let mut cur = Cursor::new(&locator, locator_at);
        expect(&mut cur, LOCATOR, "ZIP64 locator")?;
        cur.u32_le("disk")?;
        let end64 = FileOffset(cur.u64_le("ZIP64 end offset")?);
        let record = source.get(end64, 56, "ZIP64 end of central directory")?;
        let mut cur = Cursor::new(&record, end64);
        expect(&mut cur, END64, "ZIP64 end of central directory")?;
        cur.take(36, "ZIP64 end of central directory")?;
        (len, at) = (cur.u64_le("size")?, cur.u64_le("offset")?);
    }
    if at.checked_add(len).is_none_or(|stop| stop > end.0) {
        let why = format!("{len} bytes at {at:#x} extend past byte {:#x}", end.0);
        return Err(Error::corrupt(why, "central directory").at(end));
    }
    Ok((FileOffset(at), len))
}

fn expect(cur: &mut Cursor, magic: [u8; 4], what: &'static str) -> Result<()> {
    let at = cur.at();
    if cur.array::<4>(what)? == magic {
        return Ok(());
    }
    Err(Error::corrupt("bad signature", what).at(at))
}

impl Member {
    /// Reads the next entry of the central directory, which starts at `directory`.
    fn read(
        cur: &mut Cursor,
        source: &Arc<Source>,
        directory: FileOffset,
        options: &Options,
        memory: &Arc<Memory>,
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
            name,
            method,
            is_encrypted: flags & 1 != 0,
            crc,
            len,
            local: FileOffset(local),
            open: Arc::clone(open),
            gate: OnceLock::new(),
        })
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Offset of its first byte.
    fn start(&self) -> Result<FileOffset> {
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
    fn frame_start(&self) -> Result<Option<FileOffset>> {
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
        let key = self.local.0;
        if let Some(frame) = self.open.lock().get(&key) {
            return Ok(Arc::clone(frame));
        }
        let open = || {
            let mut frame = Frame::contiguous(&self.source, start, &self.memory)?;
            if frame.header.frame_len > self.len {
                let why = format!("{} bytes in a member of {} bytes", frame.header.frame_len, self.len);
                return Err(Error::corrupt(why, "frame_len").at(start.plus(0x0F)));
            }
            frame.gate = Some(self.gate(start).clone());
            Ok(Arc::new(OpenFrame::new(frame)))
        };
        let frame = decode_budget::once(open)?;
        // Another thread may have been faster.
        Ok(Arc::clone(self.open.lock().get_or_insert(key, || frame)))
    }

    /// Opens the frame that it is; `None` if it is something else.
    ///
    /// # Errors
    /// Fails if it is corrupt, or cannot be read now.
    fn open_frame(&self) -> Result<Option<Arc<OpenFrame>>> {
        self.frame_start().and_then(|start| start.map(|start| self.frame(start)).transpose())
    }

    /// The gate that withholds the bytes from `start` on until their CRC-32 is verified.
    fn gate(&self, start: FileOffset) -> &ChecksumGate {
        self.gate.get_or_init(|| {
            let (source, len, stored, threads) = (self.source.clone(), self.len, self.crc, self.threads.clone());
            let near = source.clone();
            let gate = ChecksumGate::new(&self.verify, len, &self.threads, move || {
                match crc32(&source, start, len, &threads, "member")? {
                    computed if computed == stored => Ok(()),
                    computed => {
                        let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
                        Err(Error::new(kind, "crc-32").at(start))
                    }
                }
            });
            gate.near(move || near.is_near(start, len))
        })
    }

    /// The file or directory that the member is shown as. A corrupt member becomes a file that fails on every use.
    ///
    /// # Errors
    /// Fails if the member cannot be read now.
    fn node(self: &Arc<Self>) -> Result<Node> {
        let stored = |at| {
            let (source, gate) = (self.source.clone(), Some(self.gate(at).clone()));
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
        // The verdict about its bytes is kept by the member.
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let frame = self.member.frame(self.start).map_err(|e| e.within(self.member.shown()))?;
        FrameDir(frame).entries()
    }
}

/// The arrays of the members that are frames, opened on first use.
struct MemberArrays(Vec<Arc<Member>>);

impl MemberArrays {
    fn member(&self, index: u64) -> Result<&Arc<Member>> {
        self.0.get(to_usize(index, "member")?).ok_or_else(|| Error::new(Kind::NotFound, "member"))
    }
}

impl Arrays for MemberArrays {
    fn count(&self) -> u64 {
        to_u64(self.0.len())
    }

    fn find(&self, index: u64) -> Result<Found> {
        let member = self.member(index)?;
        match member.open_frame().and_then(|frame| frame.map(|frame| frame.found(&member.name)).transpose()) {
            Ok(found) => Ok(found.unwrap_or(Found::Nothing)),
            Err(e) if e.is_lasting() => Ok(Found::LeftOut(member.name.clone(), e.to_string().into())),
            Err(e) => Err(e),
        }
    }

    fn file(&self, index: u64) -> Result<File> {
        self.member(index)?.open_frame()?.ok_or_else(|| Error::corrupt("not a frame", "member"))?.data()
    }
}

impl Container for Archive {
    fn info(&self) -> Info {
        let member = |m: &Arc<Member>| json!({ "name": m.shown(), "offset": m.local.0, "size": m.len, "crc32": m.crc });
        let mut details = Map::new();
        details.insert("kind".into(), "archive".into());
        details.insert("members".into(), self.members.iter().map(member).collect());
        info::container("zip".into(), (self.source.len(), None), Some(self.members.len()), details)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let folder = |m: &&Arc<Member>| !m.name.ends_with(b"/");
        let entry = |m: &Arc<Member>| Ok(Entry { nested: true, ..Entry::named(m.name.clone(), "", m.node()?) });
        self.members.iter().filter(folder).map(entry).collect()
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(Some(Arc::new(MemberArrays(self.members.clone()))))
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        for member in &self.members {
            let (name, this) = (member.shown(), member.clone());
            let run = Box::new(move || this.gate(this.start()?).check());
            checks.push(Check::Run { name: name.clone(), bytes: member.len, run });
            match member.open_frame() {
                Ok(Some(frame)) => checks.extend(frame.checks(&format!("{name}: "))),
                Ok(None) => {}
                Err(e) => checks.push(Check::Run { name, bytes: 0, run: Box::new(move || Err(e.clone())) }),
            }
        }
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.source.clone()]
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Archive({:?})", self.source.path())
    }
}
