//! The key under which the records of a user are authenticated: 32 random bytes in a file that only he can read, apart
//! from the index, which others may have written, copied or shared.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use super::record::Key;
use crate::platform;

/// The name of the file.
const NAME: &str = "index-key";
/// Names to try for a new file: a killed process may have left some.
const NAMES: u32 = 64;

/// The secret in the directory `dir`; made if there is none.
///
/// # Errors
/// Fails if it cannot be read or made, or others can read it.
pub(super) fn load(dir: &Path) -> io::Result<Key> {
    let path = dir.join(NAME);
    match read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    platform::create_private(dir)?;
    make(dir, &path)?;
    read(&path)
}

fn read(path: &Path) -> io::Result<Key> {
    let mut file = platform::open_unfollowed(path)?;
    let about = file.metadata()?;
    let mut key = Key::default();
    if !about.is_file() || !platform::is_secret(&about) || about.len() != 32 {
        return Err(io::Error::other("index-key is not a file of 32 bytes that only this user can read"));
    }
    file.read_exact(&mut key)?;
    Ok(key)
}

/// Makes the file, complete or not at all. If another process was faster, its file stays.
fn make(dir: &Path, path: &Path) -> io::Result<()> {
    let mut key = Key::default();
    platform::random(&mut key)?;
    for number in 0..NAMES {
        let part = dir.join(format!("{NAME}-{}-{number}", std::process::id()));
        let mut file = match platform::create_secret(&part) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        let linked = file.write_all(&key).and_then(|()| fs::hard_link(&part, path));
        fs::remove_file(&part)?;
        return match linked {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        };
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
