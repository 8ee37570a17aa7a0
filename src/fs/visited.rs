//! Prepares the entries that a program visits next when it goes through a directory in order.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::offload::{JobTurn, On};
use super::shared::{Shared, catch_panic};
use super::walks::Visit;
use crate::tree::Ino;

impl Shared {
    /// Records that a program visits `ino`. If it goes through a directory in order, prepares what it visits next.
    pub(super) fn visited(self: &Arc<Self>, ino: Ino, visit: Visit) {
        let Some((dir, at)) = self.tree.position(ino) else { return };
        let mut walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(range) = walks.visits(dir, visit, at) else { return };
        drop(walks);
        let me = self.clone();
        let job = Box::new(move || catch_panic(|| me.prepare(dir, visit, range)));
        self.offload.run_in_turn(JobTurn::Ahead, On::Metadata, job);
    }

    /// Prepares the entries of `dir` at `positions`. Errors are dropped: the request tries again, and reports them.
    fn prepare(&self, dir: Ino, visit: Visit, positions: Range<u64>) {
        let Ok(open) = self.tree.open_dir(dir) else { return };
        let mut at = positions.start;
        while at < positions.end {
            let prepared = match visit {
                Visit::Name => self.tree.prepare(&open, at).map(|next| (next, None)),
                Visit::Open => self.tree.prepare_file(&open, at, &*self.cache),
            };
            let Ok((Some(next), file)) = prepared else { return };
            if let Some(file) = file {
                self.ready.put(file.ino, file);
            }
            at = next;
        }
    }
}
