//! Pieces are kept within the limit, queued or written; a piece that cannot be written is not kept.
#![forbid(unsafe_code)]

use std::sync::mpsc;

use super::*;

#[test]
fn pieces_are_kept_up_to_the_limit() {
    for pieces in [Pieces::new(Account::new(0, 10)), Pieces::new(Account::new(10, 0))] {
        assert!(pieces.put(1, 0, b"abcdef".to_vec()).is_none());
        assert_eq!(pieces.put(1, 1, b"ghijk".to_vec()).unwrap(), b"ghijk");
        assert!(pieces.put(2, 0, b"ghij".to_vec()).is_none());
        let mut dst = [0; 6];
        assert!(pieces.get(1, 0, &mut dst).unwrap());
        assert_eq!(&dst, b"abcdef");
        assert!(!pieces.get(1, 1, &mut dst).unwrap() && !pieces.get(2, 0, &mut dst).unwrap());
        assert!(pieces.get(2, 0, &mut dst[..4]).unwrap());
        assert_eq!(&dst[..4], b"ghij");
    }
}

#[test]
fn a_store_has_a_kind_numbers_for_owners_and_buffers_to_use_again() {
    let all = [Pieces::new(Account::new(10, 0)), Pieces::read_once(Account::new(10, 0)), Pieces::off()];
    let kinds = |stores: &[Arc<Pieces>; 3]| stores.each_ref().map(|store| (store.is_on(), store.reads_once()));
    assert_eq!(kinds(&all), [(true, false), (true, true), (false, false)]);
    assert_eq!(kinds(&all.each_ref().map(|store| store.renewed())), kinds(&all));
    let [pieces, ..] = all;
    assert_eq!((pieces.owners(3), pieces.owners(2), pieces.owners(1)), (0, 3, 5));
    let spare = vec![1; 100];
    let at = spare.as_ptr();
    assert!(!pieces.has_spare());
    pieces.recycle(spare);
    assert!(pieces.has_spare());
    let again = pieces.buffer(100).unwrap();
    assert_eq!((again.as_ptr(), again.len(), pieces.has_spare()), (at, 100, false));
    pieces.recycle(again);
    assert_eq!(pieces.buffer(101).unwrap(), [0; 101]);
}

#[test]
fn pieces_that_are_forgotten_leave_memory_and_as_many_buffers_as_are_asked_for() {
    let (one, two) = (1000, 2000);
    let pieces = Pieces::new(Account::new(4000, 0));
    (0..4).for_each(|piece| assert!(pieces.put(one, piece, vec![7; 1000]).is_none()));
    let held = pieces.in_memory(one, 3).unwrap();
    pieces.forget(two, 0..4, 4);
    assert_eq!((pieces.memory().used(), pieces.has_spare()), (4000, false), "of another owner");
    pieces.forget(one, 0..3, 1);
    assert_eq!((pieces.memory().used(), pieces.has_spare()), (1000, true));
    assert_eq!((0..4).filter(|&piece| pieces.has(one, piece, 1000)).collect::<Vec<_>>(), [3]);
    let spares = || std::iter::from_fn(|| pieces.has_spare().then(|| pieces.buffer(1000).unwrap())).count();
    assert_eq!(spares(), 1);
    // A piece that a reader holds leaves no buffer.
    pieces.forget(one, 3..4, 4);
    assert_eq!((held[..].to_vec(), pieces.has_spare()), (vec![7; 1000], false));
    drop(held);
    assert_eq!(pieces.memory().used(), 0);
    for (keep, left) in [(0, 0), (2, 2), (9, 3)] {
        (0..3).for_each(|piece| assert!(pieces.put(one, piece, vec![7; 1000]).is_none()));
        pieces.forget(one, 0..3, keep);
        assert_eq!(spares(), left, "{keep}");
    }
}

#[test]
fn a_piece_that_waits_for_the_writer_is_neither_forgotten_nor_shed() {
    let pieces = Pieces::new(Account::new(2000, 4000));
    assert!(pieces.put(1, 0, vec![7; 1000]).is_none());
    crate::clock::wait_until(|| pieces.shared.lock().waiting.is_empty());
    pieces.shared.lock().waiting.push((1, 0));
    pieces.forget(1, 0..1, 0);
    assert!(!pieces.shed(1001) && pieces.has(1, 0, 1000));
    pieces.shared.lock().waiting.clear();
    assert!(pieces.shed(1001) && !pieces.has(1, 0, 1000));
}

#[test]
fn pieces_are_shed_from_memory_as_many_as_are_asked_for() {
    let pieces = Pieces::new(Account::new(4000, 1000));
    (0..5).for_each(|piece| assert!(pieces.put(1, piece, vec![7; 1000]).is_none()));
    crate::clock::wait_until(|| pieces.shared.lock().waiting.is_empty());
    assert_eq!(pieces.memory().used(), 4000);
    assert!(pieces.shed(1000));
    assert_eq!(pieces.memory().used(), 3000);
    assert!(pieces.shed(1500));
    assert_eq!(pieces.memory().used(), 2000);
    // Half of the memory is free.
    assert!(!pieces.shed(4001) && pieces.memory().used() == 2000);
    assert!(pieces.shed(4000) && pieces.shed(4000) && !pieces.shed(4001));
    // The last one is in the file.
    assert_eq!((0..5).filter(|&piece| pieces.has(1, piece, 1000)).collect::<Vec<_>>(), [4]);
}

#[test]
fn pieces_are_the_same_while_queued_and_once_written() {
    let pieces = Pieces::new(Account::new(1 << 20, 64 << 20));
    let bytes = |piece: u64| vec![piece as u8; 100_000 + piece as usize];
    for piece in 0..100 {
        let mut buffer = pieces.buffer(100_000 + piece as usize).unwrap();
        buffer.fill(piece as u8);
        assert!(pieces.put(7, piece, buffer).is_none());
        for piece in [piece, piece / 2] {
            let mut dst = vec![0xAA; 100_000 + piece as usize];
            assert!(pieces.get(7, piece, &mut dst).unwrap());
            assert!(dst == bytes(piece), "{piece}");
        }
    }
    // The first ten fit in memory; wait until the others are in the file.
    crate::clock::wait_until(|| pieces.shared.lock().waiting.is_empty());
    for piece in 0..100 {
        assert_eq!(pieces.in_memory(7, piece).is_some(), piece < 10, "{piece}");
        let mut dst = vec![0xAA; 100_000 + piece as usize];
        assert!(pieces.get(7, piece, &mut dst).unwrap());
        assert!(dst == bytes(piece), "{piece}");
    }
}

/// A store whose memory others have taken.
fn on_disk() -> (Arc<Pieces>, Charge) {
    let account = Account::new(16 << 20, 64 << 20);
    let others = account.charge(16 << 20, "others").unwrap();
    (Pieces::new(account), others)
}

#[test]
fn a_small_memory_has_a_short_queue() {
    for (memory, waiting) in [(0, 1), (2 << 20, 1), (5 << 20, 2), (16 << 20, 8), (1 << 40, 8)] {
        let pieces = Pieces::new(Account::new(memory, 0));
        assert_eq!(pieces.shared.waiting(), waiting, "{memory}");
        pieces.recycle(vec![0; MEMORY as usize + 1]);
        assert!(!pieces.has_spare());
        (0..10).for_each(|_| pieces.recycle(vec![0]));
        assert_eq!(pieces.shared.lock().spare.len(), waiting);
    }
}

#[test]
fn a_full_queue_blocks_until_its_pieces_are_written() {
    let (pieces, _others) = on_disk();
    let (go, wait) = mpsc::channel::<()>();
    // The writer is busy.
    pieces.writer.demand(Box::new(move || _ = wait.recv()));
    let waiting = pieces.shared.waiting() as u64;
    for piece in 0..waiting {
        assert!(pieces.put(1, piece, vec![piece as u8; 10]).is_none());
    }
    std::thread::scope(|scope| {
        let more = scope.spawn(|| pieces.put(1, waiting, vec![waiting as u8; 10]));
        // Not beyond the limit, whether it has been asked already or not.
        assert_eq!(pieces.shared.lock().waiting.len() as u64, waiting);
        drop(go);
        assert!(more.join().unwrap().is_none());
    });
    for piece in 0..=waiting {
        let mut dst = [0; 10];
        assert!(pieces.has(1, piece, 10) && pieces.get(1, piece, &mut dst).unwrap(), "{piece}");
        assert_eq!(dst, [piece as u8; 10]);
    }
    assert!(!pieces.has(1, waiting, 9) && !pieces.has(2, waiting, 10));
}

#[test]
fn a_writer_that_panics_loses_only_the_piece_it_was_writing() {
    let (pieces, _others) = on_disk();
    let disk = pieces.shared.account.disk();
    let bytes = Arc::new(vec![7; 10]);
    let charge = disk.charge(10, "x").unwrap();
    let mut state = pieces.shared.lock();
    state.pieces.insert((1, 0), Location::Memory { bytes: Arc::clone(&bytes), charge });
    state.waiting.push((1, 0));
    drop(state);
    let writing = Writing { shared: Arc::clone(&pieces.shared), key: (1, 0), bytes, at: None };
    let panics = move || {
        let _writing = writing;
        panic!("on purpose");
    };
    assert!(pieces.has(1, 0, 10) && pieces.put(1, 1, vec![4; 10]).is_none());
    pieces.writer.demand(Box::new(panics));
    crate::clock::wait_until(|| pieces.shared.lock().waiting.is_empty());
    assert!(!pieces.has(1, 0, 10) && pieces.has(1, 1, 10));
    assert_eq!(disk.used(), 10);
    assert!(pieces.put(1, 2, vec![4; 10]).is_none() && pieces.has(1, 2, 10));
}

#[test]
fn a_piece_that_cannot_be_written_is_not_kept() {
    let (pieces, _others) = on_disk();
    // It can only be read.
    pieces.shared.file.set(Some(File::open(std::env::current_exe().unwrap()).unwrap())).unwrap();
    for piece in 0..20 {
        pieces.put(1, piece, vec![1; 10]);
    }
    crate::clock::wait_until(|| pieces.shared.lock().waiting.is_empty());
    assert!((0..20).all(|piece| !pieces.has(1, piece, 10)));
    assert_eq!(pieces.shared.account.disk().used(), 0);
}

#[test]
fn the_end_of_a_store_drops_what_waits_for_the_writer() {
    let (pieces, _others) = on_disk();
    let (go, wait) = mpsc::channel::<()>();
    pieces.writer.demand(Box::new(move || _ = wait.recv()));
    assert!(pieces.put(1, 0, vec![1; 10]).is_none());
    let shared = Arc::clone(&pieces.shared);
    drop(pieces);
    assert!(shared.lock().waiting.is_empty() && shared.lock().pieces.is_empty());
    drop(go);
}

#[test]
fn a_store_that_is_off_creates_no_file() {
    let pieces = Pieces::off();
    assert!(pieces.put(1, 0, b"a".to_vec()).is_some());
    assert!(!pieces.get(1, 0, &mut [0]).unwrap());
    assert!(pieces.shared.file.get().is_none());
}
