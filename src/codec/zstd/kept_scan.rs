//! The frames of a long file in the index of the user: a later mount need not read the headers of all their blocks, of which
//! there is one for at most 128 KiB of content.
//!
//! Records: [`LIST`] with a number, in parts; and [`HEAD`], which is written last and read first. Fields, little-endian, 8
//! bytes each: of the head, how many frames, how many skippable ones, and how many parts; then, for each frame, its ten
//! words, and after all of them, for each skippable one, its two.
//!
//! Limits: [`LEAST`] bytes of a file.
//! Invariant: what no scan gives is not taken: the frames follow each other from the beginning to the end.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::index::Records;
use crate::limits::Limits;

use super::frame::Frame;
use super::frame_list::{Packed, PackedList};
use super::frame_scan::FrameScan;
use super::packing::{PARTS, Parts, part};

/// Names of the records.
const HEAD: &str = "zstd-frames";
const LIST: &str = "zstd-frames-";
/// Bytes of the longest item.
const ITEM: usize = 80;
/// The headers of a shorter file are soon read again.
pub(super) const LEAST: u64 = 32 << 20;

/// Keeps `scan`, if it has found all frames.
pub(super) fn keep(scan: &FrameScan, records: &Records) {
    if scan.unknown.is_none() && scan.cut.is_none() {
        // Whether it was written does not matter.
        let _ = try_keep(scan, records);
    }
}

fn try_keep(scan: &FrameScan, records: &Records) -> Option<()> {
    let mut parts = Parts::new(records, LIST);
    let add = |parts: &mut Parts<'_>, words: &[u64]| {
        parts.add(|bytes| words.iter().for_each(|word| bytes.extend(word.to_le_bytes())))
    };
    scan.frames.iter().try_for_each(|frame| add(&mut parts, &frame.pack()))?;
    scan.skippables.iter().try_for_each(|skippable| add(&mut parts, &skippable.pack()))?;
    let head = [to_u64(scan.frames.len()), to_u64(scan.skippables.len()), parts.end()?];
    records.put(HEAD, head.map(u64::to_le_bytes).as_flattened()).then_some(())
}

/// The frames in `range` that were kept, if they are there.
///
/// # Errors
/// Fails if the account is exhausted.
pub(super) fn find(
    records: &Records,
    range: &Range<FileOffset>,
    limits: &Limits,
    account: &Account,
) -> Result<Option<FrameScan>> {
    match load(records, range, limits, account) {
        Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) => Err(e),
        found => Ok(found.ok()),
    }
}

/// As [`find`]; fails too if they are not there, or are none of a scan.
fn load(records: &Records, range: &Range<FileOffset>, limits: &Limits, account: &Account) -> Result<FrameScan> {
    let missing = || Error::new(Kind::NotFound, "record");
    let head = records.get(HEAD, 24).ok_or_else(missing)?;
    let mut head = Cursor::new(&head, FileOffset(0));
    let (frames, skippables) = (head.u64_le("frames")?, head.u64_le("skippable frames")?);
    Limits::check(frames.saturating_add(skippables), limits.entries, "number of frames")?;
    let parts = Limits::check(head.u64_le("parts")?, PARTS, "parts")?;
    let mut scan = FrameScan::new(account);
    for number in 0..parts {
        let bytes = part(records, LIST, number, ITEM).ok_or_else(missing)?;
        let mut items = Cursor::new(&bytes, FileOffset(0));
        while !items.is_empty() {
            if to_u64(scan.frames.len()) < frames {
                add(&mut scan.frames, &mut items)?;
            } else {
                add(&mut scan.skippables, &mut items)?;
            }
        }
    }
    scan.frames.finish()?;
    scan.skippables.finish()?;
    let is_all = to_u64(scan.frames.len()) == frames && to_u64(scan.skippables.len()) == skippables;
    if is_all && follow(&scan, range) { Ok(scan) } else { Err(wrong()) }
}

fn wrong() -> Error {
    Error::corrupt("no list of frames", "record")
}

/// Adds the next item.
fn add<T: Packed<N>, const N: usize>(list: &mut PackedList<T, N>, from: &mut Cursor<'_>) -> Result<()> {
    let mut words = [0; N];
    for word in &mut words {
        *word = from.u64_le("frame")?;
    }
    let item = T::unpack(words);
    if item.pack() == words { list.push(&item) } else { Err(wrong()) }
}

/// Whether the frames follow each other through all of `range`.
fn follow(scan: &FrameScan, range: &Range<FileOffset>) -> bool {
    let (mut frames, mut skippables) = (scan.frames.iter().peekable(), scan.skippables.iter().peekable());
    let mut at = range.start;
    while at < range.end {
        if let Some(frame) = frames.next_if(|frame| frame.at == at && is_scanned(frame)) {
            at = at.plus(frame.stored);
        } else if let Some(skippable) = skippables.next_if(|skippable| skippable.at == at) {
            at = skippable.data_at().plus(skippable.len);
        } else {
            return false;
        }
    }
    at == range.end && frames.next().is_none() && skippables.next().is_none()
}

/// Whether a scan may give `frame`.
fn is_scanned(frame: &Frame) -> bool {
    let header = frame.blocks_at.0.saturating_sub(frame.at.0);
    let blocks = frame.stored.saturating_sub(header);
    let is_stated = frame.header.content_size.is_none_or(|size| frame.content == Some(size));
    let from_table = frame.seek_checksum.is_some() || frame.seek_content.is_some() || frame.is_listed;
    header > 0
        && is_stated
        && !from_table
        && !frame.is_cut
        && frame.checksum.is_none_or(|_| frame.header.has_checksum)
        && frame.blocks <= blocks / 3
        && frame.bound <= frame.blocks.saturating_mul(to_u64(frame.header.max_block()))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::super::frame_scan::scan_known_frames;
    use super::super::packing::{packed, part_name, unpacked};
    use super::*;
    use crate::index::Index;
    use crate::source::Source;

    /// Frames with and without their sizes and checksums, and skippable ones between them.
    fn frames(count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for i in 0..count {
            let content = vec![i as u8; (i as usize % 7) * 100];
            let mut encoder = zstd::Encoder::new(&mut bytes, 1).unwrap();
            encoder.include_checksum(i % 2 == 0).unwrap();
            encoder.set_pledged_src_size((i % 3 == 0).then_some(content.len() as u64)).unwrap();
            encoder.write_all(&content).unwrap();
            encoder.finish().unwrap();
            if i % 5 == 0 {
                bytes.extend((0x184D_2A50 + i % 16).to_le_bytes());
                bytes.extend((i % 4).to_le_bytes());
                bytes.extend(&[9; 4][..i as usize % 4]);
            }
        }
        bytes
    }

    struct Place {
        source: Arc<Source>,
        records: Arc<Records>,
        range: Range<FileOffset>,
        scan: FrameScan,
        _dir: tempfile::TempDir,
    }

    fn account() -> Account {
        Account::new(64 << 20, 0)
    }

    impl Place {
        fn new(count: u32) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("x.zst");
            // Shorter files have no records.
            let bytes =
                [frames(count), [0x184D_2A5F_u32, 64 << 10].map(u32::to_le_bytes).concat(), vec![0; 64 << 10]].concat();
            std::fs::write(&file, &bytes).unwrap();
            let source = Source::open(&file).unwrap();
            let range = FileOffset(0)..FileOffset(bytes.len() as u64);
            let index = Index::new(dir.path().join("index"), 1 << 30, dir.path().join("state"));
            let records = index.of(&source).unwrap();
            let scan = scan_known_frames(&source, range.clone(), &Limits::default(), &account()).unwrap();
            Self { source, records, range, scan, _dir: dir }
        }

        fn found(&self) -> Option<FrameScan> {
            find(&self.records, &self.range, &Limits::default(), &account()).unwrap()
        }
    }

    #[test]
    fn what_was_kept_is_what_a_scan_finds() {
        let place = Place::new(30_000);
        assert!(place.found().is_none());
        keep(&place.scan, &place.records);
        let found = place.found().unwrap();
        assert!(found.frames.iter().eq(place.scan.frames.iter()));
        let words = |scan: &FrameScan| scan.skippables.iter().map(|one| one.pack()).collect::<Vec<_>>();
        assert_eq!(words(&found), words(&place.scan));
        assert!(part(&place.records, LIST, 1, ITEM).is_some(), "several parts");
        let (full, _taken) = Account::exhausted();
        let refused = find(&place.records, &place.range, &Limits::default(), &full).unwrap_err();
        assert!(matches!(refused.kind(), Kind::NoRoom { .. }), "{refused}");
        let limits = Limits { entries: 1000, ..Limits::default() };
        assert!(find(&place.records, &place.range, &limits, &account()).unwrap().is_none());
        place.source.check().unwrap();
    }

    #[test]
    fn a_list_with_any_word_of_another_file_is_not_taken() {
        let place = Place::new(40);
        keep(&place.scan, &place.records);
        let name = part_name(LIST, 0);
        let whole = unpacked(&place.records.get(&name, 1 << 20).unwrap(), 1 << 20).unwrap();
        let put = |bytes: &[u8]| assert!(place.records.put(&name, &packed(bytes).unwrap()));
        for len in [0, 79, 80, whole.len() - 16, whole.len() - 1] {
            put(&whole[..len]);
            assert!(place.found().is_none(), "{len}");
        }
        // Where each frame begins and how long it is, its blocks, its bound; where a skippable one is and its length.
        let frames = place.scan.frames.len() * 80;
        let of_frames = (0..frames).step_by(80).flat_map(|at| [0, 8, 32, 40].map(|word| at + word));
        for at in of_frames.chain((frames..whole.len()).step_by(8)) {
            let mut changed = whole.clone();
            changed[at + 2] ^= 0x40;
            put(&changed);
            assert!(place.found().is_none(), "{at}");
        }
        put(&whole);
        assert!(place.found().is_some());
        let narrow = place.range.start..FileOffset(place.range.end.0 - 1);
        assert!(find(&place.records, &narrow, &Limits::default(), &account()).unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_cut_is_not_kept() {
        let mut place = Place::new(40);
        place.scan.unknown = Some(wrong());
        keep(&place.scan, &place.records);
        assert!(place.found().is_none());
    }
}
