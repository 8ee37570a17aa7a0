//! One file of a folder, as a source.
#![forbid(unsafe_code)]

use std::fs::File;
use std::sync::Arc;

use super::folder::Folder;
use super::origin::Origin;
use crate::bytes::FileOffset;
use crate::error::Result;

/// A file of a folder, opened when it is read.
#[derive(Debug)]
pub(super) struct FolderMember {
    pub(super) folder: Arc<Folder>,
    pub(super) index: usize,
}

impl Origin for FolderMember {
    fn len(&self) -> u64 {
        self.folder.size(self.index)
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        self.folder.read(self.index, at, dst, what)
    }

    fn mtime(&self) -> (i64, i64) {
        self.folder.mtime(self.index)
    }

    fn file(&self) -> Option<Arc<File>> {
        self.folder.opened(self.index)
    }

    fn is_same_in_memory(&self) -> bool {
        self.folder.is_same_in_memory(self.index)
    }

    fn check(&self) -> Result<()> {
        self.folder.check(self.index)
    }

    fn set_changed(&self) {
        self.folder.set_changed(self.index);
    }
}
