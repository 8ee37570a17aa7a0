//! The layouts `flat` and `plain`: the files of containers among those of the mirrored directory.
//!
//! A listing opens the containers in the directory, since the names depend on their content. The names are kept by the
//! version of the file.
//!
//! `a.b2nd`, `a.fzm`, `b.txt.zst`, `c.txt` and `c.txt.zst` in a directory: `flat` shows `a.npy` and `a~2.npy`, `plain`
//! shows `b.txt`, and the content of `c.txt.zst` under that name, since `c.txt` is another file.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileAttr, ReplyEntry};
use rustix::fs::FileType;

use super::as_of::AsOf;
use super::names::{DirNames, NameKind, each, plain};
use super::nodes::EntryKey;
use super::outer::{SOON, errno};
use super::{MINUTE, MirroredDir};
use crate::account::Share;
use crate::error::{self, Error, Result};
use crate::fs::inode_attr::Numbering;
use crate::fs::shared::GENERATION;
use crate::mirror::{self, FlatNames, Layout, Shown, ShownFile, is_candidate, stat_container};
use crate::parallel;
use crate::recent::Recent;
use crate::source::{Below, Rights, Seen};
use crate::tree::{self, Ino, Tree};
use crate::wanted::is_given_up;

/// Number of directories whose names are kept.
const DIRECTORIES: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// Number of containers whose names are kept.
const CONTAINERS: NonZeroUsize = NonZeroUsize::new(1 << 17).unwrap();

/// The names that directories and containers show.
pub(super) struct Flat {
    /// By the number of the directory.
    directories: Recent<u64, Known>,
    /// By the number of the container, which differs for each version of it.
    containers: Recent<u64, Look>,
}

/// How a container is shown.
#[expect(clippy::large_enum_variant, reason = "most are files")]
#[derive(Debug, Clone, Copy)]
pub(super) enum Look {
    /// As these files; and their readers.
    Files(Shown, Rights),
    /// As the members of the archive that was compressed, under the name of that.
    Archive,
    /// As a directory, under its own name.
    Tree,
}

/// The names in a directory.
#[derive(Clone)]
struct Known {
    names: Arc<FlatNames>,
    as_of: AsOf,
}

impl Default for Flat {
    fn default() -> Self {
        let (directories, containers) = (Recent::new(DIRECTORIES), Recent::new(CONTAINERS));
        Self { directories, containers }
    }
}

/// An entry whose name no file has.
#[derive(Debug)]
pub(super) enum FlatEntry {
    /// A file that stands for a container.
    File(FlatFile),
    /// The members of an archive.
    Archive(FileAttr),
}

/// A file that stands for a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlatFile {
    /// The slot of the container.
    slot: u32,
    /// Its inode number, which the kernel is about to learn.
    number: u64,
    /// The inode in its tree.
    ino: Ino,
}

impl Flat {
    /// Forgets the files that the container `number` shows.
    pub(super) fn forget(&self, number: u64) {
        self.containers.remove(&number);
    }
}

impl MirroredDir {
    /// The names of the containers in the directory `parent`.
    pub(super) fn flat_names(&self, parent: u64, below: &Below) -> Result<Arc<FlatNames>> {
        let itself = below.stat_itself()?;
        let within = if self.is_far { MINUTE } else { SOON };
        if let Some(known) = self.flat.directories.get(&parent).filter(|known| known.as_of.is_same(&itself, within)) {
            return Ok(known.names);
        }
        let as_of = AsOf::new(&itself, self.is_far);
        let mut entries = Vec::new();
        each(below, |name, kind| {
            let is_container = || is_candidate(below, OsStr::from_bytes(name), kind);
            entries.push((name.to_vec(), self.containers.rules.is_container(name) && is_container()));
            Ok(())
        })?;
        let options = &self.containers.options;
        let names = Arc::new(FlatNames::new(&mut entries, self.containers.rules.layout, &options.account)?);
        self.flat.directories.put(parent, Known { names: names.clone(), as_of });
        Ok(names)
    }

    /// How the container `file` is shown. May open it: as it was `listed`, if it is a file.
    fn shown(&self, parent: u64, file: &[u8], seen: &Seen, listed: Option<&Seen>, below: &FlatNames) -> Result<Look> {
        let number = self.state().nodes.number(&entry(parent, file, seen));
        if let Some(look) = self.flat.containers.get(&number) {
            return Ok(look);
        }
        let (Some(stem), Ok(parent)) = (below.stem(file), self.path(parent)) else { return Ok(Look::Tree) };
        let path = parent.join(OsStr::from_bytes(file));
        let opened = match self.containers.open_flat(&path, listed, stem)? {
            mirror::Look::Files(opened) => *opened,
            other => {
                let look = if matches!(other, mirror::Look::Archive) { Look::Archive } else { Look::Tree };
                self.flat.containers.put(number, look);
                return Ok(look);
            }
        };
        let rights = self.who_may_read(&opened)?;
        let tree = Tree::charging(opened.container, OsStr::from_bytes(file), &self.containers.options.account)?;
        let look = Look::Files(mirror::shown(&tree, self.containers.rules.layout)?, rights);
        if opened.seen.version() == seen.version() {
            self.flat.containers.put(number, look);
        }
        Ok(look)
    }

    /// Lists the directory `number`.
    pub(super) fn list_flat(&self, number: u64, below: &Below, share: Share) -> Result<DirNames> {
        let rules = &self.containers.rules;
        let flat = self.flat_names(number, below)?;
        let (mut entries, mut names) = (Vec::new(), DirNames::new(share));
        each(below, |name, kind| {
            entries.push((name.to_vec(), kind));
            Ok(())
        })?;
        let shown = |(name, kind): (Vec<u8>, FileType)| {
            let file = OsStr::from_bytes(&name);
            let is_container = rules.is_container(&name) && is_candidate(below, file, kind);
            let show = || {
                let seen = stat_container(below, file)?;
                let listed = (kind == FileType::RegularFile).then_some(&seen);
                self.shown(number, &name, &seen, listed, &flat)
            };
            let shown = is_container.then(show);
            (name, kind, shown)
        };
        let at_once = if below.is_far() { mirror::FAR } else { 0 };
        parallel::in_order(at_once, entries, shown, |(name, kind, shown)| match (shown, flat.stem(&name)) {
            (Some(Ok(Look::Files(shown, _))), Some(stem)) => {
                rules.layout.suffixes().iter().zip(shown).try_for_each(|(suffix, file)| {
                    let ino = file.and_then(|file| u8::try_from(file.ino.0).ok());
                    let name = [stem, suffix.as_bytes()].concat();
                    ino.map_or(Ok(()), |ino| names.push(&name, 0, NameKind::Flat(ino)))
                })
            }
            // The server does not answer: each further container would wait as long. Or the reader was killed.
            (Some(Err(e)), _) if below.is_far() && is_out_of_reach(&e) || is_given_up(&e) => Err(e),
            (Some(Err(e)), _) if e.errno() == libc::ENOENT => Ok(()),
            // Whether it shows as files or as a directory cannot be determined now; it is there, under its own name.
            (None | Some(Err(_)), _) => names.push(&name, 0, plain(kind)),
            (Some(Ok(Look::Archive)), Some(stem)) => names.push(stem, 0, NameKind::Archive),
            _ => names.push(&name, 0, NameKind::Tree),
        })?;
        names.flat = Some(flat);
        Ok(names)
    }

    /// The entry `name` of a container in `parent`; `None` if there is none. Counts the look-up.
    pub(super) fn find_flat(&self, parent: u64, name: &OsStr, uid: u32) -> Result<Option<FlatEntry>, Errno> {
        let below = self.below(parent)?;
        let flat = self.flat_names(parent, &below).map_err(|e| errno(&e))?;
        let Some((file, number)) = flat.find(name.as_bytes()) else { return Ok(None) };
        let Ok(seen) = stat_container(&below, OsStr::from_bytes(file)) else { return Ok(None) };
        let existing = |e: Error| Errno::from_i32(e.errno_of_existing());
        let shown = self.shown(parent, file, &seen, None, &flat).map_err(existing)?;
        let shown = match shown {
            Look::Files(shown, _) => shown,
            Look::Archive => return Ok(Some(FlatEntry::Archive(self.tell(parent, file, &seen, true, uid)))),
            Look::Tree => return Ok(None),
        };
        let Some(ShownFile { ino, .. }) = shown.get(number).copied().flatten() else { return Ok(None) };
        let number = self.state().nodes.tell(&entry(parent, file, &seen), seen.rights, uid, false);
        let slot = self.slot(number).ok_or(Errno::ENFILE).inspect_err(|_| self.forget(number, 1))?;
        Ok(Some(FlatEntry::File(FlatFile { slot, number, ino })))
    }

    /// Whether the container `file` in `parent` is shown as a directory of this name.
    pub(super) fn is_tree(&self, parent: u64, file: &OsStr, seen: &Seen, below: &Below) -> Result<bool> {
        let flat = self.flat_names(parent, below)?;
        Ok(matches!(self.shown(parent, file.as_bytes(), seen, None, &flat)?, Look::Tree))
    }

    /// Where the link to `target` in the directory `parent` leads: to the file of a container under the name that it has
    /// here, if it has another one. Looks at targets in the same directory.
    pub(super) fn plain_target(&self, parent: u64, below: &Below, target: &[u8]) -> Option<Vec<u8>> {
        let file = target.strip_prefix(b"./").unwrap_or(target);
        if self.containers.rules.layout != Layout::Plain || file.contains(&b'/') {
            return None;
        }
        let seen = stat_container(below, OsStr::from_bytes(file)).ok()?;
        let names = self.flat_names(parent, below).ok()?;
        let stem = names.stem(file)?;
        let is_shown = matches!(self.shown(parent, file, &seen, None, &names), Ok(Look::Files(..) | Look::Archive));
        is_shown.then(|| stem.to_vec())
    }

    /// The name of the container at `path` in the directory `parent`, without a suffix.
    pub(super) fn flat_stem(&self, parent: u64, path: &Path) -> Result<Vec<u8>> {
        let (below, name) = self.containers.top.around(path)?;
        let names = self.flat_names(parent, &below)?;
        Ok(names.stem(name.as_bytes()).unwrap_or_default().to_vec())
    }

    /// Replies to a lookup that has found `file`.
    pub(super) fn reply_flat(self: &Arc<Self>, file: FlatFile, reply: ReplyEntry) {
        let FlatFile { slot, number, ino } = file;
        let me = self.clone();
        match self.opened(slot) {
            Ok(session) => session.shared().attr(ino, move |shared, attr| match attr {
                Ok(attr) => reply.entry(&me.keep(), &shared.attributes.attr(&attr), GENERATION),
                Err(e) => {
                    me.forget(number, 1);
                    reply.error(shared.errno(ino, &e));
                }
            }),
            Err(e) => {
                let errno = self.refused(slot, &e);
                self.forget(number, 1);
                reply.error(errno);
            }
        }
    }

    /// The attributes of the file `ino` of a container, for a listing, and how long the kernel may keep them: any that
    /// require decoding, or opening the container again, are computed on demand. Counts the look-up.
    pub(super) fn tell_flat(&self, parent: u64, file: &[u8], seen: &Seen, ino: Ino, uid: u32) -> (FileAttr, Duration) {
        let number = self.state().nodes.tell(&entry(parent, file, seen), seen.rights, uid, false);
        let (shown, rights) = match self.flat.containers.get(&number) {
            Some(Look::Files(shown, rights)) => {
                self.state().nodes.tell_readers(number, rights);
                (Some(shown), rights)
            }
            _ => (None, seen.rights),
        };
        let attributes = self.attributes(rights, Numbering { root: number, base: number });
        let known = shown.and_then(|shown| shown.into_iter().flatten().find(|file| file.ino == ino)?.attr);
        let unknown = || (attributes.unknown(ino, tree::Kind::File), Duration::ZERO);
        known.map_or_else(unknown, |attr| (attributes.attr(&attr), self.keep()))
    }
}

/// The entry of a container that is shown as files.
fn entry<'a>(parent: u64, name: &'a [u8], seen: &Seen) -> EntryKey<'a> {
    EntryKey { parent, name, is_tree: true, identity: seen.version(), is_flat: true }
}

/// Whether the server gave no answer.
fn is_out_of_reach(error: &Error) -> bool {
    let no_answer = |kind| matches!(kind, ErrorKind::TimedOut | ErrorKind::NotConnected);
    matches!(error.kind(), error::Kind::Io(error) if no_answer(error.kind()))
}
