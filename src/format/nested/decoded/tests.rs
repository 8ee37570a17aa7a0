//! Tests of the decoded bytes of a container as a source: what is decoded, how often, and who pays for it.
#![forbid(unsafe_code)]

use std::sync::Barrier;

use super::*;
use crate::clock::wait_until;
use crate::format::Blob;

const PIECE: u64 = 1000;
const COUNT: u64 = 40;

/// Pieces that are decoded when the one after it is being decoded too, and how often each was decoded.
#[derive(Default)]
struct InPairs {
    waits: bool,
    begun: Mutex<Vec<u64>>,
}

impl InPairs {
    fn begun(&self, piece: u64) -> usize {
        self.begun.lock().unwrap().iter().filter(|&&begun| begun == piece).count()
    }
}

impl Blob for InPairs {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: COUNT * PIECE, piece: PIECE })
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.begun.lock().unwrap().push(piece);
        // From the fourth on, and not the last.
        if self.waits && (3..COUNT - 1).contains(&piece) {
            wait_until(|| self.begun(piece + 1) > 0);
        }
        dst.fill(piece as u8);
        Ok(())
    }
}

fn decoded(waits: bool) -> (Decoded, Arc<InPairs>) {
    decoded_within(Account::new(1 << 30, 0), waits)
}

fn decoded_within(account: Account, waits: bool) -> (Decoded, Arc<InPairs>) {
    let blob = Arc::new(InPairs { waits, ..InPairs::default() });
    let threads = Threads::new(4);
    let options = Options { threads, account, ..Options::default() };
    (Decoded::new(Vec::new(), BlobRef::shared(blob.clone()), &options).unwrap(), blob)
}

fn read(decoded: &Decoded, piece: u64) {
    let mut header = [0; 10];
    decoded.read(FileOffset(piece * PIECE + 7), &mut header, "header").unwrap();
    assert_eq!(header, [piece as u8; 10]);
}

#[test]
fn a_walk_through_all_pieces_decodes_them_on_several_threads_and_each_once() {
    let (decoded, blob) = decoded(true);
    (0..COUNT).for_each(|piece| read(&decoded, piece));
    assert!((0..COUNT).all(|piece| blob.begun(piece) == 1));
}

#[test]
fn what_a_walk_has_passed_is_not_decoded_by_threads_that_come_late() {
    let (decoded, blob) = decoded(false);
    let (begin, end) = (Arc::new(Barrier::new(5)), Arc::new(Barrier::new(5)));
    let meet = |barrier: &Arc<Barrier>| {
        let barrier = barrier.clone();
        decoded.threads.run(Box::new(move || _ = barrier.wait()));
    };
    (0..4).for_each(|_| meet(&begin));
    (0..COUNT).for_each(|piece| read(&decoded, piece));
    begin.wait();
    (0..4).for_each(|_| meet(&end));
    end.wait();
    assert!((0..COUNT).all(|piece| blob.begun(piece) == 1));
    // A second walk decodes all of it again.
    (0..COUNT).for_each(|piece| read(&decoded, piece));
    assert!((0..COUNT - 8).all(|piece| blob.begun(piece) == 2));
}

#[test]
fn what_is_decoded_ahead_is_charged_to_the_opening_that_reads_it() {
    // 256 for each piece besides its bytes.
    let cost = COUNT * (PIECE + 256);
    for (limit, fits) in [(cost, true), (cost - 1, false)] {
        let (decoded, _) = decoded(true);
        let read = |piece: u64| decoded.read(FileOffset(piece * PIECE), &mut [0; 10], "header");
        assert_eq!(decode_budget::opening(limit, || (0..COUNT).try_for_each(read)).is_ok(), fits, "{limit}");
    }
}

#[test]
fn a_piece_that_is_read_in_parts_is_decoded_once_even_without_room_for_it() {
    let (decoded, blob) = decoded_within(Account::new(0, 0), false);
    (0..COUNT).for_each(|piece| (0..3).for_each(|_| read(&decoded, piece)));
    assert!((0..COUNT).all(|piece| blob.begun(piece) == 1));
    read(&decoded, 0);
    assert_eq!(blob.begun(0), 2);
    // Others have taken the memory: what is decoded ahead is not kept, and takes no room of what is read.
    let account = Account::new(1 << 20, 0);
    let _others = account.charge(1 << 20, "others").unwrap();
    let (decoded, blob) = decoded_within(account, false);
    (0..COUNT).for_each(|piece| (0..50).for_each(|_| read(&decoded, piece)));
    assert!((0..COUNT).all(|piece| blob.begun(piece) <= 2));
}

#[test]
fn a_walk_that_skips_pieces_decodes_none_of_these() {
    let (decoded, blob) = decoded(false);
    (0..COUNT / 3).for_each(|i| read(&decoded, 3 * i));
    drop(decoded);
    assert!((0..COUNT).all(|piece| blob.begun(piece) == usize::from(piece % 3 == 0 && piece / 3 < COUNT / 3)));
}
