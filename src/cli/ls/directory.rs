//! `fzmfs ls` of a directory of containers.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::Path;

use super::{escape, print};
use crate::archive::{Archive, Directory, Node, NodeKind, Unopened};
use crate::cli::args;
use crate::cli::report::{self, Failure, Outcome};
use crate::error::Result;
use crate::platform::{FileType, OsStrExt, slashed};

/// Lists the requested path.
///
/// # Errors
/// Fails if it does not exist or cannot be listed, or if standard output cannot be written to.
pub(super) fn run(directory: &Directory, args: &args::Ls, out: &mut dyn Write, to_terminal: bool) -> Outcome {
    let refused = |e| Failure::of(&args.file, &e);
    let top = directory.find(&args.path).map_err(refused)?;
    let mut listing = DirListing { directory, args, out, to_terminal, failed: false };
    match &top.kind {
        NodeKind::Container(inner) => listing.container(&top, inner, directory.open_container(&top))?,
        NodeKind::File | NodeKind::Other => listing.line(&top, true)?,
        NodeKind::Dir if args.recursive => directory.walk_finding(&top.file, |place| match place {
            Ok((place, found)) => listing.line_and_content(&place, found),
            Err(e) => {
                listing.report(&refused(e));
                Ok(())
            }
        })?,
        NodeKind::Dir => {
            for place in directory.entries(&top.file).map_err(refused)? {
                listing.line(&place, false)?;
            }
        }
    }
    if listing.failed { Err(Failure::reported()) } else { Ok(()) }
}

struct DirListing<'a> {
    directory: &'a Directory,
    args: &'a args::Ls,
    out: &'a mut dyn Write,
    to_terminal: bool,
    failed: bool,
}

impl DirListing<'_> {
    fn report(&mut self, failure: &Failure) {
        report::report(failure);
        self.failed = true;
    }

    /// Prints an entry, and its content if it is a container.
    fn line_and_content(&mut self, place: &Node, found: Option<Result<Unopened>>) -> Outcome {
        self.line(place, true)?;
        if let (NodeKind::Container(inner), Some(found)) = (&place.kind, found) {
            // A broken container is reported, and the others are listed.
            if let Err(failure) = self.container(place, inner, found.and_then(Unopened::open)) {
                self.report(&failure);
            }
        }
        Ok(())
    }

    fn container(&mut self, place: &Node, inner: &str, archive: Result<Archive>) -> Outcome {
        let archive = archive.map_err(|e| Failure::of(&self.args.file.join(&place.file), &e))?;
        // Whole paths are below the directory.
        let before = format!("{}/", slashed(&place.shown).display());
        print(&archive, self.args, inner.as_ref(), &before, self.out, self.to_terminal)
    }

    fn line(&mut self, place: &Node, whole: bool) -> Outcome {
        let refused = |e: io::Error| report::output(&e);
        if self.args.long {
            let (kind, size) = match (&place.kind, place.seen.kind) {
                (NodeKind::Dir | NodeKind::Container(_), _) => ('d', 0),
                (NodeKind::File, _) => ('-', place.seen.size),
                (NodeKind::Other, FileType::Symlink) => ('l', place.seen.size),
                (NodeKind::Other, FileType::Fifo) => ('p', 0),
                (NodeKind::Other, FileType::Socket) => ('s', 0),
                (NodeKind::Other, FileType::BlockDevice) => ('b', 0),
                (NodeKind::Other, _) => ('c', 0),
            };
            let rights = if kind == 'd' { "r-xr-xr-x" } else { "r--r--r--" };
            write!(self.out, "{kind}{rights} {size:>12} ").map_err(refused)?;
        }
        let shown = if whole { place.shown.as_path() } else { Path::new(place.shown.file_name().unwrap_or_default()) };
        let shown = slashed(shown);
        let shown = shown.as_os_str();
        if self.to_terminal {
            write!(self.out, "{}", escape(&shown.to_string_lossy(), true)).map_err(refused)?;
        } else {
            self.out.write_all(shown.as_bytes()).map_err(refused)?;
        }
        if self.args.long && place.seen.kind == FileType::Symlink {
            let to = self.directory.link(&place.file).unwrap_or_default();
            write!(self.out, " -> {}", escape(&String::from_utf8_lossy(&to), self.to_terminal)).map_err(refused)?;
        }
        writeln!(self.out).map_err(refused)
    }
}
