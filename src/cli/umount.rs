//! `fzmfs umount`.
#![forbid(unsafe_code)]

use super::args::Umount;
use super::report::{self, Failure, Outcome};
use crate::fs::{self, Unmounted};

pub(super) fn run(args: &Umount) -> Outcome {
    let mut outcome = Ok(());
    for point in &args.points {
        match fs::umount(point) {
            Ok(Unmounted::Ended) => {}
            Ok(Unmounted::Unseen) => {
                report::notice(
                    point,
                    "unmounted; its daemon is in another PID namespace, so its end was not waited for",
                );
            }
            Err(failure) => {
                report::report(&failure);
                outcome = Err(Failure::reported());
            }
        }
    }
    outcome
}
