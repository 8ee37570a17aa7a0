//! The options that only a mount takes.
#![forbid(unsafe_code)]

use std::ffi::OsString;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::super::seconds;

/// The options that only a mount takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Mounting")]
#[expect(clippy::struct_excessive_bools, reason = "switches of the command line")]
pub(in crate::cli) struct MountArgs {
    /// Let all users read the mount
    #[arg(long, alias = "allow_other")]
    pub(in crate::cli) allow_other: bool,
    /// Let root read the mount, too
    #[arg(long, alias = "allow_root", conflicts_with = "allow_other")]
    pub(in crate::cli) allow_root: bool,
    /// Unmount when the daemon ends, even if it is killed
    #[arg(long, alias = "auto_unmount")]
    pub(in crate::cli) auto_unmount: bool,
    /// Unmount when no file was open and no request came for this long, with suffix s, m, h or d; 0 for never [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    pub(in crate::cli) idle: Option<u32>,
    /// Let no program be run from the mount
    #[arg(long)]
    pub(in crate::cli) noexec: bool,
    /// Let the kernel check file modes (always on)
    #[arg(long, alias = "default_permissions")]
    pub(in crate::cli) default_permissions: bool,
    /// Mount read-only (always on)
    #[arg(long)]
    pub(in crate::cli) ro: bool,
    /// Source that mount(8) and df(1) show [default: FILE]
    #[arg(long, value_name = "NAME", value_parser = OsStringValueParser::new().try_map(fsname))]
    pub(in crate::cli) fsname: Option<OsString>,
    /// Owner of all files [default: the user who mounts]
    #[arg(long, value_name = "UID", value_parser = id)]
    pub(in crate::cli) uid: Option<u32>,
    /// Group of all files [default: the group of the user who mounts]
    #[arg(long, value_name = "GID", value_parser = id)]
    pub(in crate::cli) gid: Option<u32>,
    /// Permission bits to clear in all files, in octal
    #[arg(long, value_name = "OCTAL", value_parser = umask)]
    pub(in crate::cli) umask: Option<u16>,
}

/// Parses a user or group id; the largest number means "none" to the kernel.
fn id(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number != u32::MAX);
    number.ok_or_else(|| format!("expected a number from 0 to {}, as `id` shows it", u32::MAX - 1))
}

/// Checks the length that mount(2) accepts for a source.
fn fsname(name: OsString) -> Result<OsString, String> {
    let fits = (1..4096).contains(&name.len());
    if fits { Ok(name) } else { Err("expected a name of 1 to 4095 bytes".to_owned()) }
}

fn umask(text: &str) -> Result<u16, String> {
    let mask = u16::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777 && !text.starts_with('+'));
    mask.ok_or_else(|| "expected up to three octal digits, as in 022".to_owned())
}
