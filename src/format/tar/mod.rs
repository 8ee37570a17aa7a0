//! Tar archives: of Unix V7, POSIX (ustar, pax) and GNU, with sparse files.
//!
//! Reference: POSIX.1-2024 `pax`; the manual of GNU tar, "Tar Internals".
//!
//! Shows as: the members, with their modes and times, and nothing else. A link that leads out of the archive cannot be
//! followed; hard links are files with the same content; devices and pipes are left out. A member that is a container
//! is a directory. After a broken header there is nothing more than `error.txt`, which names it.
//! Checked: the sums of all headers, when the archive is listed.
//! Limits: see `members`, `sparse`, `index` and `walk`. `kept`: the tree in the index of the user.
//!
//! Invariants: opening reads one header. Listing reads all of them, and no content: in a compressed archive that
//! decodes all that cannot be skipped, once.
#![forbid(unsafe_code)]

mod dir;
mod header;
mod index;
mod kept;
mod members;
mod node;
mod records;
mod sparse;
#[cfg(test)]
#[allow(dead_code, reason = "the tests of trees use all of it")]
#[path = "../../../tests/support/tar_blocks.rs"]
mod tar_blocks;
mod walk;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
use crate::once::Once;
use crate::platform::OsStrExt;
use crate::recent::Recent;
use crate::source::{SmallReads, Source};
use crate::wanted::is_given_up;

use super::nested::{self, InnerContainer, NestedBytes};
use super::{Check, Container, Content, Directory, Entry, File, FileExtent, Format, Info, Input, Options};
use dir::MemberDir;
use header::{BLOCK_LEN, TarHeader};
use index::{Index, ROOT};
use members::{Member, Members};
use node::{NodeKind, TarNode};
use sparse::Sparse;
use walk::TarWalk;

/// The entry in the table of formats. A tar file in a directory stays a file; one in a stream is a directory.
pub(super) const FORMAT: Format =
    Format { name: "tar", extensions: &[], enclosed: &["tar"], detect, open, kernels: &[] };

/// Where the magic is.
const MAGIC: std::ops::Range<usize> = 257..262;
/// How many containers among the members stay open.
const OPEN: NonZeroUsize = NonZeroUsize::new(64).unwrap();

fn detect(input: &Input) -> bool {
    if input.head.get(MAGIC) == Some(b"ustar") {
        return true;
    }
    // Archives of V7 have no magic, and empty ones no header.
    let is_named = input.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"));
    let block = input.head.first_chunk::<BLOCK_LEN>();
    is_named && block.is_some_and(|block| is_zero(block) || header::is_header(block))
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let source = input.file()?;
    let block = SmallReads::new(&source).array::<BLOCK_LEN>(FileOffset(0), "header")?;
    let version = if is_zero(&block) { "empty" } else { version(&TarHeader::parse(&block, FileOffset(0))?) };
    let (content, options) = (input.content.clone(), options.clone());
    let (index, walk, open) = (Once::new(), Mutex::default(), Recent::new(OPEN));
    Ok(Arc::new(Tar(Arc::new(TarArchive { source, content, options, version, index, walk, open }))))
}

/// The dialect of the archive.
fn version(header: &TarHeader) -> &'static str {
    match header.kind {
        b'x' | b'g' | b'X' => "pax",
        _ if header.fields.as_gnu().is_some() => "gnu",
        _ if header.fields.as_ustar().is_some() => "ustar",
        _ => "v7",
    }
}

struct Tar(Arc<TarArchive>);

/// An archive.
struct TarArchive {
    source: Arc<Source>,
    /// The archive as a part of decoded content, if it is in a stream.
    content: Option<Content>,
    options: Options,
    version: &'static str,
    index: Once<Index>,
    /// The walk for it, if it was given up.
    walk: Mutex<Option<TarWalk>>,
    /// The containers among the members that were in use last.
    open: Recent<u32, Arc<InnerContainer>>,
}

impl TarArchive {
    /// The tree of the members; reads all headers the first time. From then on the size of the archive is known.
    fn index(&self) -> Result<&Index> {
        self.index.get(|| {
            let records = self.options.index.of(&self.source).filter(|_| self.source.len() >= kept::LEAST);
            let is_dir = |node: &TarNode, name: &[u8]| self.is_dir(node, name);
            if let Some(records) = &records
                && let Some(index) = kept::find(records, &self.options.account, &is_dir)?
            {
                self.source.size()?;
                return Ok(index);
            }
            let mut walk = match self.walk.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(walk) => walk,
                None => TarWalk::new(&self.source, &self.options.account)?,
            };
            if let Err(e) = walk.run(&is_dir) {
                if is_given_up(&e) {
                    *self.walk.lock().unwrap_or_else(PoisonError::into_inner) = Some(walk);
                }
                return Err(e);
            }
            let index = walk.finish()?;
            if let Some(records) = &records {
                kept::keep(&index, records);
            }
            if let Some(damage) = &index.damage {
                tracing::warn!("{}: {}", self.source.path().display(), damage.explain());
            }
            Ok(index)
        })
    }

    /// The content of `len` bytes at `at`: of what is missing at the end of the archive, an error.
    fn stored(&self, at: u64, len: u64) -> Content {
        let size = self.source.size();
        let there = size.as_ref().unwrap_or(&u64::MAX).saturating_sub(at).min(len);
        let found = match &self.content {
            Some(content) if size.is_ok() => content.clone().slice(at..at.saturating_add(there)),
            // A stream with a fault, of unknown size: what is before the fault can be read in order.
            _ => {
                let source = Arc::clone(&self.source);
                Content::FileExtent(FileExtent { source, at: FileOffset(at), len: there, gate: None })
            }
        };
        if there == len {
            return found;
        }
        let error = Error::new(Kind::Truncated { need: len, have: there }, "content").at(FileOffset(at));
        Content::Join([found, Content::failed(Some(len - there), error)].into())
    }

    /// The file of `node`.
    fn file(self: &Arc<Self>, node: &TarNode) -> File {
        let len = node.len;
        let content = match node.kind {
            NodeKind::Sparse => {
                let (me, at) = (Arc::clone(self), node.at());
                let make = move || {
                    let none = || Error::corrupt("no member", "header").at(at);
                    let member = Members::from(&me.source, at).next()?.ok_or_else(none)?;
                    let Member { map, data, stored, len, .. } = member;
                    let sparse = Sparse { map: map.unwrap_or_default(), data, stored, len };
                    sparse.content(&me.source, |at, len| me.stored(at, len))
                };
                Content::Deferred { len: Some(len), make: Arc::new(make) }
            }
            NodeKind::Dangling => {
                let why = "a hard link to a name that no member before it has";
                Content::failed(None, Error::corrupt(why, "linkname").at(node.at()))
            }
            _ => self.stored(node.at().0, len),
        };
        File::new(content).stored(node.stored()).attr("offset", node.at().0)
    }

    /// Whether the member `name` is shown as the container that it is by its name.
    fn is_container(&self, node: &TarNode, name: &[u8]) -> bool {
        node.kind == NodeKind::File && node.len > 0 && nested::is_enclosed(name, &self.options)
    }

    /// Whether the member `name` is shown as a directory.
    fn is_dir(&self, node: &TarNode, name: &[u8]) -> bool {
        node.kind == NodeKind::Dir || self.is_container(node, name)
    }

    /// The container that the member `number` is.
    fn container(self: &Arc<Self>, number: u32, node: &TarNode) -> Result<Arc<InnerContainer>> {
        let path = self.path(number)?;
        let make = || {
            let (source, at, len) = (Arc::clone(&self.source), node.at().0, node.len);
            let content = self.content.is_some().then(|| self.stored(at, len));
            let (of, file_size) = (path.clone(), self.source.len());
            let bytes = move || {
                let source = Source::within(&source, at..at.saturating_add(len), of.clone())?;
                Ok(NestedBytes { source, content: content.clone() })
            };
            Arc::new(InnerContainer::new(path, &self.options, file_size, bytes))
        };
        Ok(self.open.get_or_put(number, make))
    }

    /// The path of a member, for messages.
    fn path(&self, number: u32) -> Result<PathBuf> {
        let index = self.index()?;
        let (mut names, mut at) = (Vec::new(), number);
        while let Some(node) = index.node(at).filter(|_| at != ROOT) {
            names.push(OsStr::from_bytes(index.name(at)));
            at = node.parent;
        }
        Ok(self.source.path().join(names.into_iter().rev().collect::<PathBuf>()))
    }

    /// Checks all headers, and the containers among the members.
    fn check(self: &Arc<Self>) -> Result<()> {
        let index = self.index()?;
        for number in 0..u32::try_from(index.nodes()).unwrap_or(u32::MAX) {
            let Some(node) = index.node(number) else { break };
            if self.is_container(&node, index.name(number)) {
                let inner = self.container(number, &node)?;
                inner.check().map_err(|e| e.within(String::from_utf8_lossy(index.name(number))))?;
            }
        }
        index.damage.clone().map_or(Ok(()), Err)
    }
}

impl Container for Tar {
    fn info(&self) -> Info {
        let TarArchive { source, version, index, .. } = &*self.0;
        let index = index.ready().and_then(Result::ok);
        let mut details = Map::new();
        let mut add = |key: &str, value: Value| drop(details.insert(key.into(), value));
        add("members", index.map(|index| index.members).into());
        add("left_out", index.map(|index| index.left_out).into());
        if let Some(damage) = index.and_then(|index| index.damage.as_ref()) {
            add("damage", damage.explain().into());
        }
        Info {
            format: FORMAT.name,
            format_version: (*version).to_owned(),
            file_size: source.size().unwrap_or(0),
            decoded_size: index.map(|index| index.bytes),
            checksums: json!({ "headers": "sum" }),
            checksum_count: index.map(|index| index.members),
            details,
        }
    }

    fn is_described(&self) -> bool {
        false
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    fn directory(&self) -> Option<Arc<dyn Directory>> {
        Some(Arc::new(MemberDir::new(Arc::clone(&self.0), ROOT)))
    }

    fn checks(&self) -> Vec<Check> {
        let archive = Arc::clone(&self.0);
        vec![Check::Run { name: "members".into(), bytes: 0, run: Box::new(move || archive.check()) }]
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![Arc::clone(&self.0.source)]
    }
}
