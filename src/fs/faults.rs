//! Log of the faults in the containers of a mount: each fault once, since readers and the kernel
//! retry, and several virtual files show the same piece.
//!
//! A line is that of `fzmfs cat`: container, virtual file, problem, and in it the tensor or chunk by name.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Kind};
use crate::failure::Failure;
use crate::tree::{Ino, Tree};

/// Maximum number of logged faults of a mount, so that badly broken containers do not fill the disk.
const LOGGED: usize = 1000;

/// The faults of one container of a mount.
#[derive(Debug, Clone)]
pub(super) struct Faults {
    container: PathBuf,
    /// Its tree, once it is open.
    tree: Option<Arc<Tree>>,
    /// Logged faults of the whole mount.
    logged: Arc<Mutex<HashSet<(PathBuf, String)>>>,
}

impl Faults {
    /// The faults of `container`, in a mount of it.
    pub(super) fn new(container: &Path) -> Self {
        Self { container: container.to_owned(), tree: None, logged: Arc::default() }
    }

    /// The faults of another container of the same mount.
    pub(super) fn of(&self, container: &Path) -> Self {
        Self { container: container.to_owned(), tree: None, logged: self.logged.clone() }
    }

    /// The same, of a container that is open.
    pub(super) fn named_by(self, tree: &Arc<Tree>) -> Self {
        Self { tree: Some(tree.clone()), ..self }
    }

    /// A read, or another call, of `ino` failed.
    pub(super) fn in_file(&self, ino: Ino, error: &Error) {
        self.log(error, || match self.tree.as_ref().and_then(|tree| Some((tree, tree.path(ino)?))) {
            Some((tree, path)) if !path.is_empty() => {
                Failure::of_entry(&self.container, &path, &tree.container().naming(error)).to_string()
            }
            _ => self.line(error),
        });
    }

    /// A checksum failed over bytes that may have been served.
    pub(super) fn in_check(&self, error: &Error) {
        self.log(error, || format!("{}; nothing that this checksum covers is served any more", self.line(error)));
    }

    /// The container cannot be opened, or only as one that is broken.
    pub(super) fn in_container(&self, error: &Error) {
        self.log(error, || self.line(error));
    }

    fn line(&self, error: &Error) -> String {
        Failure::of(&self.container, error).to_string()
    }

    fn log(&self, error: &Error, line: impl FnOnce() -> String) {
        // The watcher of the container reports a change; a reader that was killed gave up.
        if matches!(error.kind(), Kind::Changed) || error.errno() == libc::EINTR {
            return;
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= LOGGED || !logged.insert((self.container.clone(), error.to_string())) {
            return;
        }
        let is_last = logged.len() == LOGGED;
        drop(logged);
        tracing::error!("{}", line());
        if is_last {
            tracing::error!("{}: {LOGGED} faults logged; those that follow are not", self.container.display());
        }
    }
}
