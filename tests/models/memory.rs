//! Models of the memory of a Blosc2 container.

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

#[test]
fn decodes_that_need_several_buffers_take_turns_and_none_waits_for_ever() {
    check(Time::Stands, || {
        let memory = ContainerMemory::new(Account::new(100, 0), 1 << 30, Arc::default());
        let all = [(); 3].map(|()| {
            let memory = memory.clone();
            thread::spawn(move || {
                let (active, buffers) = memory.allocate([40, 40]).unwrap();
                thread::yield_now();
                drop(buffers);
                drop(active);
            })
        });
        all.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(memory.account().memory().used(), 0);
    });
}
