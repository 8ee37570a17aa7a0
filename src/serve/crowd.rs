//! Evicts a connection when there is no place for another: the one that has waited longest for a request, so that no number
//! of clients that send next to nothing keeps others away.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::stall::Stalled;

/// How long a connection may wait for a request while another one waits for its place.
const GRACE: Duration = Duration::from_secs(2);

/// The connections that wait for a request. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<ClientLine>>);

#[derive(Debug, Default)]
struct ClientLine {
    next: u64,
    /// In the order in which they began to wait.
    waiting: BTreeMap<u64, WaitingClients>,
}

#[derive(Debug)]
struct WaitingClients {
    since: Instant,
    stalled: Stalled,
    leaves: Arc<Notify>,
}

/// A connection, in the crowd while it waits for a request.
#[derive(Debug)]
pub(super) struct CrowdMember {
    crowd: Crowd,
    stalled: Stalled,
    leaves: Arc<Notify>,
    place: Mutex<Option<u64>>,
}

/// A request of a connection that is being answered: until this is dropped, the connection keeps its place.
#[derive(Debug)]
pub(super) struct Answering(Arc<CrowdMember>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.waits();
    }
}

impl Crowd {
    /// A new connection, whose writes are watched by `stalled`.
    pub(super) fn member(&self, stalled: Stalled) -> Arc<CrowdMember> {
        let member = CrowdMember { crowd: self.clone(), stalled, leaves: Arc::default(), place: Mutex::default() };
        member.waits();
        Arc::new(member)
    }

    /// Lets the one leave that has waited longest, once that is [`GRACE`].
    pub(super) async fn make_room(&self) {
        while let Some(until) = self.leave_longest() {
            sleep_until(until).await;
        }
    }

    /// Lets the one leave that has waited longest; else returns when to try again.
    fn leave_longest(&self) -> Option<Instant> {
        let (now, mut line) = (Instant::now(), self.line());
        // The rest of a reply may still be on its way.
        let longest = line.waiting.iter().find(|(_, one)| !one.stalled.is_sending());
        let Some((&place, since)) = longest.map(|(place, one)| (place, one.since)) else { return Some(now + GRACE) };
        if now < since + GRACE {
            return Some(since + GRACE);
        }
        if let Some(one) = line.waiting.remove(&place) {
            one.leaves.notify_one();
        }
        None
    }

    fn line(&self) -> MutexGuard<'_, ClientLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CrowdMember {
    /// Returns when it has to leave.
    pub(super) async fn leaves(&self) {
        self.leaves.notified().await;
    }

    /// Marks that a request has come, until the returned value is dropped.
    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        self.works();
        Answering(self.clone())
    }

    fn waits(&self) {
        let (mut line, mut place) = (self.crowd.line(), self.place());
        if let Some(old) = *place {
            line.waiting.remove(&old);
        }
        *place = Some(line.next);
        let one = WaitingClients { since: Instant::now(), stalled: self.stalled.clone(), leaves: self.leaves.clone() };
        let next = line.next;
        line.waiting.insert(next, one);
        line.next += 1;
    }

    fn works(&self) {
        let (mut line, mut place) = (self.crowd.line(), self.place());
        if let Some(old) = place.take() {
            line.waiting.remove(&old);
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<u64>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CrowdMember {
    fn drop(&mut self) {
        self.works();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    #[test]
    fn the_one_that_has_waited_longest_leaves_and_none_that_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let crowd = Crowd::default();
            let member = || crowd.member(Stalled::default());
            let (answered, first, second) = (member(), member(), member());
            let answering = answered.answering();
            let has_to = async |member: &CrowdMember| timeout(Duration::ZERO, member.leaves()).await.is_ok();
            // Not before it had time to ask.
            assert!(timeout(GRACE / 2, crowd.make_room()).await.is_err());
            assert!(!has_to(&first).await);
            crowd.make_room().await;
            assert_eq!((has_to(&first).await, has_to(&second).await), (true, false));
            crowd.make_room().await;
            assert!(has_to(&second).await);
            drop((first, second));
            assert!(timeout(10 * GRACE, crowd.make_room()).await.is_err());
            assert!(!has_to(&answered).await);
            drop(answering);
            sleep(GRACE).await;
            crowd.make_room().await;
            assert!(has_to(&answered).await);
            drop(answered);
            assert!(crowd.line().waiting.is_empty());
        });
    }
}
