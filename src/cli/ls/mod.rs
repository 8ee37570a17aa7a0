//! `fzmfs ls`: lists the virtual tree, one entry per line.
//!
//! In the names themselves, control characters and bidirectional formatting are encoded as `%XX`. Other invisible
//! characters are escaped on a terminal; a pipe gets the exact names, which `cat` and `extract` accept.
#![forbid(unsafe_code)]

mod directory;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write;

use crate::archive::Archive;
use crate::cli::args;
use crate::cli::paths::TreePath;
use crate::cli::report::{self, Failure, Outcome};
use crate::text::escaped;
use crate::tree::{Attr, Ino, Kind};

/// So many files of which the size must be counted are measured last: to list an archive in one counts it on the way.
const LATER: usize = 16;

pub(super) fn run(args: &args::Ls, out: &mut dyn Write, to_terminal: bool) -> Outcome {
    args.reading.start()?;
    let refused = |e| Failure::of(&args.file, &e);
    if let Some(directory) = args.reading.unmounted(&args.file, &args.mirroring).map_err(refused)? {
        return directory::run(&directory, args, out, to_terminal);
    }
    let archive = args.reading.open_named(&args.file).map_err(refused)?;
    print(&archive, args, &args.path, "", out, to_terminal)
}

/// Prints `path` of an archive. Whole paths begin with `before`.
pub(super) fn print(
    archive: &Archive,
    args: &args::Ls,
    path: &OsStr,
    before: &str,
    out: &mut dyn Write,
    to_terminal: bool,
) -> Outcome {
    let refused = |e| Failure::of(&args.file, &e);
    let tree = archive.tree();
    let top = TreePath::at(tree, path).map_err(refused)?;
    // The tree is listed twice, so that nothing is printed if that fails, and so that sizes align: a list of all paths
    // would take much memory.
    let whole = args.recursive || top.kind != Kind::Dir;
    let mut sizes = PrintedSizes { archive, args, width: 1, failed: HashSet::new() };
    let mut later = Vec::new();
    for entry in top.sorted(tree, args.recursive) {
        let entry = entry.map_err(refused)?;
        if !args.long {
            continue;
        }
        match tree.cheap_attr(entry.ino) {
            Some(attr) => sizes.fit(attr.size),
            None if later.len() < LATER => later.push(entry),
            None => sizes.measure(&entry, shown(&entry, whole)),
        }
    }
    for entry in &later {
        sizes.measure(entry, shown(entry, whole));
    }
    let mut line = String::new();
    for entry in top.sorted(tree, args.recursive) {
        let entry = entry.map_err(refused)?;
        line.clear();
        let attr = if args.long { tree.cheap_attr(entry.ino) } else { None };
        if args.long {
            line.extend(mode(entry.kind, attr.and_then(|attr| attr.mode)));
            sizes.push(&entry, attr, &mut line);
        }
        let before = if whole { before } else { "" };
        line.extend([escape(before, to_terminal), escape(shown(&entry, whole), to_terminal)]);
        if args.long && entry.kind == Kind::Link {
            // One that leads out of the container cannot be read.
            let target = tree.link(entry.ino);
            line.extend([" -> ", &escape(target.as_deref().unwrap_or("?"), to_terminal)]);
        }
        line.push('\n');
        out.write_all(line.as_bytes()).map_err(|e| report::output(&e))?;
    }
    if sizes.failed.is_empty() { Ok(()) } else { Err(Failure::reported()) }
}

/// The type and the permissions of an entry, which may be `recorded`.
fn mode(kind: Kind, recorded: Option<u16>) -> impl Iterator<Item = char> {
    let (letter, usual) = match kind {
        Kind::File => ('-', 0o444),
        Kind::Dir => ('d', 0o555),
        Kind::Link => ('l', 0o777),
    };
    let mode = recorded.filter(|_| kind != Kind::Link).unwrap_or(usual);
    let bit = move |(place, letter): (u32, char)| if mode >> place & 1 == 1 { letter } else { '-' };
    std::iter::once(letter).chain((0..9).rev().zip("rwxrwxrwx".chars()).map(bit))
}

/// The sizes of entries as they are printed.
struct PrintedSizes<'a> {
    archive: &'a Archive,
    args: &'a args::Ls,
    /// Width of the longest.
    width: usize,
    /// The files with a size that cannot be determined.
    failed: HashSet<Ino>,
}

impl PrintedSizes<'_> {
    /// Makes room for `size`.
    fn fit(&mut self, size: u64) {
        self.width = self.width.max(size.checked_ilog10().map_or(1, |log| log as usize + 1));
    }

    /// Determines the size of `entry`, or reports why that fails.
    fn measure(&mut self, entry: &TreePath, name: &str) {
        match self.archive.tree().attr(entry.ino, &**self.archive.cache()) {
            Ok(attr) => self.fit(attr.size),
            Err(error) => {
                report::report(&Failure::of_entry(&self.args.file, name, &error));
                self.failed.insert(entry.ino);
            }
        }
    }

    /// Appends the size of `entry`, or a question mark, to `line`; `attr` if it is known without decoding.
    fn push(&self, entry: &TreePath, attr: Option<Attr>, line: &mut String) {
        let found = || self.archive.tree().attr(entry.ino, &**self.archive.cache()).ok();
        let attr = attr.or_else(|| if self.failed.contains(&entry.ino) { None } else { found() });
        // Nothing fails to be appended to a string.
        _ = match attr {
            Some(attr) => write!(line, " {:>1$} ", attr.size, self.width),
            None => write!(line, " {:>1$} ", "?", self.width),
        };
    }
}

/// The name to print: the whole path, or its last component.
fn shown(entry: &TreePath, whole: bool) -> &str {
    if whole { &entry.path } else { entry.path.rsplit('/').next().unwrap_or_default() }
}

pub(super) fn escape(name: &str, to_terminal: bool) -> Cow<'_, str> {
    if to_terminal { escaped(name) } else { Cow::Borrowed(name) }
}
