//! Checks whether a mount can work on this machine, and how to fix it if not: the findings of `fzmfs doctor`.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::helper::{self, HELPER};
use super::mount::{DEVICE, NO_DEVICE};
use super::{kernel_tuning, sys};
use crate::error::os_message;

/// `CAP_SYS_ADMIN` in a capability set.
const SYS_ADMIN: u64 = 1 << 21;

/// Effect of a finding on mounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As required.
    Ok,
    /// Mounting works, with restrictions.
    Warn,
    /// Prevents mounting.
    Fail,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The item checked.
    pub name: &'static str,
    /// Its effect on mounting.
    pub state: Severity,
    /// The finding, and how to fix it.
    pub text: String,
}

impl Finding {
    fn new(name: &'static str, state: Severity, text: impl Into<String>) -> Self {
        Self { name, state, text: text.into() }
    }
}

/// Checks everything that a mount by the current user needs.
pub fn findings() -> Vec<Finding> {
    let device = open_device(DEVICE.as_ref()).err();
    let helper = find_helper();
    let (uid, _) = sys::effective_ids();
    let mut all = vec![kernel(), device_finding(device.as_ref())];
    all.push(helper_finding(helper.as_deref(), uid == 0 && device.is_none()));
    all.push(rights(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), helper.is_some()));
    if uid == 0 {
        let mode = std::fs::metadata(DEVICE).ok().map(|meta| meta.permissions().mode());
        all.push(users(mode, helper.as_deref()));
    } else {
        all.push(others());
    }
    all.push(timeout());
    all
}

/// Opens the device of FUSE, which a container may have replaced by a regular file.
fn open_device(path: &Path) -> io::Result<()> {
    let device = OpenOptions::new().read(true).write(true).open(path)?;
    if device.metadata()?.file_type().is_char_device() {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::ENODEV))
}

/// Whether a mount can work, given `findings`.
pub fn can_mount(findings: &[Finding]) -> bool {
    findings.iter().all(|f| f.state != Severity::Fail)
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let known = std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|all| all.lines().any(|line| line.split_whitespace().next_back() == Some("fuse")));
    match (known, release.trim()) {
        (true, release) => Finding::new("kernel", Severity::Ok, format!("Linux {release}, supports FUSE")),
        (false, release) => Finding::new(
            "kernel",
            // The module may be loaded on demand when the device is opened.
            Severity::Warn,
            format!("Linux {release}, FUSE is not loaded; load it with: modprobe fuse"),
        ),
    }
}

fn device_finding(refused: Option<&io::Error>) -> Finding {
    let name = "/dev/fuse";
    match refused {
        None => Finding::new(name, Severity::Ok, "can be opened"),
        Some(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Finding::new(name, Severity::Fail, format!("only root may open it; {OPEN_DEVICE}"))
        }
        Some(e) => Finding::new(name, Severity::Fail, format!("{}; {NO_DEVICE}", os_message(e))),
    }
}

fn helper_finding(helper: Option<&Path>, root: bool) -> Finding {
    let needed = if root { Severity::Warn } else { Severity::Fail };
    let Some(path) = helper else {
        let why = if root { "auto_unmount needs it" } else { "only root can mount without it" };
        return Finding::new(HELPER, needed, format!("not installed, and {why} (Debian: apt install fuse3)"));
    };
    let text = path.display().to_string();
    if !is_setuid(path) && !root {
        return Finding::new(HELPER, needed, format!("{text} is not setuid root, so only root can mount"));
    }
    match helper::table_advice() {
        advice if advice.is_empty() => Finding::new(HELPER, Severity::Ok, text),
        advice => Finding::new(HELPER, Severity::Warn, text + &advice),
    }
}

/// Whether this process, or the helper it runs, has the right to mount, which containers and services may take from
/// root too. `status` is `/proc/self/status`.
fn rights(status: &str, helper: bool) -> Finding {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let has =
        |set: &str| field(set).and_then(|set| u64::from_str_radix(set, 16).ok()).is_none_or(|set| set & SYS_ADMIN != 0);
    let kept = field("NoNewPrivs").is_none_or(|flag| flag == "0");
    let (state, text) = match (has("CapEff"), helper, has("CapBnd"), kept) {
        (true, ..) => (Severity::Ok, "may mount".to_owned()),
        (false, true, true, true) => (Severity::Ok, format!("{HELPER} gets the right to mount")),
        (false, true, true, false) => (
            Severity::Fail,
            format!("{HELPER} gets no right to mount under no_new_privs (systemd: NoNewPrivileges=no)"),
        ),
        (false, false, true, _) => (Severity::Fail, format!("may not mount without {HELPER}")),
        (false, _, false, _) => (
            Severity::Fail,
            "CAP_SYS_ADMIN is missing; start a container with: --device /dev/fuse --cap-add SYS_ADMIN".to_owned(),
        ),
    };
    Finding::new("rights", state, text)
}

/// How to fix a device that only root can open.
const OPEN_DEVICE: &str = "root can let users in with: chmod 0666 /dev/fuse (udev does that at boot)";

/// Whether users other than root can mount; for root. `mode`: of the device, if there is one.
fn users(mode: Option<u32>, helper: Option<&Path>) -> Finding {
    let name = "other users";
    let missing = if mode.is_none() {
        format!("there is no {DEVICE}")
    } else if let Some(mode) = mode.filter(|mode| mode & 0o006 != 0o006) {
        format!(
            "{DEVICE} has mode {:04o}; let them in with: chmod 0666 {DEVICE} (udev does that at boot)",
            mode & 0o7777
        )
    } else if helper.is_none() {
        format!("{HELPER} is not installed (Debian: apt install fuse3)")
    } else if !helper.is_some_and(is_setuid) {
        format!("{HELPER} is not setuid root; fix that with: chmod u+s {HELPER}")
    } else {
        let allow =
            if allows_others() { "" } else { "; allow_other only with the line user_allow_other in /etc/fuse.conf" };
        return Finding::new(name, Severity::Ok, format!("may mount on directories that they may write to{allow}"));
    };
    Finding::new(name, Severity::Warn, format!("cannot mount: {missing}"))
}

fn is_setuid(program: &Path) -> bool {
    program.metadata().is_ok_and(|m| m.permissions().mode() & 0o4000 != 0 && m.uid() == 0)
}

/// Whether users may mount with `allow_other`.
fn allows_others() -> bool {
    std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|conf| conf.lines().any(|line| line.trim() == "user_allow_other"))
}

fn others() -> Finding {
    if allows_others() {
        return Finding::new("allow_other", Severity::Ok, "allowed by /etc/fuse.conf");
    }
    let text = "refused: /etc/fuse.conf lacks the line user_allow_other";
    Finding::new("allow_other", Severity::Warn, text)
}

fn timeout() -> Finding {
    match kernel_tuning::request_timeout() {
        None => Finding::new("request timeout", Severity::Ok, "off"),
        Some(seconds) => Finding::new(
            "request timeout",
            Severity::Warn,
            format!(
                "{seconds} s: the kernel ends a mount that takes longer for one answer; \
                 off with: sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0"
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
    fn a_device_that_only_root_opens_is_bad_for_users_and_they_are_told_what_to_do() {
        // The helper opens the device with the user's permissions.
        let found = device_finding(Some(&io::Error::from(io::ErrorKind::PermissionDenied)));
        assert!(found.state == Severity::Fail && found.text.contains("chmod 0666 /dev/fuse"), "{found:?}");
        assert_eq!(device_finding(Some(&io::ErrorKind::NotFound.into())).state, Severity::Fail);
        assert_eq!(device_finding(None).state, Severity::Ok);
    }

    #[test]
    fn a_regular_file_in_the_place_of_the_device_is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = device_finding(open_device(file.path()).err().as_ref());
        assert!(found.state == Severity::Fail && found.text.starts_with("No such device"), "{found:?}");
    }

    #[test]
    fn a_missing_device_is_not_one_without_permissions() {
        for (mode, want) in [(None, "there is no /dev/fuse"), (Some(0o20660), "has mode 0660"), (Some(0o20666), HELPER)]
        {
            let found = users(mode, None);
            assert!(found.state == Severity::Warn && found.text.contains(want), "{found:?}");
        }
    }

    #[test]
    fn one_bad_finding_is_enough() {
        let finding = |state| Finding::new("x", state, "");
        assert!(can_mount(&[finding(Severity::Ok), finding(Severity::Warn)]));
        assert!(!can_mount(&[finding(Severity::Ok), finding(Severity::Fail)]));
    }

    #[test]
    fn root_needs_no_helper_and_others_do() {
        assert_eq!(helper_finding(None, true).state, Severity::Warn);
        assert_eq!(helper_finding(None, false).state, Severity::Fail);
    }

    #[test]
    fn a_container_or_service_without_the_right_to_mount_is_told_so() {
        let status = |effective: u64, bounding: u64, kept: u8| {
            format!("Uid:\t0\nCapEff:\t{effective:016x}\nCapBnd:\t{bounding:016x}\nNoNewPrivs:\t{kept}\n")
        };
        let all = 0x1ff_ffff_ffff;
        for (status, helper, want, word) in [
            (status(all, all, 0), false, Severity::Ok, "may mount"),
            (status(0, all, 0), true, Severity::Ok, "fusermount3 gets"),
            (status(0, all, 0), false, Severity::Fail, "without fusermount3"),
            (status(0, all, 1), true, Severity::Fail, "no_new_privs"),
            // The capabilities of root in a typical container.
            (status(0xa804_25fb, 0xa804_25fb, 0), true, Severity::Fail, "--cap-add SYS_ADMIN"),
            (String::new(), true, Severity::Ok, "may mount"),
        ] {
            let found = rights(&status, helper);
            assert!(found.state == want && found.text.contains(word), "{status}: {found:?}");
        }
    }
}
