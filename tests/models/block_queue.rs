//! Models of the blocks between the stages of a decoder: threads that decode them, and the one that takes them in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

/// Decodes block `n` to `n + 10`.
fn decode((): &mut (), block: &mut u32) -> Result<()> {
    thread::yield_now();
    *block += 10;
    Ok(())
}

/// Threads that help, as many as are admitted.
fn helpers(queue: &Arc<BlockQueue<u32, ()>>, most: usize) -> Vec<thread::JoinHandle<()>> {
    let helper = || {
        let queue = Arc::clone(queue);
        thread::spawn(move || queue.help(decode))
    };
    std::iter::from_fn(|| queue.admit(most).then(helper)).collect()
}

#[test]
fn blocks_come_decoded_and_in_order_and_the_one_that_is_waited_for_wakes_its_waiter() {
    check(Time::Stands, || {
        let queue = Arc::new(BlockQueue::default());
        let mut next = 0;
        for end in [3, 5] {
            queue.put((next..end).map(Ok));
            let helpers = helpers(&queue, 2);
            assert!(helpers.len() <= 2);
            // The second time, some are left of the first.
            for number in next..end {
                assert_eq!(queue.take(decode).unwrap(), Some(number + 10));
            }
            next = end;
            helpers.into_iter().for_each(|helper| helper.join().unwrap());
        }
        assert_eq!(queue.take(decode).unwrap(), None);
        assert_eq!(queue.lock().helpers, 0);
    });
}

#[test]
fn a_block_that_cannot_be_decoded_is_an_error_in_its_place_also_after_a_panic() {
    check(Time::Stands, || {
        let queue = Arc::new(BlockQueue::default());
        queue.put((0..4).map(Ok));
        let mine = Arc::clone(&queue);
        assert!(queue.admit(1));
        let helper = thread::spawn(move || {
            let panics = |(): &mut (), block: &mut u32| {
                assert!(*block == 0, "on purpose");
                decode(&mut (), block)
            };
            _ = catch_unwind(AssertUnwindSafe(|| mine.help(panics)));
        });
        let mut lost = 0;
        for number in 0..4 {
            match queue.take(decode) {
                Ok(block) => assert_eq!(block, Some(number + 10)),
                Err(_) => lost += 1,
            }
        }
        assert!(lost <= 1);
        helper.join().unwrap();
        assert_eq!(queue.lock().helpers, 0);
    });
}

#[test]
fn blocks_that_were_begun_outlive_a_queue_that_is_closed() {
    check(Time::Stands, || {
        let queue = Arc::new(BlockQueue::default());
        queue.put((0..4).map(Ok));
        let helpers = helpers(&queue, 1);
        assert_eq!(queue.take(decode).unwrap(), Some(10));
        queue.close();
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        assert_eq!(queue.take(decode).unwrap(), None);
    });
}
