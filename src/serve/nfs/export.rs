//! The tree by the handles of NFS.
//!
//! A handle holds the path and the version of a file by their hashes, and a secret, so that only who has mounted the secret
//! path has handles. A file that has changed since is stale.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::super::admission::Admission;
use super::super::budget::Budget;
use super::super::tree::{Resource, Served, ServedEntry, ServedTree};
use crate::error::{Error, Kind};
use crate::platform;
use crate::recent::Recent;

/// Paths whose handles are known; a handle of one that was forgotten is ESTALE.
const PATHS: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
/// Files and directories that are kept open between requests.
const FILES: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const LISTINGS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Why a call has failed, as NFS numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    NoEntry = 2,
    Io = 5,
    NotDirectory = 20,
    IsDirectory = 21,
    Invalid = 22,
    ReadOnly = 30,
    Stale = 70,
    BadHandle = 10_001,
    TooSmall = 10_005,
    ServerFault = 10_006,
    Later = 10_008,
}

pub(super) type Failed = Status;

/// The attributes of a file.
#[derive(Debug)]
pub(super) struct Attributes {
    pub(super) is_directory: bool,
    pub(super) id: u64,
    pub(super) size: u64,
    /// Of all its times, since 1970.
    pub(super) seconds: u32,
    pub(super) user: u32,
    pub(super) group: u32,
}

/// A file handle: hashes of the path and of the version (0 for a directory), and the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Handle(pub(super) [u8; 48]);

impl fmt::Debug for Handle {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.id()).finish()
    }
}

impl Handle {
    /// The handle that a request has.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn new(path: u128, version: u128, secret: u128) -> Self {
        let mut bytes = [0; 48];
        for (to, part) in bytes.chunks_exact_mut(16).zip([path, version, secret]) {
            to.copy_from_slice(&part.to_le_bytes());
        }
        Self(bytes)
    }

    fn part(&self, at: usize) -> u128 {
        u128::from_le_bytes(self.0.as_chunks().0.get(at).copied().unwrap_or_default())
    }

    /// The number of the file: that of its path.
    fn id(&self) -> u64 {
        self.part(0) as u64
    }
}

/// The tree for clients of NFS.
pub(super) struct Export {
    tree: Arc<ServedTree>,
    admission: Arc<Admission>,
    budget: Budget,
    secret: u128,
    seed: u64,
    paths: Recent<u128, Arc<str>>,
    files: Recent<Handle, Served>,
    listings: Recent<u128, Arc<Vec<ServedEntry>>>,
}

/// The directory with the secret path as its only entry, which is not listed.
const OUTSIDE: Handle = Handle([0; 48]);

impl Export {
    /// The tree under the path that `admission` wants.
    ///
    /// # Errors
    /// From getrandom(2).
    pub(super) fn new(tree: Arc<ServedTree>, admission: Arc<Admission>, budget: Budget) -> io::Result<Self> {
        let mut random = [0; 24];
        platform::random(&mut random)?;
        let (secret, seed) = random.split_at(16);
        let secret = u128::from_le_bytes(secret.try_into().unwrap_or_default());
        let seed = u64::from_le_bytes(seed.try_into().unwrap_or_default());
        let (paths, files, listings) = (Recent::new(PATHS), Recent::new(FILES), Recent::new(LISTINGS));
        Ok(Self { tree, admission, budget, secret, seed, paths, files, listings })
    }

    fn root(&self) -> Handle {
        Handle::new(xxh3_128_with_seed(b"", self.seed), 0, self.secret)
    }

    fn handle(&self, path: &str, version: u128) -> Handle {
        let hash = xxh3_128_with_seed(path.as_bytes(), self.seed);
        self.paths.get_or_put(hash, || path.into());
        Handle::new(hash, version, self.secret)
    }

    /// The path of a handle that this server gave.
    fn path(&self, handle: &Handle) -> Result<Arc<str>, Status> {
        if handle.part(2) != self.secret {
            return Err(Status::BadHandle);
        }
        if *handle == self.root() {
            return Ok("".into());
        }
        self.paths.get(&handle.part(0)).ok_or(Status::Stale)
    }

    /// Runs `work` on a thread that may wait.
    async fn run<T: Send + 'static>(
        &self,
        path: &Arc<str>,
        work: impl FnOnce(&ServedTree) -> crate::error::Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let tree = self.tree.clone();
        let done = self.budget.clone().run(move || work(&tree)).await;
        done.map_err(|_| Status::ServerFault)?.map_err(|e| status(path, &e))
    }

    async fn resolve(&self, path: &Arc<str>) -> Result<Resource, Status> {
        let at = path.clone();
        self.run(path, move |tree| tree.resolve(&at)).await
    }

    /// The file of `handle`, in the version that it is of.
    async fn file(&self, handle: &Handle) -> Result<Served, Status> {
        let path = self.path(handle)?;
        let kept = self.files.get(handle);
        if let Some(file) = kept {
            let (same, at) = (file.clone(), path.clone());
            let is_there = self.run(&path, move |tree| Ok(tree.is_same(&at, &same))).await?;
            return if is_there { Ok(file) } else { Err(Status::Stale) };
        }
        match self.resolve(&path).await? {
            Resource::File(file) if file.tag == handle.part(1) => {
                self.files.put(*handle, file.clone());
                Ok(file)
            }
            Resource::File(_) => Err(Status::Stale),
            Resource::Directory(_) => Err(Status::IsDirectory),
        }
    }

    /// The handle of what `path` resolves to.
    async fn found(&self, path: &str) -> Result<Handle, Status> {
        let path: Arc<str> = path.into();
        let version = match self.resolve(&path).await? {
            Resource::File(file) => {
                let (handle, tag) = (self.handle(&path, file.tag), file.tag);
                self.files.put(handle, file);
                tag
            }
            Resource::Directory(_) => 0,
        };
        Ok(self.handle(&path, version))
    }
}

impl Export {
    /// The handle of the directory that is mounted as `path`.
    pub(super) async fn mounted(&self, path: &[u8]) -> Result<Handle, Status> {
        let mut at = if self.admission.prefix() == "/" { self.root() } else { OUTSIDE };
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = self.lookup(&at, name).await?;
        }
        Ok(at)
    }

    /// The handle of the entry `name` of `dir`.
    pub(super) async fn lookup(&self, dir: &Handle, name: &[u8]) -> Result<Handle, Status> {
        let name = std::str::from_utf8(name).map_err(|_| Status::NoEntry)?;
        if *dir == OUTSIDE {
            let is_secret = self.admission.below(&format!("/{name}")) == Some("");
            return if is_secret { Ok(self.root()) } else { Err(Status::NoEntry) };
        }
        let above = self.path(dir)?;
        match name {
            "." => Ok(*dir),
            ".." => Ok(self.handle(above.rsplit_once('/').map_or("", |(above, _)| above), 0)),
            "" => Err(Status::NoEntry),
            _ if name.contains(['/', '\0']) => Err(Status::NoEntry),
            _ if above.is_empty() => self.found(name).await,
            _ => self.found(&format!("{above}/{name}")).await,
        }
    }

    /// The attributes of `handle`.
    pub(super) async fn attributes(&self, handle: &Handle) -> Result<Attributes, Status> {
        let (is_directory, id, size, mtime) = if *handle == OUTSIDE {
            (true, 1, 4096, 0)
        } else if handle.part(1) == 0 {
            let path = self.path(handle)?;
            let at = path.clone();
            (true, handle.id(), 4096, self.run(&path, move |tree| tree.mtime(&at)).await?)
        } else {
            let file = self.file(handle).await?;
            (false, handle.id(), file.len, file.mtime)
        };
        let seconds = u32::try_from(mtime.max(0)).unwrap_or(u32::MAX);
        let (user, group) = platform::user();
        Ok(Attributes { is_directory, id, size, seconds, user, group })
    }

    /// At most `count` bytes from `offset` on; fewer at the end, and if clients have not taken what they asked for.
    pub(super) async fn read(&self, handle: &Handle, offset: u64, count: u32) -> Result<Bytes, Status> {
        let file = self.file(handle).await?;
        let path = self.path(handle)?;
        let room = self.budget.room(file.len.saturating_sub(offset).min(count.into()));
        let start = offset.min(file.len);
        self.run(&path, move |_| room.filled(|buffer| file.read(start, buffer))).await
    }

    /// The entries of `dir`, for a list that goes on at `cookie`.
    pub(super) async fn entries(&self, dir: &Handle, cookie: u64) -> Result<Entries, Status> {
        if *dir == OUTSIDE {
            return Ok(Entries { seed: self.seed, path: "".into(), list: Arc::default() });
        }
        let path = self.path(dir)?;
        let kept = self.listings.get(&dir.part(0)).filter(|_| cookie > 0);
        let list = if let Some(list) = kept {
            list
        } else {
            let Resource::Directory(list) = self.resolve(&path).await? else { return Err(Status::NotDirectory) };
            let list = Arc::new(list);
            self.listings.put(dir.part(0), list.clone());
            list
        };
        Ok(Entries { seed: self.seed, path, list })
    }
}

/// The entries of a directory.
pub(super) struct Entries {
    seed: u64,
    path: Arc<str>,
    list: Arc<Vec<ServedEntry>>,
}

impl Entries {
    /// The number and the name of an entry.
    pub(super) fn get(&self, at: u64) -> Option<(u64, &str)> {
        let name = self.list.get(usize::try_from(at).ok()?)?.name.as_str();
        let slash = if self.path.is_empty() { "" } else { "/" };
        let path = format!("{}{slash}{name}", self.path);
        Some((xxh3_128_with_seed(path.as_bytes(), self.seed) as u64, name))
    }
}

/// The error of NFS for `error` at `path`; the log tells of what is broken.
fn status(path: &str, error: &Error) -> Status {
    let status = match error.kind() {
        Kind::NotFound => return Status::NoEntry,
        Kind::Io(io) if io.kind() == io::ErrorKind::NotFound => return Status::NoEntry,
        Kind::Io(io) if io.kind() == io::ErrorKind::NotADirectory => return Status::NotDirectory,
        Kind::Changed => Status::Stale,
        Kind::NoRoom { .. } => Status::Later,
        _ => Status::Io,
    };
    tracing::warn!("{path}: {error}");
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_its_parts() {
        let handle = Handle::new(1, 2, u128::MAX);
        assert_eq!((handle.part(0), handle.part(1), handle.part(2), handle.id()), (1, 2, u128::MAX, 1));
        assert_eq!((Handle::of(&handle.0), Handle::of(&[0; 47])), (Some(handle), None));
        assert_eq!(format!("{handle:?}"), "Handle(1)");
    }
}
