//! The members of an archive in order: headers are read, content is skipped.
//!
//! Names over 100 bytes, large sizes and fractions of seconds are in the content of members before the one that they
//! are about: of GNU (`L`, `K`) or of pax (`x`).
//! Limits: [`NAME`] bytes of a name of GNU, [`RECORDS`] of records for a member.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use tar::GnuExtSparseHeader;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::Source;
use crate::wanted;

use super::header::{BLOCK, BLOCK_LEN, TarHeader, number, text};
use super::records::{decimal, records, time};
use super::sparse::Map;

/// Bytes of a name in the content of a member.
const NAME: u64 = 1 << 20;
/// Bytes of the records for a member: the map of a sparse file may be among them.
const RECORDS: u64 = 16 << 20;
/// Bytes that are read at a time where headers are close to each other; others are read alone.
const WINDOW: u64 = 16 << 10;
/// The largest member, so that sums of offsets fit.
pub(super) const LARGEST: u64 = (1 << 48) - 1;

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    File,
    Dir,
    Symlink,
    /// Another name of an earlier member.
    HardLink,
    /// A device, a pipe, the label of a volume, or the rest of a file that begins in another archive.
    Other,
}

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    /// Where its first header is, or that of its long name or records.
    pub(super) at: FileOffset,
    pub(super) what: What,
    pub(super) name: Vec<u8>,
    /// The target of a link.
    pub(super) link: Vec<u8>,
    pub(super) mode: Option<u16>,
    /// Seconds and nanoseconds since 1970.
    pub(super) mtime: Option<(i64, u32)>,
    /// Bytes of the file.
    pub(super) len: u64,
    /// Where its content is in the archive.
    pub(super) data: FileOffset,
    /// Bytes of it there.
    pub(super) stored: u64,
    /// Where content and holes are, if it is sparse.
    pub(super) map: Option<Map>,
}

/// Extended headers before a member.
#[derive(Debug, Default)]
struct Extended {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Vec<u8>,
}

/// A walk over the members.
#[derive(Debug)]
pub(super) struct Members {
    source: Arc<Source>,
    next: FileOffset,
    /// The end of the content of the last one, without its padding.
    end: FileOffset,
    window: Vec<u8>,
    window_at: FileOffset,
    /// The block that was read last.
    last: FileOffset,
    /// Of all members that do not have their own.
    mtime: Option<(i64, u32)>,
}

impl Members {
    /// From the header at `at` on.
    pub(super) fn from(source: &Arc<Source>, at: FileOffset) -> Self {
        let source = Arc::clone(source);
        Self { source, next: at, end: at, window: Vec::new(), window_at: at, last: at, mtime: None }
    }

    /// The end of the members so far: the archive is cut off if it is shorter.
    pub(super) fn end(&self) -> u64 {
        self.end.0
    }

    /// The next member; `None` at the end of the archive.
    ///
    /// # Errors
    /// Fails if a header is broken, or cannot be read; the next call tries again.
    pub(super) fn next(&mut self) -> Result<Option<Member>> {
        let first = self.next;
        self.read(first).inspect_err(|_| self.next = first)
    }

    /// The next member, whose first header is at `first`.
    fn read(&mut self, first: FileOffset) -> Result<Option<Member>> {
        let mut extended = Extended::default();
        loop {
            let at = self.next;
            // GNU ends an archive with two empty blocks, and reads no further than the first.
            let Some(block) = self.block(at)?.filter(|block| block.iter().any(|&byte| byte != 0)) else {
                return Ok(None);
            };
            let header = TarHeader::parse(block, at)?;
            Limits::check(header.size, LARGEST, "size").map_err(|e| e.at(at))?;
            let data = at.plus(BLOCK);
            self.next = end(data, header.size);
            let name = |me: &Self| me.content(data, header.size, NAME, "long name").map(|name| text(&name).to_vec());
            match header.kind {
                b'L' => extended.name = Some(name(self)?),
                b'K' => extended.link = Some(name(self)?),
                b'x' | b'X' => extended.records = self.content(data, header.size, RECORDS, "records")?,
                b'g' => {
                    let all = self.content(data, header.size, RECORDS, "records")?;
                    let found = records(&all).filter(|(key, _)| *key == b"mtime").filter_map(|(_, text)| time(text));
                    self.mtime = found.last().or(self.mtime);
                }
                _ => return self.member(first, header, extended).map(Some),
            }
        }
    }

    /// The member with this header.
    fn member(&mut self, first: FileOffset, header: TarHeader, extended: Extended) -> Result<Member> {
        let mut data = header.at.plus(BLOCK);
        let mut member = Member {
            at: first,
            what: what(header.kind),
            name: extended.name.unwrap_or(header.name),
            link: extended.link.unwrap_or(header.link),
            mode: header.mode,
            mtime: self.mtime.or(header.mtime.map(|seconds| (seconds, 0))),
            len: header.size,
            data,
            stored: header.size,
            map: None,
        };
        if header.kind == b'S' {
            let (map, len, after) = self.gnu_map(&header.fields, data)?;
            data = after;
            member = Member { data, len, map: Some(map), ..member };
        }
        member.apply(&extended.records, header.at)?;
        if member.what == What::File && member.name.ends_with(b"/") {
            // Before there was a type for directories.
            member.what = What::Dir;
        }
        match member.what {
            // Others have no content, whatever their size says: it is that of the target, or of a directory.
            What::File | What::Other => self.next = end(data, member.stored),
            What::Dir if header.kind != b'5' => self.next = end(data, member.stored),
            What::Dir | What::Symlink | What::HardLink => {
                self.next = data;
                (member.len, member.stored) = (0, 0);
            }
        }
        self.end = data.plus(member.stored);
        Ok(member)
    }

    /// The map of a sparse file of the old GNU format, in its header and the blocks from `at` on; the size of the file,
    /// and the end of those blocks.
    fn gnu_map(&mut self, header: &tar::Header, mut at: FileOffset) -> Result<(Map, u64, FileOffset)> {
        let broken = |why| Error::corrupt(why, "sparse header").at(at);
        let gnu = header.as_gnu().ok_or_else(|| broken("not of GNU"))?;
        let len = number(&gnu.realsize, || gnu.real_size()).ok_or_else(|| broken("no real size"))?;
        let mut map = Map::default();
        map.add_extents(&gnu.sparse, at)?;
        let mut goes_on = gnu.isextended != [0];
        while goes_on {
            let mut more = GnuExtSparseHeader::new();
            let none = || Error::new(Kind::Truncated { need: BLOCK, have: 0 }, "sparse header").at(at);
            more.as_mut_bytes().copy_from_slice(self.block(at)?.ok_or_else(none)?);
            map.add_extents(more.sparse(), at)?;
            goes_on = more.isextended != [0];
            at = at.plus(BLOCK);
        }
        Ok((map, Limits::check(len, LARGEST, "real size")?, at))
    }

    /// The block at `at`; `None` at the end of the archive.
    fn block(&mut self, at: FileOffset) -> Result<Option<&[u8; BLOCK_LEN]>> {
        let inside = |me: &Self| {
            let start = at.0.checked_sub(me.window_at.0)?;
            let start = usize::try_from(start).ok()?;
            let range = start..start.checked_add(BLOCK_LEN)?;
            (range.end <= me.window.len()).then_some(range)
        };
        if inside(self).is_none() {
            wanted::check()?;
            let is_close = at.0.saturating_sub(self.last.0) <= WINDOW / 2;
            self.window = self.source.get_most(at, if is_close { WINDOW } else { BLOCK }, "header")?;
            self.window_at = at;
            if self.window.is_empty() {
                return Ok(None);
            }
        }
        self.last = at;
        let block = inside(self).and_then(|range| self.window.get(range)?.first_chunk());
        let have = to_u64(self.window.len());
        block.map(Some).ok_or_else(|| Error::new(Kind::Truncated { need: BLOCK, have }, "header").at(at))
    }

    /// The content of a member that is read whole.
    fn content(&self, at: FileOffset, len: u64, most: u64, what: &'static str) -> Result<Vec<u8>> {
        Limits::check(len, most, what).map_err(|e| e.at(at))?;
        self.source.get(at, len, what)
    }
}

impl Member {
    /// Applies the pax records of the member with its header at `at`.
    fn apply(&mut self, all: &[u8], at: FileOffset) -> Result<()> {
        let size = |value: &[u8]| match decimal(value) {
            Some(size) => Limits::check(size, LARGEST, "size"),
            None => Err(Error::corrupt("not a number", "size")),
        };
        let (mut map, mut in_content, mut real, mut name) = (Map::default(), false, None, None);
        for (key, value) in records(all) {
            match key {
                b"path" => self.name = value.to_vec(),
                b"linkpath" => self.link = value.to_vec(),
                b"size" => {
                    self.stored = size(value).map_err(|e| e.at(at))?;
                    self.len = self.stored;
                }
                b"mtime" => self.mtime = time(value).or(self.mtime),
                b"GNU.sparse.name" => name = Some(value.to_vec()),
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => real = Some(size(value).map_err(|e| e.at(at))?),
                b"GNU.sparse.major" => in_content = value == b"1",
                b"GNU.sparse.map" => map.add_list(value, at)?,
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => map.add_number(value, at)?,
                _ => {}
            }
        }
        self.name = name.unwrap_or(std::mem::take(&mut self.name));
        if let Some(real) = real.filter(|_| self.what == What::File) {
            self.len = real;
            self.map = Some(if in_content { Map::in_content() } else { map });
        }
        Ok(())
    }
}

/// The end of the content of `len` bytes at `at`, with its padding.
fn end(at: FileOffset, len: u64) -> FileOffset {
    at.plus(len.div_ceil(BLOCK).saturating_mul(BLOCK))
}

fn what(kind: u8) -> What {
    match kind {
        b'1' => What::HardLink,
        b'2' => What::Symlink,
        b'5' | b'D' => What::Dir,
        b'3' | b'4' | b'6' | b'M' | b'N' | b'V' => What::Other,
        // POSIX: of an unknown type, a file.
        _ => What::File,
    }
}
