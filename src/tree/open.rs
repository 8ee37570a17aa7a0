//! A file that somebody holds open.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::format::{Fetch, File};
use crate::view::{View, lies_ready};

use super::Ino;

/// A file that somebody holds open, shared by all who do.
#[derive(Debug)]
pub struct OpenFile {
    /// Its inode number.
    pub ino: Ino,
    /// Its content, type and attributes.
    pub file: File,
    view: Mutex<Option<Arc<View>>>,
}

impl OpenFile {
    pub(super) fn new(ino: Ino, file: File) -> Self {
        Self { ino, file, view: Mutex::new(None) }
    }

    /// Whether [`OpenFile::view`] answers without decoding or computing.
    pub fn lies_ready(&self) -> bool {
        lies_ready(&self.file.content)
    }

    /// Its bytes. Decodes where the container does not say how many there are.
    ///
    /// # Errors
    /// As [`View::new`].
    pub fn view(&self, fetch: &dyn Fetch) -> Result<Arc<View>> {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = &*view {
            return Ok(view.clone());
        }
        let made = Arc::new(View::new(&self.file.content, fetch)?);
        Ok(view.insert(made).clone())
    }
}
