//! Containers opened in memory and read without the tree: every piece decoded anew.

use std::path::PathBuf;
use std::sync::Arc;

use fzmfs::bytes::{to_u64, to_usize};
use fzmfs::error::{Error, Result};
use fzmfs::format::{
    self, BlobRef, Check, Container, Directory, Entry, Fetch, File, Input, LazyFile, Node, Options, Piece,
};
use fzmfs::source::Source;
use fzmfs::view::{self, View};

/// A file below tests/data.
pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Opens a container that lies in memory.
pub(crate) fn open(bytes: Vec<u8>, options: &Options) -> Result<Arc<dyn Container>> {
    format::open(&Input::of(Source::from_bytes(bytes))?, None, options)
}

/// Decodes every piece anew, into memory that is not zero: an unwritten byte shows.
pub(crate) struct Plain;

impl Fetch for Plain {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let range = blob.layout()?.range(piece);
        let mut bytes = vec![0xA5; to_usize(range.end - range.start, "piece")?];
        blob.decode(piece, &mut bytes)?;
        Ok(Arc::new(bytes))
    }
}

/// The file at `path` in the tree of a container; names as the container has them.
pub(crate) fn file(container: &dyn Container, path: &str) -> Option<File> {
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut entries = container.entries().unwrap();
    let mut inside: Option<Arc<dyn Directory>> = None;
    for dir in dirs.split('/').filter(|dir| !dir.is_empty()) {
        entries = match find(entries, dir)? {
            Node::Dir(dir) => inside.insert(dir).entries().unwrap(),
            Node::LazyDir(number) => {
                let dir = inside.as_ref().unwrap().dir(number).unwrap();
                inside.insert(dir).entries().unwrap()
            }
            other => panic!("{dir} is not a directory: {other:?}"),
        };
    }
    match find(entries, name)? {
        Node::File(file) => Some(*file),
        Node::LazyFile(file) => Some(made(&*inside.unwrap(), file)),
        other => panic!("{name} is not a file: {other:?}"),
    }
}

fn find(entries: Vec<Entry>, name: &str) -> Option<Node> {
    entries.into_iter().find(|entry| full_name(entry) == name).map(|entry| entry.node)
}

fn full_name(entry: &Entry) -> String {
    format!("{}{}", String::from_utf8_lossy(&entry.stem), entry.suffix)
}

/// The file that `lazy` stands for; what a listing says of it must hold.
fn made(inside: &dyn Directory, lazy: LazyFile) -> File {
    let file = inside.file(lazy.number).unwrap();
    let array = file.array.as_ref().and_then(format::Array::byte_len);
    assert_eq!((view::known_len(&file.content), file.stored, array), (lazy.len, lazy.stored, lazy.array));
    file
}

/// Every file of a container with its path, in container order.
pub(crate) fn files(container: &dyn Container) -> Vec<(String, File)> {
    fn walk(at: &str, entries: Vec<Entry>, inside: Option<&dyn Directory>, found: &mut Vec<(String, File)>) {
        for entry in entries {
            let path = format!("{at}{}", full_name(&entry));
            match entry.node {
                Node::File(file) => found.push((path, *file)),
                Node::LazyFile(lazy) => found.push((path, made(inside.unwrap(), lazy))),
                Node::Dir(dir) => walk(&format!("{path}/"), dir.entries().unwrap(), Some(&*dir), found),
                Node::LazyDir(number) => {
                    let dir = inside.unwrap().dir(number).unwrap();
                    walk(&format!("{path}/"), dir.entries().unwrap(), Some(&*dir), found);
                }
                Node::Container(inner) => {
                    walk(&format!("{path}/"), inner.open().unwrap().entries().unwrap(), None, found);
                }
                Node::Link(_) | Node::StemLink(_) | Node::LazyLink(_) | Node::IndexedDir(_) => {}
            }
        }
    }
    let mut found = Vec::new();
    walk("", container.entries().unwrap(), None, &mut found);
    found
}

/// The files of one of the numbered directories.
pub(crate) fn numbered(container: &dyn Container, name: &str) -> Vec<Result<File>> {
    let entries = container.entries().unwrap();
    let node = entries.into_iter().find(|e| &*e.stem == name.as_bytes()).unwrap().node;
    let Node::IndexedDir(dir) = node else { panic!("{name} is not numbered") };
    (0..dir.count()).map(|i| dir.file(i)).collect()
}

/// All bytes of a file.
pub(crate) fn read(file: &File) -> Result<Vec<u8>> {
    let view = View::new(&file.content, &Plain)?;
    let mut bytes = vec![0x5A; to_usize(view.len(), "file")?];
    view.read(0, &mut bytes, &Plain)?;
    Ok(bytes)
}

/// All bytes of the file at `path`.
pub(crate) fn read_at(container: &dyn Container, path: &str) -> Result<Vec<u8>> {
    let file = file(container, path).ok_or_else(|| Error::corrupt("there is no such file", path.to_owned()))?;
    read(&file)
}

/// What `verify` does, plainly: every check, one after the other.
pub(crate) fn verify(container: &dyn Container) -> Result<()> {
    for check in container.checks() {
        match check {
            Check::Run { run, .. } => run()?,
            Check::Decode { blob, .. } => {
                let layout = blob.layout()?;
                let decoded = (0..layout.count())
                    .try_fold(0, |sum, piece| Plain.piece(&blob, piece).map(|bytes| sum + to_u64(bytes.len())))?;
                assert_eq!(decoded, layout.len());
            }
        }
    }
    Ok(())
}
