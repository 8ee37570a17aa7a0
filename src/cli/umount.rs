//! `fzmfs umount`.
#![forbid(unsafe_code)]

use std::path::Path;

use super::report::{self, Outcome};
use crate::fs::{self, Unmounted};

pub(super) fn run(mountpoint: &Path) -> Outcome {
    if fs::umount(mountpoint)? == Unmounted::Unseen {
        report::notice(mountpoint, "unmounted; its daemon is in another PID namespace, so its end was not waited for");
    }
    Ok(())
}
