//! Whether a mount can work here, and what to do where it cannot: the facts behind `fzmfs doctor`.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::mount::{DEVICE, HELPER};
use super::{bdi, sys};

/// How a finding bears on mounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// Mounting works without it, less well.
    Lacking,
    /// Mounting does not work because of it.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it bears on mounting.
    pub state: State,
    /// What was found, and what to do about it.
    pub text: String,
}

impl Finding {
    fn new(name: &'static str, state: State, text: impl Into<String>) -> Self {
        Self { name, state, text: text.into() }
    }
}

/// Looks at everything that a mount needs, for the user who asks.
pub fn findings() -> Vec<Finding> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).err();
    let helper = find_helper();
    let (uid, _) = sys::effective_ids();
    let mut all = vec![kernel(), device_finding(device.as_ref(), helper.is_some())];
    all.push(helper_finding(helper.as_deref(), uid == 0 && device.is_none()));
    if uid != 0 {
        all.push(others());
    }
    all.push(timeout());
    all
}

/// Whether a mount can work, from what was found.
pub fn can_mount(findings: &[Finding]) -> bool {
    findings.iter().all(|f| f.state != State::Bad)
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let known = std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|all| all.lines().any(|line| line.split_whitespace().next_back() == Some("fuse")));
    match (known, release.trim()) {
        (true, release) => Finding::new("kernel", State::Good, format!("Linux {release}, knows FUSE")),
        (false, release) => Finding::new(
            "kernel",
            // It may be loaded when the device is opened.
            State::Lacking,
            format!("Linux {release}, FUSE is not loaded; load it with: modprobe fuse"),
        ),
    }
}

fn device_finding(refused: Option<&io::Error>, helper: bool) -> Finding {
    let name = "/dev/fuse";
    match refused {
        None => Finding::new(name, State::Good, "can be opened"),
        Some(e) if e.kind() == io::ErrorKind::PermissionDenied && helper => {
            Finding::new(name, State::Good, format!("only root may open it; {HELPER} does that for you"))
        }
        Some(e) => Finding::new(
            name,
            State::Bad,
            format!(
                "{e}; load the kernel module with: modprobe fuse; in a container, pass it in with: --device /dev/fuse"
            ),
        ),
    }
}

fn helper_finding(helper: Option<&Path>, root: bool) -> Finding {
    let needed = if root { State::Lacking } else { State::Bad };
    let Some(path) = helper else {
        let why = if root { "auto_unmount needs it" } else { "only root can mount without it" };
        return Finding::new(HELPER, needed, format!("not installed, and {why} (Debian: apt install fuse3)"));
    };
    let setuid = path.metadata().is_ok_and(|m| m.permissions().mode() & 0o4000 != 0 && m.uid() == 0);
    let text = path.display().to_string();
    if setuid || root {
        return Finding::new(HELPER, State::Good, text);
    }
    Finding::new(HELPER, needed, format!("{text} is not setuid root: mounting is left to root"))
}

fn others() -> Finding {
    let allowed = std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|conf| conf.lines().any(|line| line.trim() == "user_allow_other"));
    if allowed {
        return Finding::new("allow_other", State::Good, "allowed by /etc/fuse.conf");
    }
    let text = "refused: /etc/fuse.conf lacks the line user_allow_other";
    Finding::new("allow_other", State::Lacking, text)
}

fn timeout() -> Finding {
    match bdi::request_timeout() {
        None => Finding::new("request timeout", State::Good, "off"),
        Some(seconds) => Finding::new(
            "request timeout",
            State::Lacking,
            format!(
                "{seconds} s: the kernel ends a mount that takes longer for one answer; off with: sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0"
            ),
        ),
    }
}

fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(HELPER)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_only_root_opens_is_good_where_the_helper_is() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(device_finding(Some(&refused), true).state, State::Good);
        assert_eq!(device_finding(Some(&refused), false).state, State::Bad);
        assert_eq!(device_finding(Some(&io::ErrorKind::NotFound.into()), true).state, State::Bad);
    }

    #[test]
    fn one_bad_finding_is_enough() {
        let finding = |state| Finding::new("x", state, "");
        assert!(can_mount(&[finding(State::Good), finding(State::Lacking)]));
        assert!(!can_mount(&[finding(State::Good), finding(State::Bad)]));
    }

    #[test]
    fn root_needs_no_helper_and_others_do() {
        assert_eq!(helper_finding(None, true).state, State::Lacking);
        assert_eq!(helper_finding(None, false).state, State::Bad);
    }
}
