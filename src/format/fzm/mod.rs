//! FZM containers, versions 3.0 and 3.1.
//!
//! Reference: all of the FZM reference; each file here names its sections.
//!
//! Shows as: `data.raw` and its `.npy`, the diagram of the pipeline, a directory per stage, the segments both decoded
//! and as stored.
//! Piece: whole units of the last stage, near 1 MiB; any range of any stage can be decoded by itself.
//! Checked: header CRC-32 at open; payload CRC-32 before the first payload byte is returned; lengths at open.
//! Limits: 32 stages, 32 segments, 8 ports, 128 bytes of configuration per stage.
//!
//! Invariants: opening reads the tables and the headers of streams, and decodes only to find lengths; a broken stage
//! does not hide data that decodes without it.

mod blob;
mod describe;
pub mod device;
mod diagram;
mod error_context;
mod graph;
mod header;
pub mod inverse;
mod pipeline;
mod segment;
pub mod stage;
pub mod stream;
mod tree;
mod warmup;

use std::sync::Arc;

use crate::error::Result;
use crate::source::Source;

use super::{Arrays, Check, Container, Entry, Format, Info, Input, Options};
use pipeline::Pipeline;

/// The entry in the table of formats.
pub(super) const FORMAT: Format =
    Format { name: "fzm", extensions: &["fzm"], enclosed: &[], detect, open, kernels: device::STAGES };

fn detect(input: &Input) -> bool {
    input.head.starts_with(&header::MAGIC)
}

fn open(input: &Input, options: &Options) -> Result<Arc<dyn Container>> {
    Ok(Arc::new(Fzm(Pipeline::open(input.file()?, options)?)))
}

/// An open FZM file.
struct Fzm(Pipeline);

impl Container for Fzm {
    fn info(&self) -> Info {
        describe::info(&self.0)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(tree::entries(&self.0))
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(tree::arrays(&self.0))
    }

    fn checks(&self) -> Vec<Check> {
        let p = &self.0;
        let mut checks = Vec::new();
        if let Some(gate) = p.gate.clone() {
            checks.push(Check::Run {
                name: "payload checksum".to_owned(),
                bytes: p.header.compressed_size,
                run: Box::new(move || gate.check()),
            });
        }
        // Decoding a source covers all stages and segments it depends on; redundant branches are checked separately.
        let sources = p.graph.sources();
        let tops = (0..p.stages.len()).filter(|stage| sources.contains(stage) || !p.is_used(*stage));
        for stage in tops {
            let name = match sources.iter().position(|s| s == &stage) {
                Some(n) => format!("{}.raw", describe::source_name(n)),
                None => format!("stages/{stage:02} (redundant branch)"),
            };
            match p.inverses.get(stage) {
                Some(Ok(buffers)) => checks.extend(
                    buffers
                        .iter()
                        .flat_map(|buffer| &buffer.blobs)
                        .map(|blob| Check::Decode { name: name.clone(), blob: blob.clone() }),
                ),
                Some(Err(e)) => {
                    let e = e.clone();
                    checks.push(Check::Run { name, bytes: 0, run: Box::new(move || Err(e.clone())) });
                }
                None => {}
            }
        }
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![Arc::clone(&self.0.source)]
    }
}
