//! The contents of components, created once each and shared by all views of them.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::checksum::{ChecksumGate, FailedChecks};
use crate::error::{Error, Kind, Result};
use crate::format::{Content, Fetch, FileExtent, Options, Piece};
use crate::once::Once;
use crate::recent::Recent;
use crate::source::{Files, Source};

use super::component;
use super::manifest::{Manifest, Tensor};
use super::quoted::quoted;
use super::shards::{self, OpenShard};
use super::sums::Sums;

/// A file, its manifest, and the components opened so far.
pub(super) struct TensorFile {
    pub(super) source: Arc<Source>,
    pub(super) manifest: Manifest,
    pub(super) options: Options,
    components: Recent<(usize, usize), OpenedComponent>,
    /// The files of its shards, if it has any; pinned when the file is opened.
    pub(super) files: Option<Files>,
    pub(super) sums: Sums,
    /// Shards opened so far, and permanent failures to open one.
    shards: Recent<String, Arc<Once<OpenShard>>>,
    /// Outlives the gates of components and shards that are no longer kept.
    failed: FailedChecks,
}

/// Maximum number of components, and of shards, that are kept.
const MOST: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// Bytes charged for a component and for a shard that are kept.
const COMPONENT: u64 = 640;
const SHARD: u64 = 768;

/// A component of a tensor.
#[derive(Clone)]
struct OpenedComponent {
    /// Its bytes as stored in the file.
    stored: Result<FileExtent>,
    /// Its decoded bytes.
    content: Result<Content>,
}

impl OpenedComponent {
    fn broken(error: Error) -> Self {
        Self { stored: Err(error.clone()), content: Err(error) }
    }
}

impl TensorFile {
    pub(super) fn new(source: Arc<Source>, manifest: Manifest, files: Option<Files>, options: Options) -> Arc<Self> {
        let (components, sums, shards) = (Recent::new(MOST), Sums::new(&options.account), Recent::new(MOST));
        Arc::new(Self { source, manifest, options, components, files, sums, shards, failed: FailedChecks::default() })
    }

    /// The decoded bytes of component `component` of tensor `index`: the same blob while it is kept.
    ///
    /// # Errors
    /// Fails if the component cannot be decoded.
    pub(super) fn content(&self, index: usize, part: usize) -> Result<Content> {
        self.component(index, part).content
    }

    /// As [`Self::content`], of a tensor that has been read from the manifest, which takes long if it has many components.
    pub(super) fn content_of(&self, index: usize, tensor: &Tensor<'_>, part: usize) -> Result<Content> {
        self.kept(index, part, || self.make(tensor, part)).content
    }

    /// The extent of the stored bytes of component `component` of tensor `index`.
    ///
    /// # Errors
    /// Fails if they are in a missing shard.
    pub(super) fn stored(&self, index: usize, part: usize) -> Result<FileExtent> {
        self.component(index, part).stored
    }

    fn component(&self, index: usize, part: usize) -> OpenedComponent {
        self.kept(index, part, || match self.manifest.tensor(index) {
            Ok(tensor) => self.make(&tensor, part),
            Err(e) => OpenedComponent::broken(e),
        })
    }

    fn kept(&self, index: usize, part: usize, make: impl FnOnce() -> OpenedComponent) -> OpenedComponent {
        if let Some(component) = self.components.get(&(index, part)) {
            return component;
        }
        let made = make();
        match &made.content {
            // Plain extents share no state and are not kept: there may be a hundred thousand of them.
            Ok(Content::FileExtent(FileExtent { gate: None, .. })) => made,
            // Transient failures are not kept: the next reader retries.
            Err(e) if !e.is_lasting() => made,
            _ => self.components.charge((index, part), made, COMPONENT, &self.options.account),
        }
    }

    fn make(&self, tensor: &Tensor<'_>, part: usize) -> OpenedComponent {
        let Some(part) = tensor.components.get(part) else {
            return OpenedComponent::broken(Error::new(Kind::NotFound, "component"));
        };
        let named = |e: Error| e.within(format_args!("{} {:.80}", quoted(&tensor.name), part.role));
        let shard = match &part.shard {
            None => OpenShard { source: Arc::clone(&self.source), gate: None },
            Some(name) => match self.shard(name) {
                Ok(shard) => shard,
                Err(e) => return OpenedComponent::broken(named(e.at(part.described_at))),
            },
        };
        let stored = component::stored(&shard, self.manifest.dialect, part, &self.failed, &self.options);
        let content = component::content(&stored, self.manifest.dialect, tensor, part, &self.failed, &self.options);
        let content = content.map_err(named);
        OpenedComponent { stored: Ok(stored), content }
    }

    /// Shard `name`.
    ///
    /// # Errors
    /// Fails if its file is missing or does not match the manifest.
    pub(super) fn shard(&self, name: &str) -> Result<OpenShard> {
        // Callers wait for each other only if they use the same shard.
        let shard = self.shards.charge(name.to_owned(), Arc::default(), SHARD, &self.options.account);
        let open = || {
            let (_, shard) = self.manifest.shard_named(name)?;
            let files = self.files.as_ref().ok_or_else(|| Error::new(Kind::NotFound, "shard"))?;
            shards::open_shard(self.source.path(), files, &shard, &self.failed, &self.options)
        };
        shard.get(open).cloned()
    }

    /// The index of the component with role `role`.
    pub(super) fn role(tensor: &Tensor<'_>, role: &str) -> Option<usize> {
        tensor.components.iter().position(|p| p.role == role)
    }
}

/// Decodes each piece on request, uncached: for checks, which read everything once.
pub(super) struct Direct;

impl Fetch for Direct {
    fn piece(&self, blob: &crate::format::BlobRef, piece: u64) -> Result<Piece> {
        let range = blob.layout()?.range(piece);
        let mut bytes = crate::limits::zeroed(range.end - range.start, "piece")?;
        blob.decode(piece, &mut bytes)?;
        Ok(Arc::new(bytes))
    }
}

/// Bytes read at a time from stored content, which has no pieces.
const STRIDE: u64 = 1 << 20;

/// The length of a component's content in bytes.
///
/// # Errors
/// Fails if the length cannot be determined.
pub(super) fn len(content: &Content) -> Result<u64> {
    match content {
        Content::FileExtent(stored) => Ok(stored.len),
        Content::Blob(blob) => Ok(blob.layout()?.len()),
        _ => Err(Error::new(Kind::NotFound, "component")),
    }
}

/// Iterates over a component's content in order, with one piece in memory at a time.
pub(super) struct ContentPieces<'a> {
    content: &'a Content,
    fetch: &'a dyn Fetch,
    /// Pieces, or bytes of the file, read so far.
    done: u64,
    all: u64,
    piece: Piece,
}

impl<'a> ContentPieces<'a> {
    /// Starts before the first byte.
    ///
    /// # Errors
    /// As [`len`]; fails if the bytes do not match their digest.
    pub(super) fn new(content: &'a Content, fetch: &'a dyn Fetch) -> Result<Self> {
        let all = match content {
            Content::FileExtent(FileExtent { len, gate, .. }) => {
                ChecksumGate::wait_before(gate.as_ref(), true)?;
                *len
            }
            Content::Blob(blob) => blob.layout()?.count(),
            _ => return Err(Error::new(Kind::NotFound, "component")),
        };
        Ok(Self { content, fetch, done: 0, all, piece: Piece::default() })
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// Fails if they cannot be read or decoded.
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

/// Passes the content of a component to `each` in order, a component at a time.
///
/// # Errors
/// Fails if the content cannot be read or decoded, or if `each` fails.
pub(super) fn each(content: &Content, fetch: &dyn Fetch, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut chunks = ContentPieces::new(content, fetch)?;
    while let Some(bytes) = chunks.next()? {
        each(bytes)?;
    }
    Ok(())
}
