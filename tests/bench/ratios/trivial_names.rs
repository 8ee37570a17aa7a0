//! The least that a file system in user space can do for a program that visits names: directories whose entries and
//! attributes are computed from inode numbers, with the names that the mount has for nested tensors.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    MountOption, OpenFlags, ReplyAttr, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen, Request, SessionACL,
};

use super::mount::Mounted;

const FOR_EVER: Duration = Duration::from_secs(1 << 30);
const TENSORS: u64 = 2;
const STORED: u64 = 3;
/// Inode numbers for each tensor: its directory, its three files; its directory among the stored ones, `x` in it, and
/// the file in that.
const OWN: u64 = 8;

struct Names {
    count: u64,
}

impl Names {
    /// The `at`-th entry of `dir`.
    fn entry(&self, dir: u64, at: u64) -> Option<(u64, String)> {
        let place = dir % OWN;
        let named = |names: &[&str], first: u64| Some((first + at, names.get(usize::try_from(at).ok()?)?.to_string()));
        match dir {
            1 => named(&["tensors", "stored"], TENSORS),
            TENSORS | STORED if at < self.count => {
                Some((OWN * (at + 1) + if dir == TENSORS { 0 } else { 4 }, format!("g{at:06}")))
            }
            TENSORS | STORED => None,
            _ if place == 0 => named(&["x.raw", "x.npy", "x.json"], dir + 1),
            _ if place == 4 => named(&["x"], dir + 1),
            _ => named(&["data.bin"], dir + 1),
        }
    }

    fn attr(ino: u64) -> FileAttr {
        let is_dir = ino < OWN || matches!(ino % OWN, 0 | 4 | 5);
        FileAttr {
            ino: INodeNo(ino),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_dir { FileType::Directory } else { FileType::RegularFile },
            perm: if is_dir { 0o555 } else { 0o444 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Adds entries from `offset` on until `add` says that no more fit.
    fn list(&self, dir: u64, offset: u64, mut add: impl FnMut(u64, u64, &str) -> bool) {
        let mut at = offset;
        while let Some((ino, name)) = self.entry(dir, at) {
            at += 1;
            if add(ino, at, &name) {
                break;
            }
        }
    }
}

impl Filesystem for Names {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // As our mount.
        let wanted =
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO | InitFlags::FUSE_PARALLEL_DIROPS;
        config.add_capabilities(wanted).ok();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_string_lossy();
        let at = name.strip_prefix('g').and_then(|number| number.parse().ok());
        let is_named = |at: u64| self.entry(parent.0, at).filter(|(_, found)| *found == name);
        match at.map_or_else(|| (0..3).find_map(is_named), is_named) {
            Some((ino, _)) => reply.entry(&FOR_EVER, &Self::attr(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &Self::attr(ino.0));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, dir: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.list(dir.0, offset, |ino, next, name| reply.add(INodeNo(ino), next, Self::attr(ino).kind, name));
        reply.ok();
    }

    fn readdirplus(&self, _: &Request, dir: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.list(dir.0, offset, |ino, next, name| {
            reply.add(INodeNo(ino), next, name, &FOR_EVER, &Self::attr(ino), Generation(0))
        });
        reply.ok();
    }
}

/// Serves the names of `count` tensors at `point` until it is unmounted.
pub(super) fn serve(count: u64, point: &Path) {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("names".into())];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(2);
    config.clone_fd = true;
    fuser::mount(Names { count }, point, &config).unwrap();
}

/// Has a process of its own serve the names of `count` tensors at `point`; waits until the mount answers.
pub(super) fn start(count: u64, point: &Path) -> (Child, Mounted) {
    let server = Command::new(std::env::current_exe().unwrap()).args(["names", &count.to_string()]).arg(point).spawn();
    for _ in 0..1000 {
        if point.join("stored").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (server.unwrap(), Mounted::other(point))
}
