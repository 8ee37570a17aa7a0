//! The least that a file system in user space can do for a directory: its files, held in memory, each read directly.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use super::mount::Mounted;
use super::passthrough::{FOR_EVER, attr, mount};

/// The command that serves.
pub(super) const COMMAND: &str = "tree";

/// Files and directories by inode number, from 1.
#[derive(Default)]
struct MemoryTree(Vec<Node>);

enum Node {
    Directory(HashMap<OsString, u64>),
    File(Vec<u8>),
}

impl MemoryTree {
    /// Adds what `path` is, and returns its number.
    fn add(&mut self, path: &Path) -> u64 {
        let at = self.0.len();
        self.0.push(Node::Directory(HashMap::new()));
        self.0[at] = if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            Node::Directory(entries.map(|name| (name.clone(), self.add(&path.join(name)))).collect())
        } else {
            Node::File(std::fs::read(path).unwrap())
        };
        at as u64 + 1
    }

    fn node(&self, ino: INodeNo) -> &Node {
        &self.0[ino.0 as usize - 1]
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        match self.node(ino) {
            Node::Directory(_) => attr(ino, None),
            Node::File(bytes) => attr(ino, Some(bytes.len() as u64)),
        }
    }
}

impl Filesystem for MemoryTree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Node::Directory(entries) = self.node(parent) else { return reply.error(Errno::ENOTDIR) };
        match entries.get(name) {
            Some(&ino) => reply.entry(&FOR_EVER, &self.attr(INodeNo(ino)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Node::File(bytes) = self.node(ino) else { return reply.error(Errno::EISDIR) };
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        reply.data(&rest[..rest.len().min(size as usize)]);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel then asks no more, as it does not for our files.
        reply.error(Errno::ENOSYS);
    }
}

/// Serves the files of `directory` at `point` until it is unmounted.
pub(super) fn serve(directory: &Path, point: &Path) {
    let mut tree = MemoryTree::default();
    tree.add(directory);
    mount(tree, "tree", point);
}

/// Has a process of its own serve the files of `directory` at `point`; waits until the mount answers.
pub(super) fn start(directory: &Path, point: &Path) -> (Child, Mounted) {
    let mut server = Command::new(std::env::current_exe().unwrap());
    let server = server.arg(COMMAND).args([directory, point]).spawn().unwrap();
    let first = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().file_name();
    for _ in 0..1000 {
        if point.join(&first).exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (server, Mounted::other(point))
}
