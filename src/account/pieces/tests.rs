//! Pieces are kept within the limit, queued or written, and a writer that ends is replaced.
#![forbid(unsafe_code)]

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

/// Queues `count` pieces for a writer that does not run.
fn enqueue(pieces: &Pieces, count: usize) {
    let mut state = pieces.shared.lock();
    for piece in 0..count as u64 {
        let charge = pieces.shared.account.disk().charge(10, "x").unwrap();
        state.pieces.insert((1, piece), Location::Memory { bytes: Arc::new(vec![piece as u8; 10]), charge });
        state.waiting.push_back((1, piece));
    }
    state.writer = true;
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
fn a_writer_that_ended_is_replaced() {
    let (pieces, _others) = on_disk();
    // A full queue, and a writer that ended without emptying it.
    let waiting = pieces.shared.waiting();
    enqueue(&pieces, waiting);
    drop(Ended(&pieces.shared));
    let mut left = Some(vec![9; 10]);
    while let Some(bytes) = left {
        left = pieces.put(1, 100, bytes);
    }
    for piece in (0..waiting as u64).chain([100]) {
        let mut dst = [0; 10];
        assert!(pieces.has(1, piece, 10) && pieces.get(1, piece, &mut dst).unwrap(), "{piece}");
        assert_eq!(dst, [if piece == 100 { 9 } else { piece as u8 }; 10]);
    }
    assert!(!pieces.has(1, 100, 9) && !pieces.has(2, 100, 10));
}

#[test]
fn a_writer_that_panics_loses_only_the_piece_it_was_writing() {
    let (pieces, _others) = on_disk();
    let shared = Arc::clone(&pieces.shared);
    enqueue(&pieces, 2);
    let panics = move || {
        let _ended = Ended(&shared);
        panic!("on purpose");
    };
    assert!(std::thread::spawn(panics).join().is_err());
    assert!(!pieces.has(1, 0, 10) && pieces.has(1, 1, 10));
    assert!(pieces.put(1, 2, vec![4; 10]).is_none());
}

#[test]
fn a_store_that_is_off_creates_no_file() {
    let pieces = Pieces::off();
    assert!(pieces.put(1, 0, b"a".to_vec()).is_some());
    assert!(!pieces.get(1, 0, &mut [0]).unwrap());
    assert!(pieces.shared.file.get().is_none());
}
