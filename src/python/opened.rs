//! An open archive, for all objects of Python that read it.
#![forbid(unsafe_code)]

use fzmfs::huge_pages;
use pyo3::prelude::*;

use crate::end::at_end;
use crate::owned::Owned;

/// Maximum decoded bytes that a closed archive leaves in the allocator, for the next one.
const LEFT: u64 = 64 << 20;

/// An archive. The last owner returns its memory to the system, so it is dropped after other references to the archive.
pub(crate) struct Opened(Owned<fzmfs::Archive>);

impl Opened {
    pub(crate) fn new(archive: fzmfs::Archive) -> Self {
        Self(Owned::new(archive))
    }

    /// The archive; an error in a process that was forked since.
    pub(crate) fn get(&self) -> PyResult<&fzmfs::Archive> {
        self.0.get()
    }

    /// Ends it, once.
    fn end(&mut self) {
        let held = self.get().map_or(0, |archive| archive.cache().stats().held);
        self.0.end();
        if held > LEFT {
            huge_pages::give_back();
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        at_end(|| self.end());
    }
}
