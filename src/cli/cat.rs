//! `fzmfs cat`: virtual files to standard output.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use super::args;
use super::open::Opened;
use super::report::{Failure, Outcome, explain};
use super::stream::{Broken, stream};
use crate::error::{Kind, Result};

pub(super) fn run(args: &args::Cat) -> Outcome {
    args.reading.start()?;
    let opened = Opened::open(&args.file, &args.reading).map_err(|e| Failure::of(&args.file, &e))?;
    // The descriptor itself: what the standard library puts before it looks for line ends.
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(|e| Failure::output(&e))?;
    let mut out = File::from(out);
    let mut outcome = Ok(());
    for path in &args.paths {
        match write(&opened, path, &mut out) {
            Ok(()) => {}
            Err(Broken::Sink(error)) => return Err(Failure::output(&error)),
            Err(Broken::Container(error)) => {
                let line = match error.kind() {
                    // It names the path, and what there is instead.
                    Kind::NotFound => format!("{}: {error}", args.file.display()),
                    _ => format!("{}: {}: {}", args.file.display(), path.display(), explain(&error)),
                };
                Failure::new(line).report();
                outcome = Err(Failure::reported());
            }
        }
    }
    outcome
}

fn write(opened: &Opened, path: &OsStr, out: &mut File) -> Result<(), Broken> {
    let view = || -> Result<_> {
        let ino = opened.tree.resolve(&path.to_string_lossy())?;
        opened.tree.file(ino)?.view(&*opened.cache)
    };
    let view = view().map_err(Broken::Container)?;
    stream(&view, &opened.cache, &mut |bytes| out.write_all(bytes))?;
    opened.holds().map_err(Broken::Container)
}
