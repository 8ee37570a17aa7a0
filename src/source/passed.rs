//! A file of a directory that is passed through as it is.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::Source;
use super::seen::Seen;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::platform::FileExt;

/// A file that is open.
#[derive(Debug)]
pub enum Passed {
    /// A file of this machine, as it is at each moment.
    Local(File),
    /// An object on a server, in one version.
    Far(Arc<Source>),
}

impl Passed {
    /// Its state now.
    ///
    /// # Errors
    /// From stat(2).
    pub fn seen(&self) -> Result<Seen> {
        match self {
            Self::Local(file) => Seen::of(file),
            Self::Far(source) => Ok(Seen::of_far(source)),
        }
    }

    /// Fills `buffer` from `offset`, as far as the file goes.
    ///
    /// # Errors
    /// [`crate::error::Kind::Io`]; of an object as [`Source::read`].
    pub fn read_full(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Self::Local(file) => read_full(file, buffer, offset).map_err(|e| Error::io(e, "file")),
            Self::Far(source) => {
                let left = source.len().saturating_sub(offset).min(to_u64(buffer.len()));
                let len = usize::try_from(left).unwrap_or(0);
                source.read(FileOffset(offset), buffer.get_mut(..len).unwrap_or_default(), "file")?;
                Ok(len)
            }
        }
    }
}

fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(to_u64(done))) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
