//! Stores of python-blosc2 that are directories (`.b2d`): a file for each leaf, and one with the small leaves.
//!
//! Shows as: see `store`; a file that is not a frame, as it is. As for that library, a file with the usual extension of a
//! leaf is one; others are looked into. Files are pinned when the store is opened, and the directories that they are in:
//! a store to which a leaf is added has changed. On a server, a list says which files there are; the index does not.
//! Limits: [`MOST`] files, opened when they are accessed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::account::decode_budget;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::format::{Arrays, Check, Container, Content, Directory, Entry, File, FileExtent, Info, Node, Options};
use crate::limits::{Charge, Limits};
use crate::once::Once;
use crate::source::{Folder, PinnedFiles, Place, Source};

use super::entries::failing;
use super::frame::Frame;
use super::frames::{self, FrameDir, Frames, OpenFrame, OpenFrames};
use super::info;
use super::memory::ContainerMemory;
use super::store::{self, Store, StoreMember};

/// The file by which a store is known, with its small leaves; and the metalayers, one of which it has.
pub(in crate::format) const INDEX: &str = "embed.b2e";
const KINDS: [&[u8]; 2] = [b"b2dict", b"b2tree"];
/// Why a store of an HTTP server cannot be opened: the index does not have the names of the large leaves.
const UNLISTED: &str = "a store in a directory of an HTTP server, which cannot be listed; s3://BUCKET/PREFIX/ can be, its \
                        embed.b2e has the small leaves, and a store that is one file (.b2z) can be opened from anywhere";
/// Maximum number of files.
const MOST: u64 = 1 << 20;

/// Whether `place` is a store.
///
/// # Errors
/// Fails if it has the file of one, but that cannot be opened or read.
pub(super) fn is_store(place: &Place) -> Result<bool> {
    let index = match place.source(INDEX) {
        Err(e) if e.errno() == libc::ENOENT => return Ok(false),
        index => index?,
    };
    Frames::is_frame(&index, FileOffset(0))
}

/// A store in a directory.
pub(super) struct StoreDir {
    /// The index, and on a server the same as one of the files: it has changed when any of them has.
    sources: Vec<Arc<Source>>,
    files: PinnedFiles,
    store: Store<StoreFile>,
    _charge: Charge,
}

/// A file of a store.
struct StoreFile {
    files: PinnedFiles,
    memory: Arc<ContainerMemory>,
    open: Arc<OpenFrames>,
    /// Its number among the files.
    number: usize,
    /// Whether it begins as a frame does.
    is_frame: Once<bool>,
}

impl StoreDir {
    /// Opens the store in `place`.
    ///
    /// # Errors
    /// Fails if its index is none.
    pub(super) fn open(place: &Place, options: &Options, memory: &Arc<ContainerMemory>) -> Result<Self> {
        let index = place.source(INDEX)?;
        let files = place.pin_below(&options.account).map_err(|e| match e.kind() {
            Kind::Unsupported(_) => Error::unsupported(UNLISTED, "URL"),
            _ => e,
        })?;
        // The pinned one.
        let pinned = files.source(INDEX.as_bytes())?;
        let frame = Frame::contiguous(&pinned, FileOffset(0), memory).map_err(|e| e.within(INDEX))?;
        if !frame.metalayers.iter().any(|layer| KINDS.contains(&&*layer.name)) {
            return Err(Error::corrupt("not the index of a store", "metalayers").within(INDEX));
        }
        let count = Limits::check(to_u64(files.len()), MOST, "number of files")?;
        let each = to_u64(size_of::<[StoreFile; 2]>());
        let charge = options.account.charge(count.saturating_mul(each), "files of a store")?;
        let open = Arc::new(OpenFrames::new(frames::OPEN));
        let file = |number| {
            let (files, memory, open) = (files.clone(), Arc::clone(memory), Arc::clone(&open));
            Arc::new(StoreFile { files, memory, open, number, is_frame: Once::new() })
        };
        let numbers = (0..files.len()).filter(|&number| !files.name(number).ends_with(b"/"));
        let mut all: Vec<_> = numbers.map(file).collect();
        all.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let store = Store::new(&index, all, true, options)?;
        let sources = if pinned.is_far() { vec![index, pinned] } else { vec![index] };
        Ok(Self { sources, files, store, _charge: charge })
    }
}

impl StoreFile {
    fn source(&self) -> Result<Arc<Source>> {
        self.files.source(self.name())
    }

    /// Whether its name says that it is a leaf.
    fn is_named_leaf(&self) -> bool {
        store::LEAVES.iter().any(|suffix| self.name().ends_with(suffix))
    }
}

impl StoreMember for StoreFile {
    fn name(&self) -> &[u8] {
        self.files.name(self.number)
    }

    fn is_frame(&self) -> Result<bool> {
        if self.is_named_leaf() {
            return Ok(true);
        }
        self.is_frame.get(|| self.source().and_then(|source| Frames::is_frame(&source, FileOffset(0)))).copied()
    }

    fn open_frame(&self) -> Result<Option<Arc<OpenFrame>>> {
        if !self.is_frame()? {
            return Ok(None);
        }
        let source = self.source()?;
        let open = || Frame::contiguous(&source, FileOffset(0), &self.memory);
        self.open.get_or_open(to_u64(self.number), || decode_budget::once(open).map(OpenFrame::shared)).map(Some)
    }

    fn node(self: &Arc<Self>) -> Result<Node> {
        let content = match self.is_frame().and_then(|is_frame| Ok((is_frame, self.source()?))) {
            Ok((true, _)) => return Ok(Node::Dir(Arc::new(FileDir(Arc::clone(self))))),
            Ok((false, source)) => {
                let len = source.len();
                Content::FileExtent(FileExtent { source, at: FileOffset(0), len, gate: None })
            }
            Err(error) => failing(error)?,
        };
        Ok(File::new(content).into())
    }
}

/// The directory of a file that is a frame; of a broken one, a file that fails.
struct FileDir(Arc<StoreFile>);

impl Directory for FileDir {
    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        match self.0.open_frame().and_then(|frame| frame.ok_or_else(|| Error::corrupt("not a frame", "magic"))) {
            Ok(frame) => FrameDir(frame).entries(),
            // All leaves can be listed.
            Err(error) => Ok(vec![Entry::own("data.raw", File::new(failing(error)?))]),
        }
    }
}

impl Container for StoreDir {
    fn info(&self) -> Info {
        let sizes = self.store.members().iter().filter_map(|file| Some(file.source().ok()?.len()));
        let mut details = Map::new();
        details.insert("kind".into(), "store".into());
        details.insert("files".into(), json!(self.store.members().len()));
        self.store.add_info(&mut details);
        info::container("directory".into(), (sizes.sum(), None), None, details)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.store.entries()
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        self.store.arrays().map(Some)
    }

    fn checks(&self) -> Vec<Check> {
        self.store.checks()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.sources.clone()
    }

    fn state(&self) -> Option<u64> {
        Some(self.files.state())
    }

    fn folder(&self) -> Option<Arc<Folder>> {
        self.files.folder()
    }
}

impl fmt::Debug for StoreDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreDir({:?})", self.sources.first().map(|index| index.path()))
    }
}
