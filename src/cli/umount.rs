//! `fzmfs umount`.
#![forbid(unsafe_code)]

use std::path::Path;

use super::report::Outcome;
use crate::fs;

pub(super) fn run(mountpoint: &Path) -> Outcome {
    fs::umount(mountpoint)
}
