//! Stores of python-blosc2 that are directories (`.b2d`): a file for each leaf, and one with the small leaves.
//!
//! Shows as: see `store`; a file that is no frame, as it is. Files are pinned when the store is opened, and the
//! directories that they are in: a store to which a leaf is added has changed.
//! Limits: [`MOST`] files, opened when they are accessed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::account::decode_budget;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::format::{Arrays, Check, Container, Content, Directory, Entry, File, FileExtent, Info, Node, Options};
use crate::limits::{Charge, Limits};
use crate::source::{Folder, Place, Source};

use super::entries::failing;
use super::frame::Frame;
use super::frames::{self, FrameDir, Frames, OpenFrame, OpenFrames};
use super::info;
use super::memory::Memory;
use super::store::{Store, StoreMember};

/// The file by which a store is known, with its small leaves; and the metalayers, one of which it has.
pub(in crate::format) const INDEX: &str = "embed.b2e";
const KINDS: [&[u8]; 2] = [b"b2dict", b"b2tree"];
/// Maximum number of files.
const MOST: u64 = 1 << 20;

/// Whether `place` is a store: a directory on a server is none, because it has no list.
///
/// # Errors
/// Fails if it has the file of one, but that cannot be opened or read.
pub(super) fn is_store(place: &Place) -> Result<bool> {
    let Place::Local(dir) = place else { return Ok(false) };
    let index = match dir.source(INDEX) {
        Err(e) if e.errno() == libc::ENOENT => return Ok(false),
        index => index?,
    };
    Frames::is_frame(&index, FileOffset(0))
}

/// A store in a directory.
pub(super) struct StoreDir {
    index: Arc<Source>,
    folder: Arc<Folder>,
    store: Store<StoreFile>,
    _charge: Charge,
}

/// A file of a store.
struct StoreFile {
    folder: Arc<Folder>,
    memory: Arc<Memory>,
    open: Arc<OpenFrames>,
    /// Its number in the folder.
    number: usize,
}

impl StoreDir {
    /// Opens the store in `place`.
    ///
    /// # Errors
    /// Fails if its index is none.
    pub(super) fn open(place: &Place, options: &Options, memory: &Arc<Memory>) -> Result<Self> {
        let Place::Local(dir) = place else {
            return Err(Error::unsupported("a store in a directory on a server", "file"));
        };
        let index = dir.source(INDEX)?;
        let frame = Frame::contiguous(&index, FileOffset(0), memory).map_err(|e| e.within(INDEX))?;
        if !frame.metalayers.iter().any(|layer| KINDS.contains(&&*layer.name)) {
            return Err(Error::corrupt("not the index of a store", "metalayers").within(INDEX));
        }
        let folder = Folder::pin_below(dir, &options.account)?;
        let count = Limits::check(to_u64(folder.len()), MOST, "number of files")?;
        let each = to_u64(size_of::<[StoreFile; 2]>());
        let charge = options.account.charge(count.saturating_mul(each), "files of a store")?;
        let open = Arc::new(OpenFrames::new(frames::OPEN));
        let file = |number| {
            let (folder, memory, open) = (Arc::clone(&folder), Arc::clone(memory), Arc::clone(&open));
            Arc::new(StoreFile { folder, memory, open, number })
        };
        let files = (0..folder.len()).filter(|&number| !folder.name(number).ends_with(b"/"));
        let mut files: Vec<_> = files.map(file).collect();
        files.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let store = Store::new(&index, files, true, options)?;
        Ok(Self { index, folder, store, _charge: charge })
    }
}

impl StoreFile {
    fn source(&self) -> Result<Arc<Source>> {
        self.folder.source(OsStr::from_bytes(self.name()))
    }
}

impl StoreMember for StoreFile {
    fn name(&self) -> &[u8] {
        self.folder.name(self.number)
    }

    fn is_frame(&self) -> Result<bool> {
        let source = self.source()?;
        Frames::is_frame(&source, FileOffset(0))
    }

    fn open_frame(&self) -> Result<Option<Arc<OpenFrame>>> {
        let source = self.source()?;
        if !Frames::is_frame(&source, FileOffset(0))? {
            return Ok(None);
        }
        let open = || Frame::contiguous(&source, FileOffset(0), &self.memory);
        self.open.get_or_open(to_u64(self.number), || decode_budget::once(open).map(OpenFrame::shared)).map(Some)
    }

    fn node(self: &Arc<Self>) -> Result<Node> {
        let content = match self.source().and_then(|source| Ok((Frames::is_frame(&source, FileOffset(0))?, source))) {
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

/// The directory of a file that is a frame.
struct FileDir(Arc<StoreFile>);

impl Directory for FileDir {
    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let frame = self.0.open_frame()?.ok_or_else(|| Error::corrupt("not a frame", "magic"))?;
        FrameDir(frame).entries()
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
        vec![self.index.clone()]
    }

    fn folder(&self) -> Option<Arc<Folder>> {
        Some(self.folder.clone())
    }
}

impl fmt::Debug for StoreDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreDir({:?})", self.index.path())
    }
}
