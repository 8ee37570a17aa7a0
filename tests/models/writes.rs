//! A model of the end of what writes to the disk cache.

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

#[test]
fn who_ends_waits_for_all_that_is_written() {
    check(Time::Stands, || {
        let writes = Arc::new(Writes::default());
        let all = [writes.begin(), writes.begin()].map(|write| thread::spawn(move || drop(write)));
        writes.wait(Duration::from_secs(3600));
        assert_eq!(*writes.lock(), 0);
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}
