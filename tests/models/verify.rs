//! Models of a verification by several threads.

use super::*;
use crate::format::{Blob, BlobRef, Layout};
use crate::sync::model::{Time, check};
use crate::sync::thread;

/// A stream of two pieces whose layout takes a while to determine.
struct Stream;

impl Blob for Stream {
    fn layout(&self) -> Result<Layout> {
        thread::yield_now();
        Ok(Layout::Uniform { len: 2, piece: 1 })
    }

    fn decode(&self, _: u64, _: &mut [u8]) -> Result<()> {
        thread::yield_now();
        Ok(())
    }
}

fn runs(name: &str, fails: bool) -> Check {
    let result = move || if fails { Err(Error::corrupt("no", "x")) } else { Ok(()) };
    let run = move || {
        thread::yield_now();
        result()
    };
    Check::Run { name: name.into(), bytes: 10, run: Box::new(run) }
}

/// What three threads find: the bytes that were checked, and the first error.
fn verdict(checks: &[Check]) -> (u64, Option<String>) {
    let mut report = |_| true;
    let queue = TasksLeft::new(checks, Progress { checked: 0, total: None }, &mut report);
    thread::scope(|scope| {
        scope.spawn(|| queue.work().unwrap());
        scope.spawn(|| queue.work().unwrap());
        queue.work().unwrap();
    });
    let state = queue.state.into_inner().unwrap();
    (state.progress.checked, state.error.map(|(_, error)| error.to_string()))
}

#[test]
fn every_check_is_done_once_by_threads_that_wait_only_for_layouts() {
    check(Time::Stands, || {
        let stream = |name: &str| Check::Decode { name: name.into(), blob: BlobRef::new(Stream) };
        assert_eq!(verdict(&[stream("a"), runs("b", false), stream("c")]), (14, None));
    });
}

#[test]
fn the_first_error_in_the_order_of_the_checks_is_reported_whichever_is_found_first() {
    check(Time::Stands, || {
        let (_, error) = verdict(&[runs("a", false), runs("b", true), runs("c", true)]);
        assert_eq!(error.unwrap(), "no (b: x)");
    });
}
