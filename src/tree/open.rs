//! An open file.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::error::Result;
use crate::format::{Fetch, File};
use crate::view::{self, Effort, View};

use super::Ino;

/// An open file, shared by all of its users.
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

    /// The work that [`OpenFile::view`] would do now.
    ///
    /// # Errors
    /// As [`view::effort`].
    pub fn effort(&self) -> Result<Effort> {
        if self.known_view().is_some() { Ok(Effort::Structure) } else { view::effort(&self.file.content) }
    }

    /// Its view, if it was created before. Never blocks.
    pub fn known_view(&self) -> Option<Arc<View>> {
        match self.view.try_lock() {
            Ok(view) => view.clone(),
            Err(TryLockError::Poisoned(view)) => view.into_inner().clone(),
            // Another thread is creating it.
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Its view, created if necessary. Decodes if the container does not record the length.
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
