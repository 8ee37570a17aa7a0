//! The contents of components, made once each and shared by every view of them.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::checksum::ChecksumGate;
use crate::error::{Error, Kind, Result};
use crate::format::{Content, Fetch, FileExtent, Options, Piece};
use crate::source::{Folder, Source};

use super::manifest::{Manifest, Tensor};
use super::part;
use super::quoted::quoted;
use super::sums::Sums;

/// A file and its manifest, and what has been opened of it.
pub(super) struct Store {
    pub(super) source: Arc<Source>,
    pub(super) manifest: Manifest,
    pub(super) options: Options,
    components: Mutex<HashMap<(usize, usize), Component>>,
    /// The files of its shards, where there are any; pinned when the file was opened.
    pub(super) files: Option<Arc<Folder>>,
    pub(super) sums: Sums,
    /// Shards that were looked into.
    shards: Mutex<HashMap<String, Result<Shard>>>,
}

/// A part of a tensor.
#[derive(Clone)]
struct Component {
    /// Its bytes as they lie in the file.
    stored: Result<FileExtent>,
    /// Its decoded bytes.
    content: Result<Content>,
}

impl Component {
    fn broken(error: Error) -> Self {
        Self { stored: Err(error.clone()), content: Err(error) }
    }
}

/// A shard that was opened.
#[derive(Clone)]
pub(super) struct Shard {
    pub(super) source: Arc<Source>,
    /// The digest over all of it: what has to hold before a byte of a part without a digest of its own is served.
    pub(super) gate: Option<ChecksumGate>,
}

impl Store {
    pub(super) fn new(
        source: Arc<Source>,
        manifest: Manifest,
        files: Option<Arc<Folder>>,
        options: Options,
    ) -> Arc<Self> {
        let (components, sums, shards) = (Mutex::default(), Sums::default(), Mutex::default());
        Arc::new(Self { source, manifest, options, components, files, sums, shards })
    }

    /// The decoded bytes of part `part` of tensor `index`: always the same blob.
    ///
    /// # Errors
    /// When it cannot be decoded at all.
    pub(super) fn content(&self, index: usize, part: usize) -> Result<Content> {
        self.component(index, part).content
    }

    /// Where the stored bytes of part `part` of tensor `index` lie.
    ///
    /// # Errors
    /// When they lie in a shard that is not there.
    pub(super) fn stored(&self, index: usize, part: usize) -> Result<FileExtent> {
        self.component(index, part).stored
    }

    fn component(&self, index: usize, part: usize) -> Component {
        let lock = || self.components.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(component) = lock().get(&(index, part)) {
            return component.clone();
        }
        // Made without the lock: a shard may have to be opened.
        let made = self.make(index, part);
        match &made.content {
            // Nothing that is shared: of a hundred thousand of these none is kept.
            Ok(Content::FileExtent(FileExtent { gate: None, .. })) => made,
            // What could not be read now is tried again by the next reader.
            Err(e) if !e.is_lasting() => made,
            _ => lock().entry((index, part)).or_insert(made).clone(),
        }
    }

    fn make(&self, index: usize, part: usize) -> Component {
        let tensor = match self.manifest.tensor(index) {
            Ok(tensor) => tensor,
            Err(e) => return Component::broken(e),
        };
        let Some(part) = tensor.parts.get(part) else {
            return Component::broken(Error::new(Kind::NotFound, "component"));
        };
        let named = |e: Error| e.within(format_args!("{} {:.80}", quoted(&tensor.name), part.role));
        let shard = match &part.shard {
            None => Shard { source: Arc::clone(&self.source), gate: None },
            Some(name) => match self.shard(name) {
                Ok(shard) => shard,
                Err(e) => return Component::broken(named(e.at(part.described_at))),
            },
        };
        let stored = part::stored(&shard, self.manifest.dialect, part, &self.options);
        let content = part::content(&stored, self.manifest.dialect, &tensor, part, &self.options).map_err(named);
        Component { stored: Ok(stored), content }
    }

    /// Shard `name`.
    ///
    /// # Errors
    /// When its file is missing or not the one that is meant.
    pub(super) fn shard(&self, name: &str) -> Result<Shard> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let (_, shard) = self.manifest.shard_named(name)?;
            let files = self.files.as_ref().ok_or_else(|| Error::new(Kind::NotFound, "shard"))?;
            part::open_shard(self.source.path(), files, &shard, &self.options)
        };
        if let Some(shard) = shards.get(name) {
            return shard.clone();
        }
        let shard = open();
        if shard.as_ref().err().is_none_or(Error::is_lasting) {
            shards.insert(name.to_owned(), shard.clone());
        }
        shard
    }

    /// The number of the part for `role`.
    pub(super) fn role(tensor: &Tensor<'_>, role: &str) -> Option<usize> {
        tensor.parts.iter().position(|p| p.role == role)
    }
}

/// Decodes each piece anew: for checks, which read everything once.
pub(super) struct Direct;

impl Fetch for Direct {
    fn piece(&self, blob: &crate::format::BlobRef, piece: u64) -> Result<Piece> {
        let range = blob.layout()?.range(piece);
        let mut bytes = crate::limits::zeroed(range.end - range.start, "piece")?;
        blob.decode(piece, &mut bytes)?;
        Ok(Arc::new(bytes))
    }
}

/// Bytes read at a time where there are no pieces.
const STRIDE: u64 = 1 << 20;

/// All bytes of the content of a component.
///
/// # Errors
/// When its length cannot be found out.
pub(super) fn len(content: &Content) -> Result<u64> {
    match content {
        Content::FileExtent(stored) => Ok(stored.len),
        Content::Blob(blob) => Ok(blob.layout()?.len()),
        _ => Err(Error::new(Kind::NotFound, "component")),
    }
}

/// The bytes of the content of a component from first to last, a piece of them in memory at a time.
pub(super) struct Chunks<'a> {
    content: &'a Content,
    fetch: &'a dyn Fetch,
    /// Pieces, or bytes of the file, that were read.
    done: u64,
    all: u64,
    piece: Piece,
}

impl<'a> Chunks<'a> {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// As [`len`]; when the bytes do not match their digest.
    pub(super) fn new(content: &'a Content, fetch: &'a dyn Fetch) -> Result<Self> {
        let all = match content {
            Content::FileExtent(FileExtent { len, gate, .. }) => {
                gate.as_ref().map_or(Ok(()), ChecksumGate::wait)?;
                *len
            }
            Content::Blob(blob) => blob.layout()?.count(),
            _ => return Err(Error::new(Kind::NotFound, "component")),
        };
        Ok(Self { content, fetch, done: 0, all, piece: Piece::default() })
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// When they are broken.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        let left = self.all.saturating_sub(self.done);
        if left == 0 {
            return Ok(None);
        }
        let (piece, step) = match self.content {
            Content::FileExtent(FileExtent { source, at, .. }) => {
                let step = left.min(STRIDE);
                (Arc::new(source.get(at.plus(self.done), step, "component")?), step)
            }
            Content::Blob(blob) => (self.fetch.piece(blob, self.done)?, 1),
            _ => return Err(Error::new(Kind::NotFound, "component")),
        };
        self.done = self.done.saturating_add(step);
        self.piece = piece;
        Ok(Some(self.piece.as_slice()))
    }
}

/// Hands the bytes of the content of a component to `each`, some at a time, in order.
///
/// # Errors
/// When they are broken, or what `each` gives.
pub(super) fn each(content: &Content, fetch: &dyn Fetch, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut chunks = Chunks::new(content, fetch)?;
    while let Some(bytes) = chunks.next()? {
        each(bytes)?;
    }
    Ok(())
}
