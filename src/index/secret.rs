//! The key under which the records of a user are authenticated: 32 random bytes in a file that only he can read, apart
//! from the index, which others may have written, copied or shared.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::record::Key;

/// The name of the file.
const NAME: &str = "index-key";
/// The rights of others.
const OTHERS: u32 = 0o077;
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
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    make(dir, &path)?;
    read(&path)
}

fn read(path: &Path) -> io::Result<Key> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & OTHERS == 0;
    let mut key = Key::default();
    if !about.is_file() || !is_own || about.len() != 32 {
        return Err(io::Error::other("index-key is not a file of 32 bytes that only this user can read"));
    }
    file.read_exact(&mut key)?;
    Ok(key)
}

/// Makes the file, complete or not at all. If another process was faster, its file stays.
fn make(dir: &Path, path: &Path) -> io::Result<()> {
    let mut key = Key::default();
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    for number in 0..NAMES {
        let part = dir.join(format!("{NAME}-{}-{number}", std::process::id()));
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part) {
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
