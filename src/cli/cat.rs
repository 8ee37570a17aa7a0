//! `fzmfs cat`: writes virtual files to standard output.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};

use super::args;
use super::report::{self, Failure, Outcome};
use crate::archive::{Archive, CopyError, Directory, NodeKind};
use crate::bytes::to_u64;
use crate::error::Error;
use crate::platform::{self, AsFd, os_error};
use crate::source::Passed;

/// Bytes of a pipe: as many as any user may have on Linux.
const PIPE: usize = 1 << 20;

pub(super) fn run(args: &args::Cat) -> Outcome {
    args.reading.start()?;
    let refused = |e| Failure::of(&args.file, &e);
    let directory = args.reading.unmounted(&args.file, &args.mirroring).map_err(refused)?;
    let archive = match directory {
        Some(_) => None,
        None => Some(args.reading.open_named(&args.file).map_err(refused)?),
    };
    // Bypasses the line buffering of `io::stdout`.
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(|e| report::output(&e))?;
    let mut out = File::from(out);
    platform::widen_pipe(&out, PIPE);
    let mut outcome = Ok(());
    for path in &args.paths {
        let written = match (&archive, &directory) {
            (Some(archive), _) => write(archive, path, &mut out),
            (None, Some(directory)) => write_below(directory, path, &mut out),
            (None, None) => Ok(()),
        };
        match written {
            Ok(()) => {}
            Err(CopyError::Write(error)) => return Err(report::output(&error)),
            Err(CopyError::Archive(error)) => {
                let error = archive.as_ref().map_or(error.clone(), |archive| archive.container().naming(&error));
                report::report(&Failure::of_entry(&args.file, &path.to_string_lossy(), &error));
                outcome = Err(Failure::reported());
            }
        }
    }
    outcome
}

fn write(archive: &Archive, path: &OsStr, out: &mut File) -> Result<(), CopyError> {
    archive.file(&path.to_string_lossy())?.copy_to(out).map(drop)
}

/// Writes a file of a directory of containers.
fn write_below(directory: &Directory, path: &OsStr, out: &mut File) -> Result<(), CopyError> {
    let place = directory.find(path)?;
    match &place.kind {
        NodeKind::Container(inner) => write(&directory.open_container(&place)?, inner.as_ref(), out),
        NodeKind::File => copy_plain(&directory.file(&place.file)?, out),
        NodeKind::Dir => Err(Error::io(os_error(libc::EISDIR), "directory").into()),
        NodeKind::Other => Err(Error::unsupported("not a regular file", "file").into()),
    }
}

/// Copies a file that is passed through.
///
/// # Errors
/// Which of the two files failed.
pub(super) fn copy_plain(from: &Passed, to: &mut File) -> Result<(), CopyError> {
    let (mut buffer, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let n = from.read_full(&mut buffer, at)?;
        if n == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..n).unwrap_or_default()).map_err(CopyError::Write)?;
        at += to_u64(n);
    }
}
