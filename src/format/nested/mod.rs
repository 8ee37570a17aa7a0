//! Containers inside containers: a compressed file that is a container itself, as its name says (`field.fzm.zst`).
//!
//! Shows as: a directory in the place of the link to `data.raw`, under the same name (`field.fzm/`), with the tree that
//! the container would have by itself. If it is broken: the reason and the decoded file. Checked: by the checks of
//! both; the outer container comes first. Limits: [`DEPTH`] levels of nesting. Opening the inner one decodes the parts
//! of the outer one that it reads, and is given up if that is too much work for the size of the file: see [`WORK`].
#![forbid(unsafe_code)]

mod decoded;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::broken::explain;
use super::{
    BlobRef, Check, Container, Entry, Format, Info, Input, Node, Options, Piece, has_usual_extension, open_or_explain,
    space,
};
use crate::account::{Pieces, decode_budget};
use crate::error::Result;
use crate::once::Once;
use crate::recent::Recent;
use crate::source::Source;

pub(super) use decoded::Decoded;

/// The decoded pieces of outer containers that were read last, of all containers that share an account: by the id of
/// the blob, and their number in it.
pub type OuterPieces = Recent<(u64, u64), Piece>;

/// Maximum number of pieces of outer containers, and of their bytes.
const OUTER: (NonZeroUsize, u64) = (NonZeroUsize::new(1 << 20).unwrap(), 64 << 20);

/// A cache for the pieces of outer containers.
pub(super) fn outer_pieces() -> OuterPieces {
    Recent::within(OUTER.0, OUTER.1)
}

/// Maximum number of containers around another one.
const DEPTH: u32 = 4;
/// Bytes that may be decoded to open a nested container: a constant, plus a factor for each byte of the file itself.
/// Each frame that is read counts as some hundreds.
const WORK: (u64, u64) = (1 << 30, 64);

/// Bytes that may be decoded to open a container in a file of `file_size` bytes.
pub(super) fn work(file_size: u64) -> u64 {
    WORK.0.saturating_add(file_size.saturating_mul(WORK.1))
}

/// A container in another one, not open yet.
pub trait Enclosed: Send + Sync {
    /// The container; a broken one has entries that say so.
    ///
    /// # Errors
    /// Only errors that may be transient.
    fn open(&self) -> Result<Arc<dyn Container>>;

    /// The container, if it was opened before.
    fn known(&self) -> Option<Arc<dyn Container>>;
}

/// Opens a container of `format`, with the one in it, if any.
pub(super) fn open(format: &Format, input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let stem = input.path.file_stem().filter(|_| input.path.extension().is_some()).unwrap_or(OsStr::new("")).as_bytes();
    let is_inner = options.depth < DEPTH && has_usual_extension(stem);
    // The content of a nested container is not read in order.
    let pieces = || Pieces::new(options.account.clone());
    let options = if is_inner { &Options { pieces: pieces(), ..options.clone() } } else { options };
    let container = space::placed((format.open)(input, options)?, &options.space);
    let stem = stem.to_vec();
    Ok(match container.stream() {
        Some(stream) if is_inner => {
            let path = input.path.join(OsStr::from_bytes(&stem));
            let own = input.source.as_ref().map_or(0, |source| source.len());
            let file_size = if options.depth == 0 { own } else { options.file_size };
            let options = Options { depth: options.depth + 1, file_size, pieces: pieces(), ..options.clone() };
            let inner = Arc::new(Inner { outer: container.clone(), stream, path, options, opened: Once::new() });
            Arc::new(Outer { container, stem, inner: Some(inner) })
        }
        // The tree names the link after the file that was opened, which is another one.
        Some(_) if options.depth > 0 && !stem.is_empty() => Arc::new(Outer { container, stem, inner: None }),
        _ => container,
    })
}

/// The container in the stream of another one.
struct Inner {
    outer: Arc<dyn Container>,
    stream: BlobRef,
    path: PathBuf,
    options: Options,
    opened: Once<Arc<dyn Container>>,
}

impl Enclosed for Inner {
    fn open(&self) -> Result<Arc<dyn Container>> {
        let open = || {
            let bytes = Decoded::new(self.outer.sources(), self.stream.clone(), &self.options)?;
            let source = Source::of(&self.path, bytes);
            let opened = decode_budget::opening(work(self.options.file_size), || {
                open_or_explain(&Input::of(source.clone())?, &self.options)
            });
            let (container, error) = match opened {
                Ok(opened) => opened,
                Err(error) if error.is_lasting() => (explain(&source, &error), Some(error)),
                Err(error) => return Err(error),
            };
            if let Some(error) = error {
                tracing::info!("{}: {}", self.path.display(), error.explain());
            }
            Ok(container)
        };
        self.opened.get(open).cloned()
    }

    fn known(&self) -> Option<Arc<dyn Container>> {
        self.opened.ready()?.ok().cloned()
    }
}

/// A container with a stream as a file called `stem`, which may be a container itself.
struct Outer {
    container: Arc<dyn Container>,
    stem: Vec<u8>,
    inner: Option<Arc<Inner>>,
}

impl Container for Outer {
    fn wrapped(&self) -> Option<&Arc<dyn Container>> {
        Some(&self.container)
    }

    fn info(&self) -> Info {
        self.container.info()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let named = |entry: Entry| match entry.node {
            Node::StemLink(to) => {
                let link = || Node::Link(to.to_owned());
                let inner = self.inner.clone().map(|inner| Node::Container(inner));
                Entry::named(self.stem.clone(), "", inner.unwrap_or_else(link))
            }
            _ => entry,
        };
        Ok(self.container.entries()?.into_iter().map(named).collect())
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = self.container.checks();
        let Some(inner) = &self.inner else { return checks };
        let within = |what: &str| format!("{}: {what}", String::from_utf8_lossy(&self.stem));
        match inner.open() {
            Ok(container) => checks.extend(container.checks().into_iter().map(|check| match check {
                Check::Decode { name, blob } => Check::Decode { name: within(&name), blob },
                Check::Run { name, bytes, run } => Check::Run { name: within(&name), bytes, run },
            })),
            Err(e) => {
                let run = Box::new(move || Err(e.clone()));
                checks.push(Check::Run { name: within("file"), bytes: 0, run });
            }
        }
        checks
    }

    fn unverifiable(&self) -> Vec<String> {
        let inner = self.inner.as_ref().and_then(|inner| inner.known());
        let more = inner.map_or_else(Vec::new, |container| container.unverifiable());
        self.container.unverifiable().into_iter().chain(more).collect()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.container.sources()
    }
}
