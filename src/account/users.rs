//! Memory and descriptors that each user of a mount holds, for as long as the kernel keeps something open for them.
//!
//! One rule for everybody: nobody holds more than is left for the others. A user alone has half of it, two have a third
//! each, and a newcomer finds as much as each of the others has. Root and the owner of the mount are not exceptions: a
//! runaway program of theirs starves the others just as well. If nobody else may use the mount, its owner has all of
//! it.
//!
//! Memory beyond [`LEAST`] is charged to the account, so that the cache makes room.
#![forbid(unsafe_code)]
#![warn(clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::Charge;
use crate::platform::os_error;

use super::Account;

/// Bytes for all users together whatever the memory of the account, and not charged to it.
const LEAST: u64 = 16 << 20;
/// The part of the account's memory that they may have besides.
const PART: u64 = 4;
/// Bytes from one charge of the account to the next.
const STEP: u64 = 256 << 10;

/// An amount of memory and of descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes of memory.
    pub bytes: u64,
    /// Descriptors of this process.
    pub descriptors: u64,
}

/// The users of a mount; clones share them.
#[derive(Debug, Clone)]
pub struct Users(Arc<UsersInner>);

#[derive(Debug)]
struct UsersInner {
    account: Account,
    total: Holding,
    is_shared: bool,
    state: Mutex<UsersState>,
}

#[derive(Debug, Default)]
struct UsersState {
    held: Holding,
    by_user: HashMap<u32, Holding>,
    /// Of [`STEP`] bytes each.
    charges: Vec<Charge>,
}

/// A user's holding; given back on drop.
#[derive(Debug)]
pub struct Share {
    users: Users,
    uid: u32,
    what: Holding,
}

impl Holding {
    /// `bytes` of memory, and no descriptors.
    pub fn memory(bytes: u64) -> Self {
        Self { bytes, descriptors: 0 }
    }

    fn with(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            descriptors: self.descriptors.saturating_add(other.descriptors),
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            descriptors: self.descriptors.saturating_sub(other.descriptors),
        }
    }
}

impl Users {
    /// No user holds anything yet. All users together may hold a part of the memory of `account` and `descriptors`;
    /// `is_shared`: there are several users.
    pub fn new(account: &Account, descriptors: u64, is_shared: bool) -> Self {
        let total = Holding { bytes: LEAST.saturating_add(account.memory().total() / PART), descriptors };
        Self(Arc::new(UsersInner { account: account.clone(), total, is_shared, state: Mutex::default() }))
    }

    /// As [`Users::take`], until the share is dropped.
    ///
    /// # Errors
    /// As [`Users::take`].
    pub fn share(&self, uid: u32, what: Holding) -> Result<Share> {
        self.take(uid, what)?;
        Ok(Share { users: self.clone(), uid, what })
    }

    /// Records that user `uid` holds `what`, until [`Users::give_back`].
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the user would hold more memory than is left for the others; `ENFILE` if more descriptors.
    pub fn take(&self, uid: u32, what: Holding) -> Result<()> {
        let mut state = self.lock();
        let of_user = state.by_user.get(&uid).copied().unwrap_or_default().with(what);
        let held = state.held.with(what);
        let most = self.most(held);
        if what.descriptors > 0 && of_user.descriptors > most.descriptors {
            return Err(Error::io(os_error(libc::ENFILE), "descriptors of a user"));
        }
        if what.bytes > 0 && of_user.bytes > most.bytes {
            let memory = most.bytes.saturating_sub(of_user.without(what).bytes);
            return Err(Error::new(Kind::NoRoom { need: what.bytes, memory, disk: 0 }, "memory of a user"));
        }
        self.charge(&mut state, held)?;
        state.held = held;
        state.by_user.insert(uid, of_user);
        Ok(())
    }

    /// As [`Users::take`], for a holding that cannot be refused; it leaves the user less for everything else.
    pub fn add(&self, uid: u32, what: Holding) {
        let mut state = self.lock();
        let held = state.held.with(what);
        // As far as there is room.
        let _ = self.charge(&mut state, held);
        state.held = held;
        let of_user = state.by_user.entry(uid).or_default();
        *of_user = of_user.with(what);
    }

    /// Records that user `uid` no longer holds `what`, which was taken or added.
    pub fn give_back(&self, uid: u32, what: Holding) {
        let mut state = self.lock();
        state.held = state.held.without(what);
        if let Some(of_user) = state.by_user.get_mut(&uid) {
            *of_user = of_user.without(what);
            if *of_user == Holding::default() {
                state.by_user.remove(&uid);
            }
        }
        // One step is kept, so that a holding that comes and goes is not charged each time.
        let steps = state.held.bytes.saturating_sub(LEAST).div_ceil(STEP).saturating_add(1);
        while to_u64(state.charges.len()) > steps {
            state.charges.pop();
        }
    }

    /// Whether user `uid` holds so much memory already that optional state should not be kept.
    pub fn is_short(&self, uid: u32) -> bool {
        let state = self.lock();
        let of_user = state.by_user.get(&uid).map_or(0, |held| held.bytes);
        of_user >= self.most(state.held).bytes / 2
    }

    /// Charges the account so that all users may hold `held`.
    fn charge(&self, state: &mut UsersState, held: Holding) -> Result<()> {
        let steps = held.bytes.saturating_sub(LEAST).div_ceil(STEP);
        while to_u64(state.charges.len()) < steps {
            state.charges.push(self.0.account.charge(STEP, "memory of users")?);
        }
        Ok(())
    }

    /// The most that one user may hold if all together hold `held`.
    fn most(&self, held: Holding) -> Holding {
        if self.0.is_shared { self.0.total.without(held) } else { self.0.total }
    }

    fn lock(&self) -> MutexGuard<'_, UsersState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The amount held.
    pub fn held(&self) -> Holding {
        self.what
    }

    /// Changes the share to `what`.
    ///
    /// # Errors
    /// As [`Users::take`]; the share is as it was then.
    pub fn change(&mut self, what: Holding) -> Result<()> {
        self.users.take(self.uid, what.without(self.what))?;
        self.users.give_back(self.uid, self.what.without(what));
        self.what = what;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.users.give_back(self.uid, self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn users(is_shared: bool) -> (Account, Users) {
        let account = Account::new(16 * MIB, 0);
        (account.clone(), Users::new(&account, 100, is_shared))
    }

    /// How many shares of `what` user `uid` gets.
    fn fill(users: &Users, uid: u32, what: Holding) -> Vec<Share> {
        std::iter::from_fn(|| users.share(uid, what).ok()).collect()
    }

    #[test]
    fn a_user_who_takes_all_that_there_is_leaves_as_much_for_each_of_the_others() {
        let (account, users) = users(true);
        let each = [Holding::memory(MIB), Holding { bytes: 1, descriptors: 1 }];
        // Half of 20 MiB or of 100 descriptors, then half of the rest, and so on.
        for (what, most) in each.into_iter().zip([[10, 5, 2, 1], [50, 25, 12, 6]]) {
            let held = [0, 1000, 1001, 1002].map(|uid| fill(&users, uid, what));
            assert_eq!(held.each_ref().map(Vec::len), most);
            let errno = if what.descriptors > 0 { libc::ENFILE } else { libc::ENOMEM };
            assert_eq!(users.share(0, what).unwrap_err().errno(), errno);
            assert!(account.memory().used() <= 4 * MIB);
        }
        // One step is kept.
        assert!(account.memory().used() == STEP && users.lock().by_user.is_empty());
    }

    #[test]
    fn who_has_too_much_of_one_kind_may_take_of_the_other() {
        let (_, users) = users(true);
        users.add(7, Holding { bytes: 0, descriptors: 90 });
        users.share(7, Holding::memory(MIB)).unwrap();
        users.add(8, Holding::memory(15 * MIB));
        users.share(8, Holding { bytes: 0, descriptors: 1 }).unwrap();
        assert!(users.share(7, Holding { bytes: 0, descriptors: 1 }).is_err());
        assert!(users.share(8, Holding::memory(1)).is_err());
    }

    #[test]
    fn who_uses_a_mount_alone_has_all_of_it() {
        let (account, users) = users(false);
        assert_eq!(fill(&users, 7, Holding::memory(MIB)).len(), 20);
        assert_eq!(account.memory().peak(), 4 * MIB);
        let _others = account.charge(16 * MIB - STEP, "pieces").unwrap();
        assert_eq!(fill(&users, 7, Holding::memory(MIB)).len(), 16, "what the account does not have is not lent");
    }

    #[test]
    fn what_cannot_be_refused_is_charged_as_far_as_there_is_room() {
        let (account, users) = users(true);
        users.add(7, Holding::memory(18 * MIB));
        assert_eq!(account.memory().used(), 2 * MIB);
        users.add(7, Holding::memory(100 * MIB));
        assert_eq!(account.memory().used(), 16 * MIB);
        users.give_back(7, Holding::memory(118 * MIB));
        assert!(account.memory().used() <= STEP && users.lock().by_user.is_empty());
    }

    #[test]
    fn a_share_changes_or_stays_as_it_was() {
        let (_, users) = users(true);
        let mut share = users.share(7, Holding::memory(MIB)).unwrap();
        share.change(Holding::memory(3 * MIB)).unwrap();
        assert_eq!(share.held(), Holding::memory(3 * MIB));
        assert!(!users.is_short(7) && share.change(Holding::memory(11 * MIB)).is_err());
        assert_eq!(users.lock().held, Holding::memory(3 * MIB));
        share.change(Holding::memory(8 * MIB)).unwrap();
        assert!(users.is_short(7) && !users.is_short(8));
        share.change(Holding::memory(MIB)).unwrap();
        assert_eq!(users.lock().held, Holding::memory(MIB));
    }
}
