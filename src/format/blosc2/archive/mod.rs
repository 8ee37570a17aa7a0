//! ZIP archives of frames (`.b2z`): members are stored uncompressed, and most of them are frames.
//!
//! Reference: section 1 (frames embedded in other containers); of ZIP the end record, the central directory, local
//! headers, and ZIP64.
//! Shows as: a directory for each member that is a frame, named after the member; other members as files. A store of
//! python-blosc2, which has a member [`EMBEDDED`]: a directory for each leaf, also for those in that member, named after
//! its key.
//! Checked: the central directory is inside the file, and each member ends before it; the CRC-32 of a member before
//! its first byte is served (subject to `verify`), not when it is listed.
//! Limits: the central directory is read whole; members are opened when they are accessed; `info.json` lists 1000.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod member;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::about::Attributes;
use crate::limits::{Charge, Limits};
use crate::source::Source;

use super::embed_store::{self, EmbedStore};
use super::frame::MAGIC;
use super::frames::OpenFrame;
use super::info;
use super::memory::Memory;
use super::table::{Leaves, Tables};
use crate::format::{Arrays, Check, Container, Entry, File, Found, Info, Options};

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
/// The member with the small leaves of a store, and the extensions of the others, which are not part of their keys.
const EMBEDDED: &[u8] = b"embed.b2e";
const LEAVES: [&[u8]; 3] = [b".b2nd", b".b2f", b".b2b"];
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
pub(super) struct Archive {
    source: Arc<Source>,
    members: Arc<Members>,
    tables: Arc<Tables>,
    _charge: Charge,
}

/// The members, and those in the embedded store.
struct Members {
    source: Arc<Source>,
    all: Vec<Arc<Member>>,
    /// Whether they are the leaves of a store.
    is_store: bool,
    /// The members with the attributes of a group, by its name.
    groups: HashMap<Vec<u8>, usize>,
    /// `None` also if it is broken: then it is shown as it is.
    embedded: Option<Arc<EmbedStore>>,
}

impl Archive {
    /// Reads the central directory.
    pub(super) fn open(source: &Arc<Source>, options: &Options, memory: &Arc<Memory>) -> Result<Self> {
        let (at, len) = directory(source)?;
        Limits::check(len, options.limits.structure, "central directory").map_err(|e| e.at(at))?;
        // An entry of at least 46 bytes becomes a `Member`, and the name is copied, perhaps twice.
        let each = to_u64(size_of::<Member>()).div_ceil(ENTRY_LEN).saturating_add(2);
        let charge = options.account.charge(len.saturating_mul(each), "central directory")?;
        let bytes = source.get(at, len, "central directory")?;
        let mut cur = Cursor::new(&bytes, at);
        let (mut members, open) = (Vec::new(), Arc::new(OpenMembers::default()));
        while !cur.is_empty() {
            members.push(Arc::new(Member::read(&mut cur, source, at, options, memory, &open)?));
        }
        let members = Arc::new(Members::new(source, members, options)?);
        let leaves: Arc<dyn Leaves> = members.clone();
        let tables = Arc::new(Tables::find(&members.keys(), &leaves, options)?);
        Ok(Self { source: source.clone(), members, tables, _charge: charge })
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

/// The key of the leaf of a store that is called `name`.
fn key(name: &[u8]) -> &[u8] {
    LEAVES.iter().find_map(|suffix| name.strip_suffix(*suffix)).unwrap_or(name)
}

impl Members {
    fn new(source: &Arc<Source>, all: Vec<Arc<Member>>, options: &Options) -> Result<Self> {
        let source = Arc::clone(source);
        let Some(member) = all.iter().find(|member| member.name == EMBEDDED) else {
            return Ok(Self { source, all, is_store: false, groups: HashMap::new(), embedded: None });
        };
        let frame = match member.open_frame() {
            Err(e) if e.is_lasting() => None,
            frame => frame?.filter(|frame| embed_store::is_store(&frame.frame)),
        };
        let embedded = match frame.map(|frame| EmbedStore::open_in(frame, options)).transpose() {
            Err(e) if e.is_lasting() => None,
            store => store?,
        };
        let groups = embed_store::by_group(all.iter().map(|member| key(&member.name)));
        Ok(Self { source, all, is_store: true, groups, embedded })
    }

    /// The keys of the leaves of a store, with their numbers.
    fn keys(&self) -> Vec<(&[u8], u64)> {
        let own = self.all.iter().filter(|_| self.is_store).zip(0..).filter_map(|(m, i)| Some((self.name(m)?, i)));
        let embedded = self.embedded.iter().flat_map(|store| store.keys());
        let from = to_u64(self.all.len());
        own.chain(embedded.map(|(key, index)| (key, from.saturating_add(index)))).collect()
    }

    fn member(&self, index: u64) -> Result<&Arc<Member>> {
        self.all.get(to_usize(index, "member")?).ok_or_else(|| Error::new(Kind::NotFound, "member"))
    }

    /// The number of `index` in the embedded store, if it is one there.
    fn embedded(&self, index: u64) -> Option<(&Arc<EmbedStore>, u64)> {
        Some((self.embedded.as_ref()?, index.checked_sub(to_u64(self.all.len()))?))
    }

    /// The name to show `member` by; `None` if it is not shown.
    fn name<'a>(&self, member: &'a Member) -> Option<&'a [u8]> {
        let name = &*member.name;
        if !self.is_store {
            return Some(name);
        }
        let key = key(name);
        let is_helper = embed_store::is_vlmeta(key) || (self.embedded.is_some() && name == EMBEDDED);
        (!is_helper).then_some(key)
    }

    /// The attributes of the group `name` of a store, which is empty for the root.
    fn attributes(&self, name: &[u8]) -> Option<Result<Attributes>> {
        match self.groups.get(name).and_then(|&index| self.all.get(index)) {
            Some(member) => Some(member.open_frame().transpose()?.and_then(|frame| frame.data()?.attributes())),
            None => self.embedded.as_ref()?.attributes(name),
        }
    }
}

impl Leaves for Members {
    fn open(&self, index: u64) -> Result<Arc<OpenFrame>> {
        match self.embedded(index) {
            Some((store, index)) => store.open(index),
            None => self.member(index)?.open_frame()?.ok_or_else(|| Error::corrupt("not a frame", "member")),
        }
    }

    fn source(&self) -> &Arc<Source> {
        &self.source
    }
}

/// The arrays of the members that are frames, opened on first use.
impl Arrays for Members {
    fn count(&self) -> u64 {
        to_u64(self.all.len()).saturating_add(self.embedded.as_ref().map_or(0, |store| store.count()))
    }

    fn find(&self, index: u64) -> Result<Found> {
        if let Some((store, index)) = self.embedded(index) {
            return store.find(index);
        }
        let member = self.member(index)?;
        let Some(name) = self.name(member) else { return Ok(Found::Nothing) };
        match member.open_frame().and_then(|frame| frame.map(|frame| frame.found(name)).transpose()) {
            Ok(found) => Ok(found.unwrap_or(Found::Nothing)),
            Err(e) if e.is_lasting() => Ok(Found::LeftOut(name.to_vec(), e.to_string().into())),
            Err(e) => Err(e),
        }
    }

    fn file(&self, index: u64) -> Result<File> {
        self.open(index)?.data()
    }

    fn group(&self, name: &[u8]) -> Result<Attributes> {
        self.attributes(name).unwrap_or_else(|| Ok(Attributes::new()))
    }
}

impl Container for Archive {
    fn info(&self) -> Info {
        let member = |m: &Arc<Member>| json!({ "name": m.shown(), "offset": m.local.0, "size": m.len, "crc32": m.crc });
        let mut details = Map::new();
        details.insert("kind".into(), "archive".into());
        details.insert("members".into(), self.members.all.iter().take(LISTED).map(member).collect());
        if let Some(more @ 1..) = self.members.all.len().checked_sub(LISTED) {
            details.insert("members_not_listed".into(), more.into());
        }
        self.tables.add_info(&mut details);
        let attributes = self.tables.attributes(b"").or_else(|| self.members.attributes(b""));
        info::with_attributes(&mut details, attributes);
        info::container("zip".into(), (self.source.len(), None), Some(self.members.all.len()), details)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let shown = self.members.all.iter().filter(|m| !m.name.ends_with(b"/"));
        let named = shown.filter_map(|m| Some((self.members.name(m)?, m)));
        let entry = |(name, m): (&[u8], &Arc<Member>)| Ok(Entry { nested: true, ..Entry::named(name, "", m.node()?) });
        let embedded = self.members.embedded.iter().flat_map(EmbedStore::entries).map(Ok);
        self.tables.with_entries(named.map(entry).chain(embedded))
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        self.tables.with_arrays(self.members.clone()).map(Some)
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = self.tables.checks();
        for member in &self.members.all {
            let (name, this) = (member.shown(), member.clone());
            let run = Box::new(move || this.gate(this.start()?).check());
            checks.push(Check::Run { name: name.clone(), bytes: member.len, run });
            let embedded = self.members.embedded.as_ref().filter(|_| name.as_bytes() == EMBEDDED);
            match member.open_frame() {
                Ok(Some(_)) if let Some(store) = embedded => checks.extend(store.checks(&format!("{name}: "))),
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
