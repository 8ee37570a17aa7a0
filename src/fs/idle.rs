//! Decides when a mount has been idle for the time of `idle=`.
//!
//! The caller looks several times within that time, so requests need not record their time. Other uses of the mount (as
//! a current directory) are left to the kernel, which refuses the unmount.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::activity::Activity;

/// Number of times to look within the limit. A mount ends at most one step later than it could.
const STEPS: u32 = 4;

/// The state of the decision.
#[derive(Debug)]
pub(super) struct Idle {
    step: Duration,
    /// The number of requests seen last.
    requests: u64,
    /// Steps since then.
    quiet: u32,
}

impl Idle {
    /// A mount that is idle after `limit`, which begins now.
    pub(super) fn new(limit: Duration) -> Self {
        Self { step: limit / STEPS, requests: 0, quiet: 0 }
    }

    /// The interval of calls to [`Idle::is_over`].
    pub(super) fn step(&self) -> Duration {
        self.step
    }

    /// Whether no file was open and no request came for the limit. If so, the limit begins again.
    pub(super) fn is_over(&mut self, activity: &Activity) -> bool {
        let requests = activity.requests();
        if requests != self.requests || activity.open_files() > 0 {
            (self.requests, self.quiet) = (requests, 0);
            return false;
        }
        self.quiet += 1;
        let over = self.quiet >= STEPS;
        if over {
            self.quiet = 0;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn steps(idle: &mut Idle, activity: &Activity) -> u32 {
        (1..100).find(|_| idle.is_over(activity)).unwrap_or(100)
    }

    #[test]
    fn a_mount_is_idle_after_whole_steps_without_a_request() {
        let (activity, mut idle) = (Activity::default(), Idle::new(Duration::from_secs(8)));
        assert_eq!(idle.step() * STEPS, Duration::from_secs(8));
        assert_eq!(steps(&mut idle, &activity), STEPS);
        assert_eq!(steps(&mut idle, &activity), STEPS, "again, if it could not be unmounted");
        idle.is_over(&activity);
        activity.request();
        assert_eq!(steps(&mut idle, &activity), STEPS + 1, "the step of the request does not count");
    }

    #[test]
    fn an_open_file_is_use_and_so_is_its_end() {
        let (activity, mut idle) = (Arc::<Activity>::default(), Idle::new(Duration::from_secs(1)));
        let open = activity.open();
        assert_eq!(steps(&mut idle, &activity), 100);
        drop(open);
        assert_eq!(steps(&mut idle, &activity), STEPS);
    }
}
