//! The stages of the program over segments of the writer: streams in memory, without a file.

use std::collections::BTreeMap;
use std::sync::Arc;

use fzm_writer::Run;
use fzmfs::account::Account;
use fzmfs::bytes::{Cursor, FileOffset};
use fzmfs::error::Result;
use fzmfs::format::fzm::stage::{Context, parse};
use fzmfs::format::fzm::stream::ByteStream;
use fzmfs::limits::Limits;

/// Bytes in memory.
struct Memory(Vec<u8>);

impl ByteStream for Memory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn unit(&self) -> u64 {
        1
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        dst.copy_from_slice(&self.0[at as usize..][..dst.len()]);
        Ok(())
    }
}

/// The inverse of each stage of `run` with its name, the last stage first. Every segment passes through `change`, which
/// gets its index and its bytes.
pub(crate) fn inverses(
    run: &Run,
    mut change: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
) -> Result<Vec<(&'static str, Arc<dyn ByteStream>)>> {
    let cx = Context { account: Account::new(1 << 30, 0), limits: Limits::default(), stored: 0 };
    let mut streams: BTreeMap<u16, Arc<dyn ByteStream>> = BTreeMap::new();
    for (i, segment) in run.segments().into_iter().enumerate() {
        streams.insert(segment.id, Arc::new(Memory(change(i, segment.bytes.to_vec()))));
    }
    let mut inverses = Vec::new();
    for step in run.steps().iter().rev() {
        let outputs = step.outputs.iter().map(|(id, ..)| streams[id].clone()).collect();
        let config = Cursor::new(&step.config, FileOffset(0));
        let stage = parse(inverses.len(), step.kind, &config, step.inputs.len(), step.outputs.len())?;
        let own = stage.invert(outputs, &cx)?;
        streams.extend(step.inputs.iter().copied().zip(own.iter().cloned()));
        let Some(stream) = own.into_iter().next() else { continue };
        inverses.push((step.name, stream));
    }
    Ok(inverses)
}
