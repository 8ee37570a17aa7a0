//! ZIP archives of frames (`.b2z`): members are stored uncompressed, and most of them are frames.
//!
//! Reference: section 1 (frames embedded in other containers); of ZIP the end record, the central directory, local
//! headers, and ZIP64.
//! Shows as: a directory for each member that is a frame, named after the member; other members as files. A store of
//! python-blosc2, which has a member [`store::EMBEDDED`]: a directory for each leaf, also for those in that member, named after
//! its key.
//! Checked: the central directory is inside the file, and each member ends before it; the CRC-32 of a member before
//! its first byte is served (subject to `verify`), not when it is listed.
//! Limits: the central directory is read whole; members are opened when they are accessed; `info.json` lists 1000.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod member;

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::limits::{Charge, Limits};
use crate::source::Source;

use super::frame::MAGIC;
use super::frames::OpenFrame;
use super::info;
use super::memory::ContainerMemory;
use super::store::{self, Store, StoreMember};
use crate::format::{Arrays, Check, Container, Entry, Info, Node, Options};

use member::{Member, OpenMembers};

/// Magic of a local header, with which every archive that has members begins.
pub(super) const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// Shortest entry of the central directory.
const ENTRY_LEN: u64 = 46;
/// Magic of the end record, and its size without the comment.
const END: [u8; 4] = *b"PK\x05\x06";
const END_LEN: u64 = 22;
/// Magics of the ZIP64 end record and of its locator.
const END64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
/// Marks a 32-bit field with its value in the ZIP64 extra field.
const FULL: u64 = 0xFFFF_FFFF;
/// Maximum members in `info.json`, which is built in memory.
const LISTED: usize = 1000;

/// Whether `head` begins an archive with a frame as its first member.
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
pub(super) struct B2zArchive {
    source: Arc<Source>,
    store: Store<Member>,
    _charge: Charge,
}

impl B2zArchive {
    /// Reads the central directory.
    pub(super) fn open(source: &Arc<Source>, options: &Options, memory: &Arc<ContainerMemory>) -> Result<Self> {
        let (at, len) = directory(source)?;
        Limits::check(len, options.limits.structure, "central directory").map_err(|e| e.at(at))?;
        // An entry of at least 46 bytes becomes a `Member`, and the name is copied, perhaps three times.
        let each = to_u64(size_of::<Member>()).div_ceil(ENTRY_LEN).saturating_add(3);
        let charge = options.account.charge(len.saturating_mul(each), "central directory")?;
        let bytes = source.get(at, len, "central directory")?;
        let mut cur = Cursor::new(&bytes, at);
        let (mut members, open) = (Vec::new(), Arc::new(OpenMembers::default()));
        while !cur.is_empty() {
            members.push(Arc::new(Member::read(&mut cur, source, at, options, memory, &open)?));
        }
        let is_store = members.iter().any(|member| member.name == store::EMBEDDED);
        let store = Store::new(source, members, is_store, options)?;
        Ok(Self { source: source.clone(), store, _charge: charge })
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

impl StoreMember for Member {
    fn name(&self) -> &[u8] {
        &self.name
    }

    fn is_frame(&self) -> Result<bool> {
        self.frame_start().map(|start| start.is_some())
    }

    fn open_frame(&self) -> Result<Option<Arc<OpenFrame>>> {
        self.open_frame()
    }

    fn node(self: &Arc<Self>) -> Result<Node> {
        self.node()
    }
}

impl Container for B2zArchive {
    fn info(&self) -> Info {
        let member = |m: &Arc<Member>| json!({ "name": m.shown(), "offset": m.local.0, "size": m.len, "crc32": m.crc });
        let all = self.store.members();
        let mut details = Map::new();
        details.insert("kind".into(), "archive".into());
        details.insert("members".into(), all.iter().take(LISTED).map(member).collect());
        if let Some(more @ 1..) = all.len().checked_sub(LISTED) {
            details.insert("members_not_listed".into(), more.into());
        }
        self.store.add_info(&mut details);
        info::container("zip".into(), (self.source.len(), None), Some(all.len()), details)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.store.entries()
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        self.store.arrays().map(Some)
    }

    fn checks(&self) -> Vec<Check> {
        let sums = self.store.members().iter().map(|member| {
            let (name, this) = (member.shown(), member.clone());
            Check::Run { name, bytes: member.len, run: Box::new(move || this.gate(this.start()?).check()) }
        });
        sums.chain(self.store.checks()).collect()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.source.clone()]
    }
}

impl fmt::Debug for B2zArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "B2zArchive({:?})", self.source.path())
    }
}
