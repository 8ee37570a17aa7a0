//! The least that a file system in user space can do for many small files: numbered ones, all of the same bytes.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, Request, SessionACL,
};

const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// The inode number of file 0.
const FIRST: u64 = 2;

struct RoundTrips(Vec<u8>);

impl RoundTrips {
    fn attr(&self, ino: u64) -> FileAttr {
        let is_file = ino >= FIRST;
        FileAttr {
            ino: INodeNo(ino),
            size: if is_file { self.0.len() as u64 } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o555,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 1 << 17,
            flags: 0,
        }
    }
}

impl Filesystem for RoundTrips {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|name| name.strip_suffix(".raw")?.parse::<u64>().ok()) {
            Some(number) => reply.entry(&FOR_EVER, &self.attr(FIRST + number), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attr(ino.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let from = (offset as usize).min(self.0.len());
        reply.data(&self.0[from..(from + size as usize).min(self.0.len())]);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}

/// Serves files of `len` bytes at `point` until it is unmounted.
pub(super) fn serve(len: usize, point: &Path) {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("round_trips".into())];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(2);
    config.clone_fd = true;
    fuser::mount(RoundTrips(vec![7; len]), point, &config).unwrap();
}
