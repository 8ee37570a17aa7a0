//! fusermount3, the setuid-root helper that mounts for ordinary users.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::fd_passing::{self, Last};
use super::pinned::Pinned;
use super::sys;

/// The mount helper.
pub(super) const HELPER: &str = "fusermount3";

/// With this option the helper stays. When its socket closes, which the kernel does even if the daemon is killed, it
/// unmounts if opening the mount fails with `ENOTCONN`: if the device is closed by then, and the kernel has to ask.
pub(super) const AUTO_UNMOUNT: &str = "auto_unmount";

/// Mounts on `directory`, independent of its current path; the helper checks the user's permissions. Returns the FUSE
/// device and, with `auto_unmount`, a guard that keeps the socket open.
///
/// # Errors
/// The helper's message, with advice.
pub(super) fn mount(source: &OsStr, directory: &Pinned, flags: &[&str]) -> Result<(OwnedFd, Option<OwnedFd>), String> {
    // Made before the mount, which cannot be undone without descriptors.
    let last = if flags.contains(&AUTO_UNMOUNT) { Some(Last::new().map_err(|e| e.to_string())?) } else { None };
    let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let mut options = OsString::from("ro,nosuid,nodev,noatime,subtype=fzmfs");
    for flag in flags {
        options.push(",");
        options.push(flag);
    }
    options.push(",fsname=");
    options.push(escape_option(source));
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options).args(["--", "."]).current_dir(directory.link());
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    sys::inherit(&mut command, theirs.as_fd());
    let mut helper = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            format!("only root may mount without {HELPER}, which is not installed (Debian: apt install fuse3)")
        }
        _ => format!("{HELPER}: {e}"),
    })?;
    drop(theirs);
    if let Ok(Some(device)) = fd_passing::receive(&ours) {
        // With auto_unmount the helper stays until our end is closed; otherwise it exits now.
        let kept = last.map(|last| last.keep(ours.into()));
        if kept.is_none() {
            helper.wait().map_err(|e| format!("{HELPER}: {e}"))?;
        }
        return Ok((device, kept));
    }
    // A helper that waits for the end of the mount ends now.
    drop(ours);
    let mut text = Vec::new();
    if let Some(mut stderr) = helper.stderr.take() {
        // The helper's output, if any, is the only diagnostic.
        stderr.read_to_end(&mut text).ok();
    }
    helper.wait().map_err(|e| format!("{HELPER}: {e}"))?;
    let text = said(&text);
    let advice = match () {
        () if text.contains("user_allow_other") => "; root can add that line",
        () if text.contains("/dev/fuse") || text.contains("not permitted") => "; `fzmfs doctor` says what is missing",
        () if text.contains("no write access") => "; users other than root mount on directories that they may write to",
        () => "",
    };
    Err(format!("{text}{advice}"))
}

/// Unmounts the mount on `point`; the helper checks that the user owns it.
///
/// # Errors
/// The helper's message.
pub(super) fn umount(point: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(point).stdin(Stdio::null()).output()?;
    if output.status.success() { Ok(()) } else { Err(io::Error::other(said(&output.stderr) + &table_advice())) }
}

/// The table in which the helper looks a mount up before it unmounts it. All else that it needs, it asks the kernel for.
const TABLE: &str = "/etc/mtab";

/// How to get [`TABLE`], if it is missing.
pub(super) fn table_advice() -> String {
    let advice =
        || format!("; {TABLE} is missing, without which {HELPER} unmounts nothing: ln -s /proc/self/mounts {TABLE}");
    if Path::new(TABLE).exists() { String::new() } else { advice() }
}

/// Escapes a value for `-o`, where commas separate and backslashes escape.
fn escape_option(value: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

/// The output of the helper, as one line.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.is_empty() { format!("{HELPER} failed without a message") } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_backslashes_in_a_name_do_not_become_options() {
        assert_eq!(escape_option(OsStr::new(r"/a,allow_other\b")), OsStr::new(r"/a\,allow_other\\b"));
    }
}
