//! Holdings of the users of a mount: the files and containers that they have open.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use rustix::process::{Resource, getrlimit};

use super::activity::{Activity, InUse};
use super::options::Access;
use crate::account::{Account, Holding, Share, Users};
use crate::error::Result;
use crate::recent::Recent;

/// Number of objects remembered, the last ones opened.
pub(super) const MOST: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// An open file of a container and the state of its reader.
const FILE: Holding = Holding { bytes: 1 << 10, descriptors: 0 };

/// The users of a mount that `access` describes. They may have half of the descriptors open: the others are for the
/// mount itself.
pub(super) fn users(account: &Account, access: Access) -> Users {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
    Users::new(account, descriptors, access == Access::AllUsers)
}

/// The users who have files of a container open.
#[derive(Debug)]
pub(super) struct Holders {
    pub(super) activity: Arc<Activity>,
    users: Users,
    /// Cost of keeping it open.
    container: Holding,
    of_users: Recent<u32, Weak<Share>>,
}

/// A file that is open, and the container that it is in, held by a user.
#[derive(Debug)]
pub(super) struct Held {
    _in_use: InUse,
    _file: Share,
    _container: Arc<Share>,
}

impl Holders {
    /// For a container that takes `bytes` of memory while any user has a file of it open; none has yet.
    pub(super) fn new(users: &Users, bytes: u64, activity: &Arc<Activity>) -> Self {
        let (users, activity) = (users.clone(), activity.clone());
        Self { activity, users, container: Holding::memory(bytes), of_users: Recent::new(MOST) }
    }

    /// Records that user `uid` opens a file for which `bytes` are kept, until that is dropped: each of these users holds
    /// the container, once.
    ///
    /// # Errors
    /// As [`Users::take`].
    pub(super) fn hold(&self, uid: u32, bytes: u64) -> Result<Held> {
        let share = |what| self.users.share(uid, what);
        let container = match self.of_users.in_use(&uid) {
            Some(container) => container,
            None => Arc::new(share(self.container)?),
        };
        self.of_users.put(uid, Arc::downgrade(&container));
        let file = share(Holding { bytes: FILE.bytes.saturating_add(bytes), ..FILE })?;
        Ok(Held { _in_use: self.activity.open(), _file: file, _container: container })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_held_once_by_each_user_who_has_files_of_it_open() {
        let users = Users::new(&Account::new(0, 0), 0, true);
        // A user alone may have half of 16 MiB.
        let activity = Arc::default();
        let holders = Holders::new(&users, 6 << 20, &activity);
        let files: Vec<Held> = (0..1000).map(|_| holders.hold(1000, 0).unwrap()).collect();
        assert!(users.is_short(1000));
        let another = Holders::new(&users, 6 << 20, &activity);
        assert_eq!(another.hold(1000, 0).unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(holders.hold(1001, 0).unwrap_err().errno(), libc::ENOMEM, "3 MiB would be left");
        assert_eq!(activity.open_files(), 1000);
        drop(files);
        assert!(another.hold(1000, 0).is_ok() && !users.is_short(1000) && activity.open_files() == 0);
    }
}
