//! `fzmfs cat`: writes virtual files to standard output.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::args;
use super::report::{self, Failure, Outcome};
use crate::archive::{Archive, CopyError};

pub(super) fn run(args: &args::Cat) -> Outcome {
    let archive = args.reading.start_and_open(&args.file)?;
    // Bypasses the line buffering of `io::stdout`.
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(|e| report::output(&e))?;
    let mut out = File::from(out);
    let mut outcome = Ok(());
    for path in &args.paths {
        match write(&archive, path, &mut out) {
            Ok(()) => {}
            Err(CopyError::Write(error)) => return Err(report::output(&error)),
            Err(CopyError::Archive(error)) => {
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
