//! Tests of archives: of containers that a test makes, whose pieces are in memory and counted, and of a few files.

mod boxes;
mod directories;
mod files;
mod listed;
mod opened;

use std::sync::atomic::Ordering;

use serde_json::{Map, Value};

use super::*;
use crate::bytes::to_u64;
use crate::format::testing::{Memory, noise};
use crate::format::{Check, Content, Entry as Described, File as DescribedFile};
use crate::source::Source;

/// Makes the checks of a container.
type MakeChecks = Box<dyn Fn() -> Vec<Check> + Send + Sync>;

/// A container with the entries, the files and the checks that a test gives it.
struct Made {
    entries: Vec<Described>,
    sources: Vec<Arc<Source>>,
    checks: MakeChecks,
    /// The size of its streams, if it records that.
    decoded: Option<u64>,
}

impl Made {
    fn new(entries: Vec<Described>) -> Self {
        let sources = vec![Source::from_bytes(b"bytes".to_vec())];
        Self { entries, sources, checks: Box::new(Vec::new), decoded: None }
    }

    /// An archive of it, with a cache of its own.
    fn archive(self, options: &Options, access: Access) -> Archive {
        self.sharing(options, access, None)
    }

    fn sharing(self, options: &Options, access: Access, cache: Option<Arc<Cache>>) -> Archive {
        let context = options.context(access, Gpu::none(), options.account());
        let input = Input::of(Source::from_bytes(b"bytes".to_vec())).unwrap();
        let (path, container) = (PathBuf::from("/made.x"), Arc::new(self));
        let parsed = Parsed { path, input, container, background_checks: context.verify.background() };
        Archive::of(parsed, options, access, context, cache).unwrap()
    }
}

impl Container for Made {
    fn info(&self) -> Info {
        Info {
            format: "made",
            format_version: "1".into(),
            file_size: 5,
            decoded_size: self.decoded,
            checksums: Value::Null,
            checksum_count: Some(3),
            details: Map::new(),
        }
    }

    fn entries(&self) -> Result<Vec<Described>> {
        Ok(self.entries.clone())
    }

    fn checks(&self) -> Vec<Check> {
        (self.checks)()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.sources.clone()
    }
}

/// One thread, and a cache that keeps no piece.
fn uncached() -> Options {
    Options::new().device(Device::Cpu).threads(1).cache(1)
}

/// The file `x` of `content`, and nothing else.
pub(super) fn lone(content: Content, options: &Options) -> File {
    let made = Made::new(vec![Described::own("x", DescribedFile::new(content))]);
    made.archive(options, Access::Random).file("x").unwrap()
}

/// A file of those that come with the tests.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
