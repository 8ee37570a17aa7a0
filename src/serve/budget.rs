//! The budget of all replies: threads that wait, and memory for bytes that clients have not taken yet.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

use super::figure::Figure;
use crate::bytes::to_u64;
use crate::error::Result;
use crate::limits::zeroed;
use crate::wanted::Wanted;

/// Bytes that a reply reads at a time, whatever the others have taken.
pub(super) const LEAST: u64 = 16 << 10;
/// Bytes of all replies above that, and the number of equal parts in which large replies take them.
const MEMORY: usize = 64 << 20;
const PARTS: u64 = 16;

/// The budget of all replies. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    most: usize,
    threads: Arc<Semaphore>,
    memory: Arc<Semaphore>,
}

/// Gives work up when its client goes before it is done.
struct Caller(Option<Wanted>);

impl Caller {
    /// The work is done, and what it has fetched ahead still comes.
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(wanted) = &self.0 {
            wanted.give_up();
        }
    }
}

/// Memory for the bytes of a reply, returned when they are sent or dropped.
#[derive(Debug)]
pub(super) struct ReplyRoom {
    len: u64,
    permit: Option<OwnedSemaphorePermit>,
}

/// Bytes in their room.
struct Held {
    bytes: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Budget {
    /// For work on `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        let (most, memory) = (threads, Arc::new(Semaphore::new(MEMORY)));
        Self { most, threads: Arc::new(Semaphore::new(most)), memory }
    }

    /// The threads and the memory in use.
    pub(super) fn figures(&self) -> [Figure; 3] {
        let threads = to_u64(self.most.saturating_sub(self.threads.available_permits()));
        let memory = to_u64(MEMORY.saturating_sub(self.memory.available_permits()));
        let figure = |name, value, what| Figure { name, grows: false, value, what };
        [
            figure("threads_busy", threads, "Threads that work on a request."),
            figure("threads", to_u64(self.most), "Requests that are worked on at once, at most."),
            figure("reply_bytes", memory, "Bytes of replies that clients have not taken."),
        ]
    }

    /// Runs `work`, which may wait for files, servers and decoders, on a thread for that, once one is free. Gives it up
    /// if the future is dropped.
    ///
    /// # Errors
    /// If it panics.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = self.threads.acquire_owned().await.ok();
        on_thread(permit, work).await
    }

    /// As [`Budget::run`], started at once; `None` if no thread is free.
    pub(super) fn run_now<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
        &self,
        work: W,
    ) -> Option<impl Future<Output = Result<T, JoinError>> + use<T, W>> {
        let permit = self.threads.clone().try_acquire_owned().ok()?;
        Some(on_thread(Some(permit), work))
    }

    /// Room for `len` bytes, or, if others have taken too much, for fewer, but at least [`LEAST`] of them: so that no
    /// number of slow clients keeps others from their replies.
    pub(super) fn room(&self, len: u64) -> ReplyRoom {
        let some = u32::try_from(len).ok().filter(|_| len > LEAST);
        let permit = some.and_then(|len| self.memory.clone().try_acquire_many_owned(len).ok());
        let len = if permit.is_some() { len } else { len.min(LEAST) };
        ReplyRoom { len, permit }
    }

    /// A part of the bytes that are free, which many replies can have at the same time.
    pub(super) fn part(&self) -> u64 {
        to_u64(self.memory.available_permits()) / PARTS
    }

    /// Room for `len` bytes that no client waits for yet: `None` unless half of it is free for those that do.
    pub(super) fn spare_room(&self, len: u64) -> Option<ReplyRoom> {
        let free = self.memory.available_permits();
        let permit = u32::try_from(len).ok().filter(|_| free >= MEMORY / 2)?;
        Some(ReplyRoom { len, permit: Some(self.memory.clone().try_acquire_many_owned(permit).ok()?) })
    }
}

/// Starts `work` on a thread for which `permit` is.
fn on_thread<T: Send + 'static>(
    permit: Option<OwnedSemaphorePermit>,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> {
    let wanted = Wanted::default();
    let caller = Caller(Some(wanted.clone()));
    let running = spawn_blocking(move || {
        let done = wanted.within(work);
        drop(permit);
        done
    });
    async move {
        let done = running.await;
        caller.stays();
        done
    }
}

impl ReplyRoom {
    /// The bytes that it is for.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that `read` fills.
    ///
    /// # Errors
    /// Errors of `read`.
    pub(super) fn filled(self, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Bytes> {
        let mut bytes = zeroed(self.len, "block of a reply")?;
        read(&mut bytes)?;
        Ok(Bytes::from_owner(Held { bytes, _permit: self.permit }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_get_less_room_but_never_none() {
        let budget = Budget::new(1);
        let all = budget.room(MEMORY as u64);
        assert_eq!(all.len(), MEMORY as u64);
        assert_eq!((budget.room(1 << 20).len(), budget.room(5).len()), (LEAST, 5));
        let bytes = all.filled(|_| Ok(())).unwrap();
        let part = bytes.slice(..3);
        drop(bytes);
        assert_eq!(budget.room(1 << 20).len(), LEAST);
        drop(part);
        assert_eq!(budget.room(1 << 20).len(), 1 << 20);
    }

    #[test]
    fn work_of_a_client_that_has_gone_is_given_up_and_its_place_is_free() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::new(1);
            let (started, has_started) = tokio::sync::oneshot::channel();
            let work = tokio::spawn(budget.clone().run(move || {
                started.send(()).unwrap();
                while !Wanted::current().unwrap().is_given_up() {
                    std::thread::yield_now();
                }
            }));
            has_started.await.unwrap();
            let waiting = tokio::spawn(budget.clone().run(|| panic!("nobody waits for it")));
            waiting.abort();
            work.abort();
            assert_eq!(budget.clone().run(|| 3).await.unwrap(), 3);
            let done = budget.run(|| Wanted::current().unwrap()).await.unwrap();
            assert!(!done.is_given_up());
        });
    }
}
