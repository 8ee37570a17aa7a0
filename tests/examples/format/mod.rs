//! Runs: an example of a format, to be copied. It is complete: `tests/suite/format_template.rs` reads good, broken and
//! random files through it.
//!
//! To add a format, copy this folder to `src/format/NAME`, write `crate` for `fzmfs`, `pub(super)` for `pub(crate)`, and add
//! the row to `FORMATS`; move `reseal` to `tests/support/reseal.rs` (an arm of its `match`), and add
//! `tests/fuzz/targets/NAME.rs` (two lines, like the others) with its `[[bin]]`. Good files go to `tests/data/NAME`, broken
//! ones to `tests/data/broken/NAME`: tests and fuzzers find them there. A quick start goes into README.
//!
//! The format, little-endian:
//!
//! | offset | bytes | |
//! | --- | --- | --- |
//! | 0 | 4 | `RUNS` |
//! | 4 | 4 | bytes of a decoded block: a power of two, 64 KiB to 16 MiB; the last block may be shorter |
//! | 8 | 8 | bytes of the decoded content |
//! | 16 | 4 | CRC-32 of the 16 bytes before |
//! | 20 | 8 a block | bytes of the stored block, and the CRC-32 of its decoded bytes |
//! | | | the stored blocks: pairs of a count, 1 to 255, and the byte that is repeated so often |
//!
//! Shows as: `data.raw` (with `data.npy` and more if the user gives a type), `chunks/` (each block decoded), `stored/`.
//! Piece: a block. Smaller blocks would have to share pieces, which should have about a mebibyte.
//! Checked: the header at open; the checksum of a block with each decode of it.
//! Limits: the list of blocks is charged to the account, and so are the stored bytes of a block while it is decoded.
#![forbid(unsafe_code)]

mod blocks;
mod header;
mod reseal;

use std::sync::Arc;

use fzmfs::error::Result;
use fzmfs::format::{
    Array, ArrayList, Arrays, Blob, BlobRef, Check, Container, Content, Entry, File, FileExtent, Format, IndexedDir,
    Info, Input, Node, Options,
};
use fzmfs::source::Source;
use serde_json::{Map, json};

use blocks::Blocks;
use header::{Header, MAGIC};

pub(crate) use reseal::reseal;

/// The row of the table of formats.
pub(crate) const FORMAT: Format = Format {
    name: "runs",
    extensions: &["runs"],
    enclosed: &[],
    detect: |input| input.head.starts_with(&MAGIC),
    open,
    kernels: &[],
};

/// Parses the structure; decodes nothing.
fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    let source = input.file()?;
    let header = Header::read(&source)?;
    let blocks = Arc::new(Blocks::read(&source, &header, &options.account)?);
    let array = options.array(None, header.content)?;
    Ok(Arc::new(Runs { source, blob: BlobRef::shared(blocks.clone()), blocks, array }))
}

struct Runs {
    source: Arc<Source>,
    blocks: Arc<Blocks>,
    /// The same, with the number under which caches keep its pieces: one for all files that show its bytes.
    blob: BlobRef,
    /// Element type and shape that the user gives.
    array: Option<Array>,
}

impl Runs {
    fn data(&self) -> File {
        File::new(Content::Blob(self.blob.clone())).typed(self.array.clone()).stored(self.source.len()).principal()
    }

    fn directory(&self, is_decoded: bool) -> Node {
        Node::IndexedDir(Arc::new(BlockDir { blocks: self.blocks.clone(), blob: self.blob.clone(), is_decoded }))
    }
}

impl Container for Runs {
    fn info(&self) -> Info {
        let mut details = Map::new();
        details.insert("blocks".into(), self.blocks.count().into());
        Info {
            format: FORMAT.name,
            format_version: "1".into(),
            file_size: self.source.len(),
            decoded_size: Some(self.blocks.content),
            checksums: json!({ "header": "crc32", "blocks": "crc32" }),
            checksum_count: Some(self.blocks.count()),
            details,
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(vec![
            Entry::own("data.raw", self.data()),
            Entry::own("chunks", self.directory(true)),
            Entry::own("stored", self.directory(false)),
            // `x` in x.runs.
            Entry::stem_link("data.raw"),
        ])
    }

    /// Of a format that is no more than a compressed file: that may be a container itself.
    fn stream(&self) -> Option<BlobRef> {
        Some(self.blob.clone())
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(ArrayList::data(self.data()))
    }

    fn checks(&self) -> Vec<Check> {
        vec![Check::Decode { name: "data.raw".into(), blob: self.blob.clone() }]
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.source.clone()]
    }
}

/// `chunks/` or `stored/`: a file for each block, made when it is looked up, since there may be very many.
struct BlockDir {
    blocks: Arc<Blocks>,
    blob: BlobRef,
    is_decoded: bool,
}

impl IndexedDir for BlockDir {
    fn count(&self) -> u64 {
        self.blocks.count()
    }

    fn suffix(&self) -> &'static str {
        if self.is_decoded { ".raw" } else { ".bin" }
    }

    fn file(&self, index: u64) -> Result<File> {
        let block = self.blocks.block(index)?;
        let len = block.end.0 - block.at.0;
        let content = if self.is_decoded {
            Content::Blob(self.blob.clone()).slice(self.blocks.layout()?.range(index))
        } else {
            Content::FileExtent(FileExtent { source: self.blocks.source.clone(), at: block.at, len, gate: None })
        };
        let checksum = format!("crc32:{:08x}", block.crc);
        Ok(File::new(content)
            .stored(len)
            .attr("offset", block.at.0)
            .attr("stored_size", len)
            .attr("checksum", checksum))
    }
}
