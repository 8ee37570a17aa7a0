//! `fzmfs ls`: lists the virtual tree, one entry per line.
//!
//! In the names themselves, control characters and bidirectional formatting are encoded as `%XX`. Other invisible
//! characters are escaped on a terminal; a pipe gets the exact names, which `cat` and `extract` accept.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::io::Write;

use super::args;
use super::paths::TreePath;
use super::report::{self, Failure, Outcome};
use crate::archive::Archive;
use crate::error::Result;
use crate::text::escaped;
use crate::tree::Kind;

pub(super) fn run(args: &args::Ls, out: &mut dyn Write, to_terminal: bool) -> Outcome {
    args.reading.start()?;
    let refused = |e| Failure::of(&args.file, &e);
    let archive = args.reading.open(&args.file).map_err(refused)?;
    let entries = entries(args, &archive).map_err(refused)?;
    if !args.long {
        let mut print = entries.iter().map(|(name, _)| writeln!(out, "{}", shown(name, to_terminal)));
        return print.try_for_each(|printed| printed).map_err(|e| report::output(&e));
    }
    let mut outcome = Ok(());
    let mut size = |name: &str, entry: &TreePath| match archive.tree().attr(entry.ino, &**archive.cache()) {
        Ok(attr) => Some(attr.size),
        Err(error) => {
            report::report(&Failure::of_entry(&args.file, name, &error));
            outcome = Err(Failure::reported());
            None
        }
    };
    let sizes: Vec<Option<u64>> = entries.iter().map(|(name, entry)| size(name, entry)).collect();
    let digits = |size: Option<u64>| size.map_or_else(|| "?".to_owned(), |size| size.to_string());
    let width = sizes.iter().map(|size| digits(*size).len()).max().unwrap_or(0);
    for ((name, entry), size) in entries.iter().zip(sizes) {
        let (mode, target) = match entry.kind {
            Kind::File => ("-r--r--r--", String::new()),
            Kind::Dir => ("dr-xr-xr-x", String::new()),
            Kind::Link => ("lrwxrwxrwx", format!(" -> {}", archive.tree().link(entry.ino).map_err(refused)?)),
        };
        writeln!(out, "{mode} {:>width$} {}{}", digits(size), shown(name, to_terminal), shown(&target, to_terminal))
            .map_err(|e| report::output(&e))?;
    }
    outcome
}

fn shown(name: &str, to_terminal: bool) -> Cow<'_, str> {
    if to_terminal { escaped(name) } else { Cow::Borrowed(name) }
}

/// The entries to list with the names to print, sorted by name.
fn entries(args: &args::Ls, archive: &Archive) -> Result<Vec<(String, TreePath)>> {
    let tree = archive.tree();
    let top = TreePath::at(tree, &args.path)?;
    let mut entries: Vec<(String, TreePath)> = match (top.kind, args.recursive) {
        (Kind::Dir, true) => {
            let named = |mut e: TreePath| (std::mem::take(&mut e.path), e);
            top.below(tree, &|_| false)?.into_iter().map(named).collect()
        }
        (Kind::Dir, false) => {
            let name = |e: &TreePath| e.path.rsplit('/').next().unwrap_or_default().to_owned();
            top.children(tree)?.into_iter().map(|e| (name(&e), e)).collect()
        }
        (Kind::File | Kind::Link, _) => vec![(top.path.clone(), top)],
    };
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries)
}
