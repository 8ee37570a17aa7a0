//! NFS version 3, read-only, on the crate `nfs3_server`: for `mount -t nfs` where there is no FUSE.
//!
//! A handle holds the path and the version of a file by their hashes, and a secret, so that only who has mounted the secret
//! path has handles. A file that has changed since is ESTALE. NFS has no limits of its own: the crate takes requests of any
//! size on any number of connections, so it listens on loopback unless the user says otherwise.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use nfs3_server::nfs3_types::nfs3::{
    FSF3_HOMOGENEOUS, FSINFO3resok, fattr3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, post_op_attr, specdata3,
};
use nfs3_server::tcp::{NFSTcp as _, NFSTcpListener};
use nfs3_server::vfs::{
    DirEntryPlus, FileHandle, NextResult, NfsReadFileSystem, ReadDirPlusIterator, adapters::ReadOnlyAdapter,
};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::admission::Admission;
use super::budget::Budget;
use super::tree::{Listed, Resource, Served, ServedTree};
use crate::error::{Error, Kind};

/// Paths whose handles are known; a handle of one that was forgotten is ESTALE.
const PATHS: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
/// Files and directories that are kept open between requests.
const FILES: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const LISTINGS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// Most bytes of one read.
const READ: u32 = 1 << 20;

/// What a client has of a file: hashes of its path and its version (0 of a directory), and the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Handle([u8; 48]);

impl std::fmt::Debug for Handle {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.id()).finish()
    }
}

impl FileHandle for Handle {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl Handle {
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
struct Export {
    tree: Arc<ServedTree>,
    admission: Arc<Admission>,
    budget: Budget,
    secret: u128,
    seed: u64,
    known: Arc<Mutex<Known>>,
}

struct Known {
    paths: LruCache<u128, Arc<str>>,
    files: LruCache<Handle, Served>,
    listings: LruCache<u128, Arc<Vec<Listed>>>,
}

/// A listener on `at`, and where it listens.
///
/// # Errors
/// If the address cannot be used, or is one of IPv6.
pub(super) async fn listen(
    at: SocketAddr,
    tree: Arc<ServedTree>,
    admission: Arc<Admission>,
    budget: Budget,
) -> io::Result<(impl Future<Output = ()> + Send, u16)> {
    if at.is_ipv6() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "NFS is served on addresses of IPv4 only"));
    }
    let mut random = [0; 24];
    if getrandom(&mut random, GetRandomFlags::empty())? < random.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (secret, seed) = random.split_at(16);
    let secret = u128::from_le_bytes(secret.try_into().unwrap_or_default());
    let seed = u64::from_le_bytes(seed.try_into().unwrap_or_default());
    let known = Known { paths: LruCache::new(PATHS), files: LruCache::new(FILES), listings: LruCache::new(LISTINGS) };
    let export = Export { tree, admission, budget, secret, seed, known: Arc::new(Mutex::new(known)) };
    let listener: NFSTcpListener<ReadOnlyAdapter<Export>> = NFSTcpListener::bind_ro(&at.to_string(), export).await?;
    let port = listener.get_listen_port();
    let serving = async move {
        // No descriptor is left, or a client has gone.
        while let Err(e) = listener.handle_forever().await {
            tracing::warn!("NFS: accept: {e}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    Ok((serving, port))
}

/// What has the secret path as its only entry, which is not listed.
const OUTSIDE: Handle = Handle([0; 48]);

impl Export {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn root(&self) -> Handle {
        Handle::new(xxh3_128_with_seed(b"", self.seed), 0, self.secret)
    }

    fn handle(&self, path: &str, version: u128) -> Handle {
        let hash = xxh3_128_with_seed(path.as_bytes(), self.seed);
        self.known().paths.get_or_insert(hash, || path.into());
        Handle::new(hash, version, self.secret)
    }

    /// The path of a handle that this server gave.
    fn path(&self, handle: &Handle) -> Result<Arc<str>, nfsstat3> {
        if handle.part(2) != self.secret {
            return Err(nfsstat3::NFS3ERR_BADHANDLE);
        }
        if *handle == self.root() {
            return Ok("".into());
        }
        self.known().paths.get(&handle.part(0)).cloned().ok_or(nfsstat3::NFS3ERR_STALE)
    }

    /// Runs `work` on a thread that may wait.
    async fn run<T: Send + 'static>(
        &self,
        path: &Arc<str>,
        work: impl FnOnce(&ServedTree) -> crate::error::Result<T> + Send + 'static,
    ) -> Result<T, nfsstat3> {
        let tree = self.tree.clone();
        let done = self.budget.clone().run(move || work(&tree)).await;
        done.map_err(|_| nfsstat3::NFS3ERR_SERVERFAULT)?.map_err(|e| status(path, &e))
    }

    async fn resolve(&self, path: &Arc<str>) -> Result<Resource, nfsstat3> {
        let at = path.clone();
        self.run(path, move |tree| tree.resolve(&at)).await
    }

    /// The file of `handle`, in the version that it is of.
    async fn file(&self, handle: &Handle) -> Result<Served, nfsstat3> {
        let path = self.path(handle)?;
        let kept = self.known().files.get(handle).cloned();
        if let Some(file) = kept {
            let (same, at) = (file.clone(), path.clone());
            let is_there = self.run(&path, move |tree| Ok(tree.is_same(&at, &same))).await?;
            return if is_there { Ok(file) } else { Err(nfsstat3::NFS3ERR_STALE) };
        }
        match self.resolve(&path).await? {
            Resource::File(file) if file.tag == handle.part(1) => {
                self.known().files.put(*handle, file.clone());
                Ok(file)
            }
            Resource::File(_) => Err(nfsstat3::NFS3ERR_STALE),
            Resource::Directory(_) => Err(nfsstat3::NFS3ERR_ISDIR),
        }
    }

    /// The handle of what `path` resolves to.
    async fn found(&self, path: &str) -> Result<Handle, nfsstat3> {
        let path: Arc<str> = path.into();
        let version = match self.resolve(&path).await? {
            Resource::File(file) => {
                let (handle, tag) = (self.handle(&path, file.tag), file.tag);
                self.known().files.put(handle, file);
                tag
            }
            Resource::Directory(_) => 0,
        };
        Ok(self.handle(&path, version))
    }
}

impl NfsReadFileSystem for Export {
    type Handle = Handle;

    fn root_dir(&self) -> Handle {
        if self.admission.prefix() == "/" { self.root() } else { OUTSIDE }
    }

    async fn lookup(&self, dir: &Handle, name: &filename3<'_>) -> Result<Handle, nfsstat3> {
        let name = std::str::from_utf8(name.0.as_ref()).map_err(|_| nfsstat3::NFS3ERR_NOENT)?;
        if *dir == OUTSIDE {
            let is_secret = self.admission.below(&format!("/{name}")) == Some("");
            return if is_secret { Ok(self.root()) } else { Err(nfsstat3::NFS3ERR_NOENT) };
        }
        let above = self.path(dir)?;
        match name {
            "." => Ok(*dir),
            ".." => Ok(self.handle(above.rsplit_once('/').map_or("", |(above, _)| above), 0)),
            "" => Err(nfsstat3::NFS3ERR_NOENT),
            _ if name.contains(['/', '\0']) => Err(nfsstat3::NFS3ERR_NOENT),
            _ if above.is_empty() => self.found(name).await,
            _ => self.found(&format!("{above}/{name}")).await,
        }
    }

    async fn getattr(&self, handle: &Handle) -> Result<fattr3, nfsstat3> {
        if *handle == OUTSIDE {
            return Ok(attributes(ftype3::NF3DIR, 1, 4096, 0));
        }
        if handle.part(1) != 0 {
            let file = self.file(handle).await?;
            return Ok(attributes(ftype3::NF3REG, handle.id(), file.len, file.mtime));
        }
        let path = self.path(handle)?;
        let at = path.clone();
        let mtime = self.run(&path, move |tree| tree.mtime(&at)).await?;
        Ok(attributes(ftype3::NF3DIR, handle.id(), 4096, mtime))
    }

    async fn read(&self, handle: &Handle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfsstat3> {
        let file = self.file(handle).await?;
        let path = self.path(handle)?;
        let end = offset.saturating_add(count.min(READ).into()).min(file.len);
        let is_last = end == file.len;
        let bytes = self.run(&path, move |_| {
            let mut bytes = crate::limits::zeroed(end.saturating_sub(offset), "reply of NFS")?;
            file.read(offset.min(file.len), &mut bytes)?;
            Ok(bytes)
        });
        Ok((bytes.await?, is_last))
    }

    async fn readdirplus(&self, dir: &Handle, cookie: u64) -> Result<impl ReadDirPlusIterator<Handle>, nfsstat3> {
        if *dir == OUTSIDE {
            return Ok(Entries { seed: self.seed, path: "".into(), list: Arc::default(), next: 0 });
        }
        let path = self.path(dir)?;
        let kept = self.known().listings.get(&dir.part(0)).cloned().filter(|_| cookie > 0);
        let entries = if let Some(entries) = kept {
            entries
        } else {
            let Resource::Directory(entries) = self.resolve(&path).await? else { return Err(nfsstat3::NFS3ERR_NOTDIR) };
            let entries = Arc::new(entries);
            self.known().listings.put(dir.part(0), entries.clone());
            entries
        };
        let next = usize::try_from(cookie).unwrap_or(usize::MAX);
        Ok(Entries { seed: self.seed, path, list: entries, next })
    }

    async fn readlink(&self, _: &Handle) -> Result<nfspath3<'_>, nfsstat3> {
        Err(nfsstat3::NFS3ERR_INVAL)
    }

    async fn fsinfo(&self, root: &Handle) -> Result<FSINFO3resok, nfsstat3> {
        Ok(FSINFO3resok {
            obj_attributes: self.getattr(root).await.map_or(post_op_attr::None, post_op_attr::Some),
            rtmax: READ,
            rtpref: READ,
            rtmult: 4096,
            wtmax: READ,
            wtpref: READ,
            wtmult: 4096,
            dtpref: 64 << 10,
            maxfilesize: i64::MAX as u64,
            time_delta: nfstime3 { seconds: 1, nseconds: 0 },
            properties: FSF3_HOMOGENEOUS,
        })
    }
}

/// Entries of a directory, without attributes: a client that wants them looks each up, so that a list decodes nothing.
struct Entries {
    seed: u64,
    path: Arc<str>,
    list: Arc<Vec<Listed>>,
    next: usize,
}

impl ReadDirPlusIterator<Handle> for Entries {
    async fn next(&mut self) -> NextResult<DirEntryPlus<Handle>> {
        let Some(entry) = self.list.get(self.next) else { return NextResult::Eof };
        self.next += 1;
        let slash = if self.path.is_empty() { "" } else { "/" };
        let path = format!("{}{slash}{}", self.path, entry.name);
        NextResult::Ok(DirEntryPlus {
            fileid: xxh3_128_with_seed(path.as_bytes(), self.seed) as u64,
            name: entry.name.clone().into_bytes().into(),
            cookie: self.next as u64,
            name_attributes: None,
            name_handle: None,
        })
    }
}

fn attributes(kind: ftype3, id: u64, size: u64, mtime: i64) -> fattr3 {
    let seconds = u32::try_from(mtime.max(0)).unwrap_or(u32::MAX);
    let time = nfstime3 { seconds, nseconds: 0 };
    let is_dir = kind == ftype3::NF3DIR;
    fattr3 {
        type_: kind,
        mode: if is_dir { 0o555 } else { 0o444 },
        nlink: if is_dir { 2 } else { 1 },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size,
        used: size,
        rdev: specdata3 { specdata1: 0, specdata2: 0 },
        fsid: 0,
        fileid: id,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// The error of NFS for `error` at `path`; the log tells of what is broken.
fn status(path: &str, error: &Error) -> nfsstat3 {
    let status = match error.kind() {
        Kind::NotFound => return nfsstat3::NFS3ERR_NOENT,
        Kind::Io(io) if io.kind() == io::ErrorKind::NotFound => return nfsstat3::NFS3ERR_NOENT,
        Kind::Io(io) if io.kind() == io::ErrorKind::NotADirectory => return nfsstat3::NFS3ERR_NOTDIR,
        Kind::Changed => nfsstat3::NFS3ERR_STALE,
        Kind::NoRoom { .. } => nfsstat3::NFS3ERR_JUKEBOX,
        _ => nfsstat3::NFS3ERR_IO,
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
        assert_eq!(Handle::from_bytes(handle.as_bytes()), Some(handle));
        assert_eq!(Handle::from_bytes(&[0; 47]), None);
        assert_eq!(format!("{handle:?}"), "Handle(1)");
    }
}
