//! A container that no file has: files of known bytes, slow ones, broken ones, and as many as are wanted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fzmfs::bytes::FileOffset;
use fzmfs::error::{Error, Result};
use fzmfs::format::{
    Blob, BlobRef, Check, Container, Content, Directory, Entry, File, FileExtent, IndexedDir, Info, Layout, Measured,
    Node,
};
use fzmfs::source::Source;
use serde_json::{Map, Value};

use crate::made::{BROKEN, BROKEN_PIECES, DATA, FRAGILE, MANY, SLOW, SLOW_PIECES, SMALL, SMALL_PIECE, bytes, fill};

/// What a made container holds.
#[derive(Debug, Clone)]
pub(crate) struct Computed {
    /// Bytes of `data.raw`.
    pub(crate) size: u64,
    /// Bytes of its pieces.
    pub(crate) piece: u64,
    /// Entries of the directories `many` (numbered) and `names` (listed).
    pub(crate) entries: u64,
    /// Milliseconds that a piece of `slow.raw` takes.
    pub(crate) slow: u64,
    /// A file that is the container's source, served as `stored.bin`.
    pub(crate) source: Option<PathBuf>,
    /// While this file exists, `held.raw`, the length of `counted.raw`, the listing of `held/inner`, files of
    /// `held/numbered` and what the container says of itself are not there yet.
    pub(crate) hold: Option<PathBuf>,
}

impl Default for Computed {
    fn default() -> Self {
        Self { size: 8 << 20, piece: 1 << 20, entries: 0, slow: 300, source: None, hold: None }
    }
}

/// Waits while the file exists, and says so beside it: a file with the extension `what`.
fn wait(hold: &Path, what: &str) {
    if hold.exists() {
        std::fs::write(hold.with_extension(what), b"").ok();
    }
    while hold.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What decoding does beside filling.
#[derive(Clone, PartialEq)]
enum Manner {
    Plain,
    Slow(Duration),
    /// Waits while a file exists: each piece, or for its length too.
    Held(PathBuf),
    Counted(PathBuf),
    Fails,
    Panics,
}

struct Random {
    seed: u64,
    len: u64,
    piece: u64,
    manner: Manner,
}

impl Blob for Random {
    fn layout(&self) -> Result<Layout> {
        if let Manner::Counted(path) = &self.manner {
            wait(path, "length");
        }
        Ok(Layout::Uniform { len: self.len, piece: self.piece })
    }

    fn measured(&self) -> Option<&dyn Measured> {
        if matches!(self.manner, Manner::Counted(_)) { Some(self) } else { None }
    }

    #[expect(clippy::panic, reason = "what a decoder with a bug does")]
    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        match &self.manner {
            Manner::Slow(time) => {
                tracing::info!("decoding slow piece {piece};");
                std::thread::sleep(*time);
            }
            Manner::Held(path) => wait(path, "piece"),
            Manner::Fails if piece == BROKEN => {
                return Err(Error::corrupt("made to fail", "piece").at(FileOffset(piece)));
            }
            Manner::Panics if piece == BROKEN => panic!("made to panic"),
            _ => {}
        }
        fill(self.seed, piece * self.piece, dst);
        Ok(())
    }
}

impl Measured for Random {
    fn known_len(&self) -> Option<u64> {
        None
    }
}

/// Numbered files; while the file exists, those behind the first [`AT_ONCE`] are not there yet.
struct Many(u64, Option<PathBuf>);

/// Files that are there at once.
const AT_ONCE: u64 = 32;

impl IndexedDir for Many {
    fn count(&self) -> u64 {
        self.0
    }

    fn suffix(&self) -> &'static str {
        ".raw"
    }

    fn file(&self, index: u64) -> Result<File> {
        self.1.iter().filter(|_| index >= AT_ONCE).for_each(|path| wait(path, "file"));
        Ok(small(index))
    }
}

fn small(index: u64) -> File {
    File::new(Content::bytes(bytes(MANY + index, 0, SMALL))).stored(SMALL)
}

/// A directory that is not listed while the file exists.
struct HeldDir(PathBuf);

impl Directory for HeldDir {
    fn entries(&self) -> Result<Vec<Entry>> {
        wait(&self.0, "listing");
        Ok(vec![Entry::own("inside.raw", small(0))])
    }
}

struct Opened {
    entries: Vec<Entry>,
    sources: Vec<Arc<Source>>,
    hold: Option<PathBuf>,
}

impl Computed {
    /// The container.
    ///
    /// # Errors
    /// Where the source cannot be opened.
    pub(crate) fn open(&self) -> Result<Arc<dyn Container>> {
        let random = |seed, len, piece, manner| {
            let blob = BlobRef::new(Random { seed, len, piece, manner });
            File::new(Content::Blob(blob)).stored(len / 4).attr("codec", "made")
        };
        let fragile = |manner| random(FRAGILE, BROKEN_PIECES * SMALL_PIECE, SMALL_PIECE, manner);
        let slow = Manner::Slow(Duration::from_millis(self.slow));
        let names = (0..self.entries).map(|i| Entry::named(format!("name{i}"), ".raw", small(i))).collect();
        let mut entries = vec![
            Entry::own("data.raw", random(DATA, self.size, self.piece, Manner::Plain)),
            Entry::own("slow.raw", random(SLOW, SLOW_PIECES * SMALL_PIECE, SMALL_PIECE, slow)),
            Entry::own("broken.raw", fragile(Manner::Fails)),
            Entry::own("panics.raw", fragile(Manner::Panics)),
            Entry::named("link", "", Node::Link("data.raw".into())),
            Entry::named("many", "", Node::IndexedDir(Arc::new(Many(self.entries, None)))),
            Entry::named("names", "", Node::dir(Vec::new(), names)),
        ];
        if let Some(path) = &self.hold {
            let held = |manner| random(SLOW, SLOW_PIECES * SMALL_PIECE, SMALL_PIECE, manner);
            entries.push(Entry::own("held.raw", held(Manner::Held(path.clone()))));
            entries.push(Entry::own("counted.raw", held(Manner::Counted(path.clone()))));
            // One further down: whoever lists a directory learns how many are in each directory there.
            let inner = Entry::named("inner", "", Node::Dir(Arc::new(HeldDir(path.clone()))));
            let numbered = Entry::named("numbered", "", Node::IndexedDir(Arc::new(Many(1000, Some(path.clone())))));
            entries.push(Entry::named("held", "", Node::dir(Vec::new(), vec![inner, numbered])));
        }
        let mut sources = Vec::new();
        if let Some(path) = &self.source {
            let source = Source::open(path)?;
            let stored = FileExtent { source: source.clone(), at: FileOffset(0), len: source.len(), gate: None };
            entries.push(Entry::own("stored.bin", File::new(Content::FileExtent(stored)).stored(source.len())));
            sources.push(source);
        } else {
            sources.push(Source::from_bytes(Vec::new()));
        }
        Ok(Arc::new(Opened { entries, sources, hold: self.hold.clone() }))
    }
}

impl Container for Opened {
    fn info(&self) -> Info {
        self.hold.iter().for_each(|path| wait(path, "info"));
        Info {
            format: "made",
            format_version: "1".into(),
            file_size: self.sources.iter().map(|s| s.len()).sum(),
            decoded_size: None,
            checksums: Value::Null,
            checksum_count: Some(0),
            details: Map::new(),
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.entries.clone())
    }

    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.sources.clone()
    }
}
