//! Zstandard files: frames of zstd 0.5 to 0.7 (the 0.0.2 draft) and of current versions, in any order.
//!
//! Reference: sections 1 to 6 of the Zstandard reference.
//!
//! Shows as: `data.raw`, `chunks/` (each frame), `stored/`, `skippable/`, a link with the file's own name.
//! Piece: neighbouring small frames share one; 1 MiB of a long frame.
//! Checked: every header at open; the content size and the checksum (the frame's own, else the seek table's) before a
//! frame's bytes are served.
//! Limits: blocks of 128 KiB; `window=` bytes of history; no more content than a frame's blocks can produce.
//!
//! A truncated file is shown up to the last complete block; the rest that its frame states, or one byte if that is not
//! known, follows and cannot be read.
//!
//! Invariants: opening decodes nothing; all decoding is in `codec::zstd`.
#![forbid(unsafe_code)]

mod check;
mod frame_dirs;
mod frames_blob;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::bytes::FileOffset;
use crate::codec::zstd::{
    ContentStream, Cut, Dictionaries, Frames, Generation, Policy, SeekTable, SkippableList, find_frames, skippable,
};
use crate::error::{Error, Result};
use crate::source::Source;

use super::{
    Array, ArrayList, Arrays, Blob, BlobRef, Check, Container, Content, Entry, File, Format, Info, Input, Node,
    Options, ratio,
};
use frame_dirs::{DecodedFrames, SkippableFrames, StoredFrames};
use frames_blob::FramesBlob;

/// Entry in the table of formats.
pub(super) const FORMAT: Format =
    Format { name: "zstd", extensions: &["zst", "zstd", "tzst"], enclosed: &[], detect, open, kernels: &[] };

/// From this file size on, the seek table gives the sizes of frames that do not state them; in smaller files they are
/// counted.
const BELIEVE_TABLE: u64 = 64 << 20;
/// Maximum dictionary ids in `info.json`.
const DICTIONARIES: usize = 1024;

fn detect(input: &Input) -> bool {
    let Some((magic, _)) = input.head.split_first_chunk::<4>() else { return false };
    let magic = u32::from_le_bytes(*magic);
    Generation::of(magic).is_some() || skippable(magic).is_some() || (0xFD2F_B51E..=0xFD2F_B524).contains(&magic)
}

struct Zstd {
    source: Arc<Source>,
    frames: Arc<Frames>,
    skippables: Arc<SkippableList>,
    data: Arc<FramesBlob>,
    data_ref: BlobRef,
    array: Option<Array>,
    table: Result<Option<SeekTable>>,
    /// Why there may be more frames than were found.
    unknown: Option<Error>,
    /// The place at which the file is cut off.
    cut: Option<Cut>,
    /// Result of the structural checks that need no decoding, for `verify`.
    structure: Result<()>,
}

impl Zstd {
    /// Why there may be more than was found.
    fn missing(&self) -> Option<&Error> {
        self.unknown.as_ref().or(self.cut.as_ref().map(|cut| &cut.error))
    }

    fn data(&self) -> File {
        let content = match self.unknown.clone() {
            None => Content::Blob(self.data_ref.clone()),
            Some(error) => Content::failed(None, error),
        };
        let data = File::new(content);
        data.typed(self.array.clone()).stored(self.source.len()).attr("codec", "zstd")
    }
}

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let source = input.file()?;
    let range = FileOffset(0)..FileOffset(source.len());
    let records = options.index.of(&source);
    let (mut scan, table) = find_frames(&source, range, &options.limits, &options.account, records.as_deref())?;
    let table = lasting(table)?;
    if let Some(error) = scan.unknown.as_ref().filter(|_| scan.frames.is_empty() && scan.skippables.is_empty()) {
        return Err(error.clone());
    }
    if source.len() >= BELIEVE_TABLE {
        scan.frames.adopt_seek_sizes()?;
    }
    let structure = lasting(check::flood(&scan).and_then(|()| check::pzstd(&source, &scan)))?;
    let dictionaries = Dictionaries::read(&options.dicts)?;
    let policy = Policy {
        verify: options.verify.clone(),
        threads: options.threads.clone(),
        window: options.window,
        content: u64::MAX,
        account: options.account.clone(),
        records,
    };
    let pieces = Arc::clone(&options.pieces);
    let frames = Frames::new(Arc::clone(&source), scan.frames, dictionaries, policy, pieces)?;
    let cut = scan.cut;
    let data = Arc::new(FramesBlob(ContentStream::all(Arc::clone(&frames)).with_cut(cut.clone())));
    // A given type needs the total size at open, even if frames do not state theirs.
    let unknown = scan.unknown;
    let typed = unknown.is_none() && (options.dtype.is_some() || options.shape.is_some());
    let array = if typed { options.array(None, data.layout()?.len())? } else { None };
    Ok(Arc::new(Zstd {
        array,
        data_ref: BlobRef::shared(Arc::clone(&data) as Arc<dyn Blob>),
        skippables: Arc::new(scan.skippables),
        source,
        frames,
        data,
        table,
        unknown,
        cut,
        structure,
    }))
}

/// Separates permanent results, which are kept while the file is open, from transient failures.
///
/// # Errors
/// Fails if the system could not read the bytes.
fn lasting<T>(found: Result<T>) -> Result<Result<T>> {
    match found {
        Err(error) if !error.is_lasting() => Err(error),
        found => Ok(found),
    }
}

impl Container for Zstd {
    fn info(&self) -> Info {
        let frames = &self.frames.list;
        let (mut generations, mut dictionaries) = (BTreeSet::new(), BTreeSet::new());
        let (mut decoded_size, mut blocks, mut window) = (self.missing().is_none().then_some(0_u64), 0_u64, None);
        let (mut with_checksum, mut listed, mut are_read) = (0_u64, 0_u64, true);
        for frame in frames.iter() {
            generations.insert(frame.header.generation.name());
            decoded_size = decoded_size.zip(frame.content).and_then(|(sum, len)| sum.checked_add(len));
            blocks = blocks.saturating_add(frame.blocks);
            window = window.max(Some(frame.header.window));
            with_checksum += u64::from(frame.checksum.is_some());
            listed += u64::from(frame.seek_checksum.is_some());
            are_read &= !frame.is_listed;
            if frame.header.dictionary != 0 && dictionaries.len() < DICTIONARIES {
                dictionaries.insert(frame.header.dictionary);
            }
        }
        let format_version = match generations.len() {
            0 => "skippable frames only".to_owned(),
            _ => generations.into_iter().collect::<Vec<_>>().join(", "),
        };
        let mut checksums = json!({});
        if are_read {
            checksums["content"] = format!("XXH64, {with_checksum} of {} frames", frames.len()).into();
        }
        if listed > 0 {
            checksums["seek_table"] = format!("XXH64, {listed} of {} frames", frames.len()).into();
        }
        let mut details = Map::new();
        let mut add = |key: &str, value: Value| drop(details.insert(key.into(), value));
        add("frames", frames.len().into());
        add("skippable_frames", self.skippables.len().into());
        if are_read {
            add("blocks", blocks.into());
            add("window", window.into());
            add("dictionaries", dictionaries.into_iter().collect());
        }
        add("walked", are_read.into());
        if let Some(size) = decoded_size.filter(|_| self.source.len() > 0) {
            add("ratio", ratio(size, self.source.len()));
        }
        if let Some(error) = &self.unknown {
            add("unknown", error.to_string().into());
        }
        if let Some(cut) = &self.cut {
            add("truncated", cut.error.explain().into());
        }
        match &self.table {
            Ok(None) => {}
            Ok(Some(table)) => add("seek_table", json!({ "frames": frames.len(), "at": table.at.0 })),
            Err(e) => add("seek_table", json!({ "unusable": e.to_string() })),
        }
        // The headers of frames tell whether they have a checksum.
        let checksum_count = Some(with_checksum.saturating_add(listed)).filter(|&count| are_read || count > 0);
        let file_size = self.source.len();
        Info { format: FORMAT.name, format_version, file_size, decoded_size, checksums, checksum_count, details }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let stored = Arc::new(StoredFrames(Arc::clone(&self.frames)));
        let skippable = Arc::new(SkippableFrames(Arc::clone(&self.source), Arc::clone(&self.skippables)));
        let chunks = DecodedFrames::new(&self.frames, &self.data, &self.data_ref, self.cut.as_ref());
        Ok(vec![
            Entry::own("data.raw", self.data().principal()),
            Entry::own("chunks", Node::IndexedDir(Arc::new(chunks))),
            Entry::own("stored", Node::IndexedDir(stored)),
            Entry::own("skippable", Node::IndexedDir(skippable)),
            Entry::stem_link("data.raw"),
        ])
    }

    fn stream(&self) -> Option<BlobRef> {
        self.unknown.is_none().then(|| self.data_ref.clone())
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(ArrayList::data(self.data()))
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = check::checks(&self.frames, &self.table, &self.structure);
        if let Some(error) = self.missing().cloned() {
            checks.push(Check::Run { name: "frames".into(), bytes: 0, run: Box::new(move || Err(error.clone())) });
        }
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![Arc::clone(&self.source)]
    }
}
