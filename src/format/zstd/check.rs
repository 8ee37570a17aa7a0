//! The checks of `verify` for a Zstandard file: structure, hints, and every frame decoded once.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::codec::zstd::{FrameList, FrameScan, Frames, SeekTable};
use crate::error::{Error, Kind, Result, UnknownParts};
use crate::format::Check;
use crate::source::Source;

/// Stored bytes per check, so that many small frames do not need as many checks.
const GROUP: u64 = 1 << 20;

/// A frame is taken for a decompression bomb if it exceeds both this expansion ratio and this many bytes.
const BOMB: (u64, u64) = (16_384, 1 << 30);

pub(super) fn checks(frames: &Arc<Frames>, table: &Result<Option<SeekTable>>, structure: &Result<()>) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut settled = |name: &str, verdict: Result<()>| {
        checks.push(Check::Run { name: name.into(), bytes: 0, run: Box::new(move || verdict.clone()) });
    };
    let size = expansion(&frames.list);
    let is_bomb = size.is_err();
    settled("structure", structure.clone());
    settled("expansion", size);
    if let Err(e) = table {
        settled("seek table", Err(e.clone()));
    }
    if is_bomb {
        return checks;
    }
    let (mut from, mut bytes) = (0, 0_u64);
    let mut add = |from: usize, to: usize, bytes| {
        let frames = Arc::clone(frames);
        let run = move || {
            let mut unknown = UnknownParts::default();
            (from..to).try_for_each(|i| unknown.keep(frame(&frames, i)))?;
            unknown.result()
        };
        checks.push(Check::Run { name: format!("frames {from}..{to}"), bytes, run: Box::new(run) });
    };
    for (i, frame) in frames.list.iter().enumerate() {
        if i > from && bytes.saturating_add(frame.stored) > GROUP {
            add(from, i, bytes);
            (from, bytes) = (i, 0);
        }
        bytes = bytes.saturating_add(frame.stored);
    }
    if from < frames.list.len() {
        add(from, frames.list.len(), bytes);
    }
    checks
}

/// Decodes frame `index` and compares its length with its row of the seek table.
fn frame(frames: &Frames, index: usize) -> Result<()> {
    let len = frames.check(index)?;
    let frame = frames.entry(index)?;
    match frame.seek_content {
        Some(content) if u64::from(content) != len => {
            let why = format!("{content} bytes, but the frame decodes to {len}");
            let e = Error::corrupt(why, "decompressed size").at(frame.at);
            Err(e.within(format_args!("seek table: frame {index}")))
        }
        _ => Ok(()),
    }
}

/// Fails if a frame is a decompression bomb: see [`BOMB`].
fn expansion(frames: &FrameList) -> Result<()> {
    for frame in frames.iter() {
        let size = frame.content.unwrap_or(0).min(frame.bound);
        if size > BOMB.1 && size / frame.stored.max(1) > BOMB.0 {
            let limit = frame.stored.saturating_mul(BOMB.0);
            return Err(Error::new(Kind::TooLarge { value: size, limit }, "expansion of a frame").at(frame.at));
        }
    }
    Ok(())
}

/// Verifies the hints of pzstd, if there are any: a skippable frame of 4 bytes before a frame contains the stored size
/// of that frame.
///
/// # Errors
/// Fails if a hint is wrong.
pub(super) fn pzstd(source: &Source, scan: &FrameScan) -> Result<()> {
    let mut hints = scan.skippables.iter().filter(|s| s.nibble == 0 && s.len == 4).peekable();
    for frame in scan.frames.iter() {
        while hints.peek().is_some_and(|hint| hint.at.plus(12) < frame.at) {
            hints.next();
        }
        let Some(hint) = hints.next_if(|hint| hint.at.plus(12) == frame.at) else { continue };
        let mut bytes = [0; 4];
        source.read(hint.data_at(), &mut bytes, "pzstd size")?;
        let size = u64::from(u32::from_le_bytes(bytes));
        if size != frame.stored && !frame.is_cut {
            let why = format!("{size} bytes, but the frame after it has {}", frame.stored);
            return Err(Error::corrupt(why, "pzstd size").at(hint.data_at()));
        }
    }
    Ok(())
}

/// Maximum consecutive empty skippable frames in a valid file.
const EMPTY_RUN: u64 = 4096;

/// Rejects a file flooded with empty skippable frames.
///
/// # Errors
/// [`Kind::TooLarge`] if more than [`EMPTY_RUN`] follow each other.
pub(super) fn flood(scan: &FrameScan) -> Result<()> {
    let (mut run, mut next) = (0_u64, FileOffset(0));
    for skip in scan.skippables.iter() {
        run = if skip.len == 0 && skip.at == next { run.saturating_add(1) } else { 0 };
        next = skip.data_at().plus(skip.len);
        if run > EMPTY_RUN {
            let kind = Kind::TooLarge { value: run, limit: EMPTY_RUN };
            return Err(Error::new(kind, "consecutive empty skippable frames").at(skip.at));
        }
    }
    Ok(())
}
