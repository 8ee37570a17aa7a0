//! Containers inside containers: a compressed file that is a container itself, as its name says (`field.fzm.zst`), and
//! containers among the members of an archive.
//!
//! Shows as: a directory in the place of the link to `data.raw`, under the same name (`field.fzm/`), with the tree that
//! the container would have by itself. If it is broken: the reason and the decoded file. Checked: by the checks of
//! both; the outer container comes first. Limits: [`DEPTH`] levels of nesting. Opening the inner one decodes the parts
//! of the outer one that it reads, and is given up if that is too much work for the size of the file: see [`WORK`].
#![forbid(unsafe_code)]

mod ahead;
mod decoded;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::broken::explain;
use super::{
    BlobRef, Check, Container, Content, Entry, Format, Info, Input, Node, Options, Piece, PieceKey, detect,
    has_extension, has_usual_extension, open_or_explain, space,
};
use crate::account::{Pieces, decode_budget};
use crate::checksum::Verify;
use crate::error::Result;
use crate::limits::zeroed;
use crate::once::Once;
use crate::platform::OsStrExt;
use crate::recent::Recent;
use crate::source::Source;
use crate::wanted;

pub(super) use decoded::Decoded;

/// The decoded pieces of outer containers that were read last, of all containers that share an account: by the id of
/// the blob, and their number in it.
pub type OuterPieces = Recent<PieceKey, Piece>;

/// Maximum number of pieces of outer containers, and of their bytes.
const OUTER: (NonZeroUsize, u64) = (NonZeroUsize::new(1 << 20).unwrap(), 64 << 20);

/// A cache for the pieces of outer containers.
pub(super) fn outer_pieces() -> OuterPieces {
    Recent::within(OUTER.0, OUTER.1)
}

/// Maximum number of containers around another one.
const DEPTH: u32 = 4;
/// Short extensions, and that of the file in the compressed one.
const SHORT: [(&str, &str); 1] = [(".tzst", ".tar")];
/// Bytes that may be decoded to open a nested container: a constant, plus a factor for each byte of the file itself, plus
/// what is verified before the first byte. Each frame that is read counts as some hundreds.
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

    /// Whether listing its root may decode all of the container around it.
    fn lists_by_decoding(&self) -> bool;
}

/// Opens a container of `format`, with the one in it, if any.
pub(super) fn open(format: &Format, input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let stem = stem(&input.path);
    let is_inner = is_enclosed(&stem, options);
    // The content of a nested container is not read in order.
    let pieces = || Pieces::new(options.account.clone());
    let options = if is_inner { &Options { pieces: pieces(), ..options.clone() } } else { options };
    let container = space::placed((format.open)(input, options)?, &options.space);
    Ok(match container.stream() {
        Some(stream) if is_inner => {
            let path = input.path.join(OsStr::from_bytes(&stem));
            let own = input.source.as_ref().map_or(0, |source| source.len());
            let (outer, at, of) = (container.sources(), path.clone(), options.clone());
            let bytes = move || {
                let source = Source::of(&at, Decoded::new(outer.clone(), stream.clone(), &of)?);
                Ok(NestedBytes { source, content: Some(Content::Blob(stream.clone())) })
            };
            let inner = Arc::new(InnerContainer::new(path, options, own, bytes));
            Arc::new(Outer { container, stem, inner: Some(inner) })
        }
        // The tree names the link after the file that was opened, which is another one.
        Some(_) if options.depth > 0 && !stem.is_empty() => Arc::new(Outer { container, stem, inner: None }),
        _ => container,
    })
}

/// The name of the file in a compressed one; empty if that has no extension.
fn stem(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    extension_at(name).map_or_else(Vec::new, |_| compressed_name(name).into_owned())
}

/// The name of the file in a compressed one called `name`: `x.tar` for `x.tar.zst` and `x.tzst`.
pub fn compressed_name(name: &[u8]) -> Cow<'_, [u8]> {
    let Some((stem, extension)) = extension_at(name).and_then(|dot| name.split_at_checked(dot)) else {
        return Cow::Borrowed(name);
    };
    match SHORT.iter().find(|(short, _)| extension.eq_ignore_ascii_case(short.as_bytes())) {
        Some((_, long)) => Cow::Owned([stem, long.as_bytes()].concat()),
        None => Cow::Borrowed(stem),
    }
}

/// Where the last extension of a file called `name` begins, with its dot. A hidden file without more to its name has
/// none.
pub fn extension_at(name: &[u8]) -> Option<usize> {
    name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0)
}

/// Whether a file called `name` in a container with these options is a container too.
pub(super) fn is_enclosed(name: &[u8], options: &Options) -> bool {
    options.depth < DEPTH && (has_usual_extension(name) || has_extension(name, |format| format.enclosed))
}

/// The bytes of a container in another one.
pub(super) struct NestedBytes {
    pub(super) source: Arc<Source>,
    /// The same as a part of decoded content: readers then share its pieces.
    pub(super) content: Option<Content>,
}

/// A container in another one: in its stream, or among its members.
pub(super) struct InnerContainer {
    path: PathBuf,
    options: Options,
    bytes: Box<dyn Fn() -> Result<NestedBytes> + Send + Sync>,
    opened: Once<Arc<dyn Container>>,
}

impl InnerContainer {
    /// The container at `path` in the bytes that `bytes` gives; the one around it has `options` and `own` bytes.
    pub(super) fn new(
        path: PathBuf,
        options: &Options,
        own: u64,
        bytes: impl Fn() -> Result<NestedBytes> + Send + Sync + 'static,
    ) -> Self {
        let file_size = if options.depth == 0 { own } else { options.file_size };
        let pieces = Pieces::new(options.account.clone());
        let options = Options { depth: options.depth + 1, file_size, pieces, ..options.clone() };
        Self { path, options, bytes: Box::new(bytes), opened: Once::new() }
    }

    /// Runs all its checks, one after the other.
    ///
    /// # Errors
    /// The first one.
    pub(super) fn check(&self) -> Result<()> {
        self.open()?.checks().into_iter().try_for_each(|check| match check {
            Check::Run { name, run, .. } => run().map_err(|e| e.within(name)),
            Check::Decode { name, blob } => decode_all(&blob).map_err(|e| e.within(name)),
        })
    }
}

/// Decodes all pieces of a blob.
fn decode_all(blob: &BlobRef) -> Result<()> {
    let layout = blob.layout()?;
    for piece in 0..layout.count() {
        let range = layout.range(piece);
        wanted::check()?;
        blob.decode(piece, &mut zeroed(range.end.saturating_sub(range.start), "piece")?)?;
    }
    Ok(())
}

impl Enclosed for InnerContainer {
    fn open(&self) -> Result<Arc<dyn Container>> {
        let open = || {
            let NestedBytes { source, content } = (self.bytes)()?;
            // A stream that is verified before its first byte is decoded to its end.
            let is_first = matches!(self.options.verify.resolve(source.len()), Verify::First);
            let whole = if is_first { source.len() } else { 0 };
            let limit = work(self.options.file_size).saturating_add(whole);
            let input = || Ok(Input { content, ..Input::of(source.clone())? });
            let opened = decode_budget::opening(limit, input).and_then(|input| {
                // Counting is not limited: the size is that of the stream too.
                if !detect(&input, None).is_ok_and(|format| !format.enclosed.is_empty()) {
                    source.size()?;
                }
                decode_budget::opening(limit, || open_or_explain(&input, &self.options))
            });
            let (container, error) = match opened {
                Ok(opened) => opened,
                Err(error) if error.is_lasting() => (explain(Some(source.clone()), &error), Some(error)),
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

    fn lists_by_decoding(&self) -> bool {
        has_extension(self.path.as_os_str().as_bytes(), |format| format.enclosed)
    }
}

/// A container with a stream as a file called `stem`, which may be a container itself.
struct Outer {
    container: Arc<dyn Container>,
    stem: Vec<u8>,
    inner: Option<Arc<InnerContainer>>,
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

    fn lists_by_decoding(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.lists_by_decoding())
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
