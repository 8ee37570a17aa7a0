//! The directories of an archive. Their entries follow from the index, and are made again whenever they are needed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::format::nested::Enclosed;
use crate::format::{Attrs, Content, Directory, Entry, File, LazyFile, Metadata, Node, Subdirs, collected};
use crate::platform::OsStrExt;
use crate::platform::os_error;
use crate::source::stays_inside;

use super::TarArchive;
use super::index::{Index, ROOT};
use super::node::{NodeKind, TarNode as Member};

/// A directory of an archive, or a container among the members.
pub(super) struct MemberDir {
    archive: Arc<TarArchive>,
    number: u32,
}

impl MemberDir {
    pub(super) fn new(archive: Arc<TarArchive>, number: u32) -> Self {
        Self { archive, number }
    }

    /// The member `number`.
    fn member(&self, number: u64) -> Result<(&Index, u32, Member)> {
        let missing = || Error::new(Kind::NotFound, "member");
        let (index, number) = (self.archive.index()?, u32::try_from(number).map_err(|_| missing())?);
        Ok((index, number, index.node(number).ok_or_else(missing)?))
    }

    /// The entry of a member.
    fn node(&self, number: u32, member: &Member, name: &[u8]) -> Node {
        let len = Some(member.len).filter(|_| member.kind != NodeKind::Dangling);
        match member.kind {
            NodeKind::Dir => Node::LazyDir(number.into()),
            NodeKind::Symlink => Node::LazyLink(number.into()),
            _ if self.archive.is_container(member, name) => Node::LazyDir(number.into()),
            _ => Node::LazyFile(LazyFile { number: number.into(), len, stored: member.stored(), array: None }),
        }
    }
}

impl Directory for MemberDir {
    fn attrs(&self) -> Attrs {
        Attrs::new()
    }

    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        collected(self)
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let index = self.archive.index()?;
        for (number, member) in index.children(self.number) {
            let name = index.name(number);
            each(Entry::named(name, "", self.node(number, &member, name)))?;
        }
        match index.damage.as_ref().filter(|_| self.number == ROOT) {
            Some(damage) => {
                let why = format!("{}\n", crate::text::escaped(&damage.explain()));
                each(Entry::own("error.txt", File::new(Content::bytes(why.into_bytes()))))
            }
            None => Ok(()),
        }
    }

    fn file(&self, number: u64) -> Result<File> {
        self.member(number).map(|(_, _, member)| self.archive.file(&member))
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        let (_, number, _) = self.member(number)?;
        Ok(Arc::new(Self::new(Arc::clone(&self.archive), number)))
    }

    fn link(&self, number: u64) -> Result<Vec<u8>> {
        let (index, number, member) = self.member(number)?;
        let (target, depth) = (index.target(&member), index.depth(number).saturating_sub(1));
        if !target.is_empty() && stays_inside(Path::new(OsStr::from_bytes(target)), depth) {
            return Ok(target.to_vec());
        }
        Err(Error::io(os_error(libc::EACCES), "a link out of the archive"))
    }

    fn metadata(&self, number: u64) -> Option<Metadata> {
        let (index, number, member) = self.member(number).ok()?;
        let mtime = member.mtime.map(|(seconds, nanos)| (seconds, nanos.into()));
        let is_container = self.archive.is_container(&member, index.name(number));
        // Readers of a container may enter it.
        let mode = member.mode.map(|mode| if is_container { mode | (mode & 0o444) >> 2 } else { mode });
        Some(Metadata { mode, mtime })
    }

    fn subdirs(&self) -> Subdirs {
        let known = self.archive.index.ready().and_then(Result::ok).and_then(|index| index.node(self.number));
        known.map_or(Subdirs::Unknown, |dir| Subdirs::Known(u32::try_from(dir.len).unwrap_or(u32::MAX)))
    }

    fn container(&self) -> Option<Arc<dyn Enclosed>> {
        let (index, number, member) = self.member(self.number.into()).ok()?;
        if !self.archive.is_container(&member, index.name(number)) {
            return None;
        }
        let inner: Arc<dyn Enclosed> = self.archive.container(number, &member).ok()?;
        Some(inner)
    }
}
