//! Models of the store of decoded pieces: the writer of its file, those that read meanwhile, and its end.

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

#[test]
fn a_piece_is_read_from_the_file_only_after_it_was_written() {
    check(Time::Stands, || {
        // None in memory, and three on disk.
        let pieces = Pieces::new(Account::new(0, 12));
        let all = [0, 1, 2].map(|piece| {
            let pieces = pieces.clone();
            thread::spawn(move || {
                assert!(pieces.put(7, piece, vec![1 + piece as u8; 4]).is_none());
                let mut dst = [0; 4];
                assert!(pieces.get(7, piece, &mut dst).unwrap());
                assert_eq!(dst, [1 + piece as u8; 4]);
            })
        });
        all.into_iter().for_each(|one| one.join().unwrap());
        // What waits for the writer is given up with the store.
    });
}
