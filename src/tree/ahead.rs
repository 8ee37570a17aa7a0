//! Prepares in memory the next entries for a program that visits a directory in order.
//!
//! Limits: the attributes of each entry; the listings of a directory and of those below it, [`DIRS`] in total, if they
//! are small (at most [`SMALL`] items) and not kept for ever. Files of more than [`SHORT`] bytes are not opened.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::format::{Fetch, Subdirs};
use crate::view::{self, Effort};

use super::child::What;
use super::children::{Children, InodeRange};
use super::listing::{Listing, SubDir};
use super::open::OpenFile;
use super::{Kind, OpenDir, Tree};

/// Maximum number of items of a small directory.
const SMALL: usize = 16;
/// Maximum number of directories listed for an entry.
const DIRS: usize = 8;
/// Maximum number of bytes of a file that is opened ahead: opening a longer one is cheap compared to reading it.
const SHORT: u64 = 1 << 20;

impl Listing {
    /// Whether child `index` is a small directory.
    fn is_small_dir(&self, index: u64) -> bool {
        match self.get(index).map(|child| child.what) {
            Some(What::LazyDir(_)) => match self.dir(index) {
                Ok(Some(SubDir::Lazy(dir))) => dir.subdirs() == Subdirs::Listed,
                _ => false,
            },
            Some(What::Group(chain, _)) => self.items(chain.first).nth(SMALL).is_none(),
            _ => false,
        }
    }
}

impl Tree {
    /// Prepares the entry at or after position `index` of `dir` for lookups and listings; returns the position after
    /// it.
    ///
    /// # Errors
    /// Fails if structure is broken; the request for it gets the same error.
    pub fn prepare(&self, dir: &OpenDir, index: u64) -> Result<Option<u64>> {
        let range = &dir.0;
        let Some(index) = range.children.next(index)? else { return Ok(None) };
        match range.children.kind(index) {
            Kind::Dir => self.prepare_dir(range, index)?,
            Kind::File | Kind::Link => self.prepare_attr(range, index),
        }
        Ok(Some(index + 1))
    }

    /// As [`Tree::prepare`], for a program that opens files: also returns the file, if it is short and opening it
    /// decodes nothing. Its view exists then, and serves every open of the file until the result is dropped.
    ///
    /// # Errors
    /// As [`Tree::prepare`].
    pub fn prepare_file(
        &self,
        dir: &OpenDir,
        index: u64,
        fetch: &dyn Fetch,
    ) -> Result<(Option<u64>, Option<Arc<OpenFile>>)> {
        let range = &dir.0;
        let Some(index) = range.children.next(index)? else { return Ok((None, None)) };
        if range.children.kind(index) != Kind::File {
            return Ok((self.prepare(dir, index)?, None));
        }
        let file = self.file(range.first.child(index))?;
        let len = view::known_len(&file.file.content);
        if let Some(size) = len {
            self.keep_size(range, index, size, file.file.stored);
        }
        if len.is_none_or(|len| len > SHORT) || !matches!(file.effort()?, Effort::Structure) {
            return Ok((Some(index + 1), None));
        }
        file.view(fetch)?;
        Ok((Some(index + 1), Some(file)))
    }

    fn prepare_attr(&self, range: &Arc<InodeRange>, index: u64) {
        let dir = OpenDir(Arc::clone(range));
        self.entry_attr(&dir, range.first.child(index));
    }

    /// Lists child `index` and the directories below it, if they are small, and prepares their entries.
    fn prepare_dir(&self, range: &Arc<InodeRange>, index: u64) -> Result<()> {
        let mut dirs: Vec<(Arc<InodeRange>, u64)> = vec![(Arc::clone(range), index)];
        let mut listed = 0;
        while let Some((range, index)) = dirs.get(listed).cloned() {
            listed += 1;
            let Children::Listed(listing) = &range.children else { continue };
            if !listing.is_small_dir(index) {
                continue;
            }
            let range = self.inode_range(range.first.child(index))?;
            if !matches!(range.children, Children::Listed(_)) {
                continue;
            }
            for index in 0..range.children.len() {
                match range.children.kind(index) {
                    Kind::Dir if dirs.len() < DIRS => dirs.push((Arc::clone(&range), index)),
                    Kind::Dir => {}
                    Kind::File | Kind::Link => self.prepare_attr(&range, index),
                }
            }
        }
        Ok(())
    }
}
