//! The tasks of a verification: to run a check, to determine a layout, to decode pieces.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::to_usize;
use crate::error::{Error, Result, UnknownParts};
use crate::format::{BlobRef, Layout};
use crate::limits::zeroed;

/// Decoded bytes per task, so that small pieces are decoded in batches.
pub(super) const BATCH: u64 = 1 << 20;

/// Work for one thread. Done without the lock of the queue.
pub(super) enum Task<'a> {
    /// Run a check that the container defines.
    Run { name: &'a str, bytes: u64, run: &'a (dyn Fn() -> Result<()> + Send + Sync) },
    /// Determine the layout of a stream, which may decode it.
    Open { name: &'a str, blob: &'a BlobRef },
    /// Decode these pieces.
    Decode { name: &'a str, blob: &'a BlobRef, layout: Layout, pieces: Range<u64> },
}

/// A stream of known layout, and its remaining pieces.
pub(super) struct OpenStream<'a> {
    pub(super) name: &'a str,
    pub(super) blob: &'a BlobRef,
    pub(super) batches: Batches<'a>,
}

/// The pieces of a layout, in runs of about [`BATCH`] decoded bytes or one decoding batch, whichever is larger.
pub(super) struct Batches<'a> {
    layout: Layout,
    /// Pieces that are decoded in one call.
    together: Box<dyn Fn() -> u64 + Send + 'a>,
    next: u64,
}

impl Iterator for Batches<'_> {
    type Item = (Layout, Range<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let (first, count) = (self.next, self.layout.count());
        if first >= count {
            return None;
        }
        let start = self.layout.range(first).start;
        self.next = first.saturating_add((self.together)().max(1)).min(count);
        while self.next < count && self.layout.range(self.next).end - start <= BATCH {
            self.next += 1;
        }
        Some((self.layout.clone(), first..self.next))
    }
}

/// The result of a task.
pub(super) enum TaskResult<'a> {
    /// Bytes covered: decoded, or stored for a checksum over stored bytes.
    Checked(u64),
    /// The layout of a stream.
    Opened(OpenStream<'a>),
}

impl<'a> Task<'a> {
    /// Runs the task.
    pub(super) fn run(self, buffer: &mut Vec<u8>) -> Result<TaskResult<'a>> {
        match self {
            Self::Run { name, bytes, run } => run().map(|()| TaskResult::Checked(bytes)).map_err(|e| e.within(name)),
            Self::Open { name, blob } => {
                let layout = blob.layout().map_err(|e| e.within(name))?;
                let batches = Batches { layout, together: Box::new(|| blob.batch()), next: 0 };
                Ok(TaskResult::Opened(OpenStream { name, blob, batches }))
            }
            Self::Decode { name, blob, layout, pieces } => {
                let end = pieces.end;
                let mut bytes = 0;
                let mut unknown = UnknownParts::default();
                let mut first = pieces.start;
                while first < end {
                    let row = first..end.min(first.saturating_add(blob.batch().max(1)));
                    let mut each =
                        |row| decode(blob, &layout, row, buffer).map(|len| bytes += len).map_err(|e| e.within(name));
                    match each(row.clone()) {
                        // The pieces after the one that needs the part are checked too.
                        Err(e) if e.is_unknown() && row.end - row.start > 1 => {
                            row.clone().try_for_each(|piece| unknown.keep(each(piece..piece + 1)))?;
                        }
                        result => unknown.keep(result)?,
                    }
                    first = row.end;
                }
                unknown.result().map(|()| TaskResult::Checked(bytes))
            }
        }
    }
}

/// Decodes consecutive pieces, discards them and returns their size. Fails with the error of the first broken piece.
fn decode(blob: &BlobRef, layout: &Layout, row: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64> {
    let len = |piece| {
        let range = layout.range(piece);
        range.end.saturating_sub(range.start)
    };
    let all = row.clone().map(len).fold(0, u64::saturating_add);
    if buffer.len() < to_usize(all, "piece")? {
        *buffer = zeroed(all, "piece")?;
    }
    let mut rest = buffer.as_mut_slice();
    let mut pieces = Vec::new();
    for piece in row.clone() {
        let split = std::mem::take(&mut rest).split_at_mut_checked(to_usize(len(piece), "piece")?);
        let (head, tail) = split.ok_or_else(|| Error::corrupt("the pieces are longer than their sum", "layout"))?;
        pieces.push(head);
        rest = tail;
    }
    match pieces.as_mut_slice() {
        [piece] => blob.decode(row.start, piece),
        // A batch does not say which piece is broken: decode them one by one.
        pieces => blob
            .decode_many(row.start, pieces)
            .or_else(|_| row.zip(pieces).try_for_each(|(piece, dst)| blob.decode(piece, dst))),
    }?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::Kind;
    use crate::format::testing::{Memory, noise};
    use crate::format::{Batched, Blob, OnDevice};

    #[test]
    fn batches_take_every_piece_once_and_small_ones_together() {
        for (len, piece, want) in [(0, 4, 0), (10, BATCH, 1), (3 * BATCH, BATCH, 3)] {
            let batches = Batches { layout: Layout::Uniform { len, piece }, together: Box::new(|| 1), next: 0 };
            let got: Vec<_> = batches.map(|(_, pieces)| (pieces.start, pieces.end)).collect();
            assert_eq!(got, (0..want).map(|n| (n, n + 1)).collect::<Vec<_>>());
        }
        let many: Vec<_> =
            Batches { layout: Layout::Uniform { len: 2 * BATCH + 1, piece: 16 }, together: Box::new(|| 1), next: 0 }
                .collect();
        let (each, ends): (u64, Vec<u64>) = (BATCH / 16, many.iter().map(|(_, r)| r.end).collect());
        assert_eq!(ends, [each, 2 * each, 2 * each + 1]);
    }

    #[test]
    fn one_piece_larger_than_a_batch_is_a_batch() {
        let layout = Layout::Ends([BATCH * 5, BATCH * 5 + 1].into());
        let got: Vec<_> = Batches { layout, together: Box::new(|| 0), next: 0 }.map(|(_, r)| r).collect();
        assert_eq!(got, vec![0..1, 1..2]);
    }
    fn checked(task: Task<'_>) -> Result<u64> {
        match task.run(&mut Vec::new())? {
            TaskResult::Checked(bytes) => Ok(bytes),
            TaskResult::Opened(_) => unreachable!(),
        }
    }

    #[test]
    fn pieces_are_decoded_in_batches_and_one_by_one_where_one_is_broken() {
        let memory =
            |batch, broken: &[u64]| Memory { batch, broken: broken.to_vec(), ..Memory::new(noise(4500), 1000) };
        for (batch, pieces, want) in
            [(1, 0..5, 4500), (2, 0..5, 4500), (2, 3..5, 1500), (0, 1..3, 2000), (9, 0..5, 4500), (9, 2..2, 0)]
        {
            let (blob, memory) = memory(batch, &[]).blob();
            let (layout, count) = (blob.layout().unwrap(), pieces.end - pieces.start);
            let task = Task::Decode { name: "data", blob: &blob, layout, pieces };
            assert_eq!(checked(task).unwrap(), want);
            let decoded = memory.decoded.lock().unwrap().len() as u64;
            let batches = memory.batches.lock().unwrap().iter().map(|(_, len)| *len as u64).collect::<Vec<_>>();
            assert_eq!(decoded, count);
            assert!(batches.iter().all(|len| (2..=batch).contains(len)), "{batches:?}");
        }
        let (blob, _) = memory(4, &[2]).blob();
        let task = Task::Decode { name: "data", blob: &blob, layout: blob.layout().unwrap(), pieces: 0..5 };
        assert_eq!(checked(task).unwrap_err().to_string(), "broken on purpose (data: piece)");
    }

    /// A stream of five pieces, the second and the fourth of which need a part that is unknown.
    struct Unknown(AtomicU64);

    impl Blob for Unknown {
        fn layout(&self) -> Result<Layout> {
            Ok(Layout::Uniform { len: 5, piece: 1 })
        }

        fn decode(&self, piece: u64, _: &mut [u8]) -> Result<()> {
            self.0.fetch_or(1 << piece, Ordering::Relaxed);
            let unknown = || Error::new(Kind::Unknown(format!("part {piece}").into()), "piece");
            if piece % 2 == 1 { Err(unknown()) } else { Ok(()) }
        }

        fn batched(&self) -> Option<&dyn Batched> {
            Some(self)
        }
    }

    impl Batched for Unknown {
        fn on_device(&self) -> Option<OnDevice> {
            None
        }

        fn batch(&self) -> u64 {
            3
        }

        fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()> {
            (first..).zip(pieces).try_for_each(|(piece, dst)| self.decode(piece, dst))
        }
    }

    #[test]
    fn the_pieces_after_one_that_needs_an_unknown_part_are_checked_too() {
        let unknown = Arc::new(Unknown(AtomicU64::new(0)));
        let blob = BlobRef::shared(unknown.clone());
        let task = Task::Decode { name: "data", blob: &blob, layout: blob.layout().unwrap(), pieces: 0..5 };
        let error = checked(task).unwrap_err();
        assert!(error.is_unknown() && error.to_string().contains("part 1"), "{error}");
        assert_eq!(unknown.0.load(Ordering::Relaxed), 0b11111);
    }

    #[test]
    fn a_task_names_its_check_and_says_what_it_covers() {
        let fails = || Err(Error::corrupt("wrong", "sum"));
        assert_eq!(checked(Task::Run { name: "a", bytes: 7, run: &|| Ok(()) }).unwrap(), 7);
        let error = checked(Task::Run { name: "a", bytes: 7, run: &fails }).unwrap_err();
        assert_eq!(error.to_string(), "wrong (a: sum)");
        let (blob, _) = Memory::new(noise(2500), 1000).blob();
        let Ok(TaskResult::Opened(stream)) = (Task::Open { name: "b", blob: &blob }).run(&mut Vec::new()) else {
            unreachable!()
        };
        assert_eq!((stream.name, stream.blob.id(), stream.batches.count()), ("b", blob.id(), 1));
    }
}
