//! Where a user's index and its secret are, unless he says otherwise.
//!
//! Reference: XDG Base Directory Specification.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::platform::KNOWS_PRIVATE;

/// The directory of the index; `None` without a home, and where no directory is known to be private.
pub fn index() -> Option<PathBuf> {
    place(env::var_os("XDG_CACHE_HOME"), ".cache").filter(|_| KNOWS_PRIVATE)
}

/// The directory of the secret; `None` without a home.
pub fn state() -> Option<PathBuf> {
    place(env::var_os("XDG_STATE_HOME"), ".local/state")
}

/// The directory of fzmfs in `given`, if that is an absolute path, else in `below` of the home.
fn place(given: Option<OsString>, below: &str) -> Option<PathBuf> {
    let given = given.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    Some(given.or_else(|| Some(home()?.join(below)))?.join("fzmfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_path_is_taken() {
        assert_eq!(place(Some("/x/y".into()), ".cache"), Some("/x/y/fzmfs".into()));
        let default = place(None, ".cache");
        assert_eq!(place(Some("x".into()), ".cache"), default);
        assert!(default.is_none_or(|path| path.ends_with(".cache/fzmfs")));
    }
}
