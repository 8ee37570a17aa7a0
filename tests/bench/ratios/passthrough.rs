//! The least that a file system in user space can do: numbered files, each read answered with the same bytes of another
//! file, or of memory.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, Request, SessionACL,
};

use super::mount::Mounted;

/// What file 0 is called.
pub(super) const NAME: &str = "000000.raw";
pub(super) const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// The inode number of file 0.
const FIRST: u64 = 2;

/// Where the bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// The file, with a system call for each read.
    File,
    /// Memory, which holds them before the first read.
    Memory,
}

struct Passthrough {
    file: File,
    at: u64,
    len: u64,
    held: Option<Vec<u8>>,
}

/// The attributes of a file of `len` bytes, or of a directory.
pub(super) fn attr(ino: INodeNo, len: Option<u64>) -> FileAttr {
    FileAttr {
        ino,
        size: len.unwrap_or(0),
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if len.is_some() { FileType::RegularFile } else { FileType::Directory },
        perm: 0o555,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 1 << 17,
        flags: 0,
    }
}

impl Passthrough {
    fn attr(&self, ino: u64) -> FileAttr {
        attr(INodeNo(ino), (ino >= FIRST).then_some(self.len))
    }
}

impl Filesystem for Passthrough {
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
        let len = u64::from(size).min(self.len.saturating_sub(offset)) as usize;
        if let Some(held) = &self.held {
            return reply.data(&held[offset as usize..][..len]);
        }
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, self.at + offset) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel then asks no more, as it does not for our files.
        reply.error(Errno::ENOSYS);
    }
}

/// Serves bytes `at..at + len` of `file` at `point` until it is unmounted.
pub(super) fn serve(from: From, file: &Path, at: u64, len: u64, point: &Path) {
    let file = File::open(file).unwrap();
    let held = (from == From::Memory).then(|| {
        let mut held = vec![0; len as usize];
        file.read_exact_at(&mut held, at).unwrap();
        held
    });
    mount(Passthrough { file, at, len, held }, "passthrough", point);
}

/// Mounts `served` at `point` until it is unmounted.
pub(super) fn mount(served: impl Filesystem, name: &str, point: &Path) {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName(name.into())];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(2);
    config.clone_fd = true;
    fuser::mount(served, point, &config).unwrap();
}

/// Has a process of its own serve bytes `at..at + len` of `file` at `point`; waits until the mount answers.
pub(super) fn start(from: From, file: &Path, at: u64, len: u64, point: &Path) -> (Child, Mounted) {
    let mut server = Command::new(std::env::current_exe().unwrap());
    let command = if from == From::Memory { "memory" } else { "passthrough" };
    server.args([command, &at.to_string(), &len.to_string()]).arg(file).arg(point);
    let server = server.spawn().unwrap();
    for _ in 0..1000 {
        if point.join(NAME).exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (server, Mounted::other(point))
}
