//! A directory of containers as a command sees it: the tree that a mount of it would show.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::args::{DecodeArgs, MirrorArgs};
use crate::account::Account;
use crate::archive::{Archive, Options};
use crate::error::{Error, Kind, Result};
use crate::format;
use crate::mirror::{Containers, FAR, Found, Rules, Target, is_candidate, open_directory};
use crate::parallel;
use crate::source::{Passed, Seen, Top};

/// A directory of containers.
#[derive(Debug)]
pub(super) struct Mirrored {
    top: Arc<Top>,
    rules: Rules,
    /// State that its containers share in a mount.
    #[cfg(feature = "fuse")]
    shared: format::Options,
}

/// The target of a path in the tree.
#[derive(Debug)]
pub(super) struct Place {
    /// The file or directory, below the directory.
    pub(super) file: PathBuf,
    /// Its name in the tree, below the directory.
    pub(super) shown: PathBuf,
    pub(super) what: What,
    pub(super) seen: Seen,
}

impl Place {
    /// Whether it is a container, or in one.
    pub(super) fn is_container(&self) -> bool {
        matches!(self.what, What::Container(_))
    }
}

/// A container that was found, and the options to open it with.
#[derive(Debug)]
pub(super) struct Unopened {
    containers: Containers,
    found: Found,
    options: Options,
}

impl Unopened {
    /// Opens it.
    ///
    /// # Errors
    /// As [`Mirrored::open`].
    pub(super) fn open(self) -> Result<Archive> {
        Archive::open_below(&self.containers, self.found, &self.options)
    }
}

/// The kind of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A directory.
    Dir,
    /// A file that is passed through.
    File,
    /// A link, a device, or similar.
    Other,
    /// A container, and a path in its tree; empty for its root.
    Container(String),
}

impl Mirrored {
    #[cfg_attr(
        not(feature = "fuse"),
        expect(unused_variables, clippy::needless_pass_by_value, reason = "commands open containers one by one")
    )]
    fn new(top: Arc<Top>, mirroring: &MirrorArgs, shared: format::Options) -> Self {
        Self {
            top,
            rules: mirroring.rules(),
            #[cfg(feature = "fuse")]
            shared,
        }
    }

    /// The directory at `file`, unless that is a file or a container that is a directory.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn of(file: &Path, reading: &DecodeArgs, mirroring: &MirrorArgs) -> Result<Option<Self>> {
        if reading.format.is_some() {
            return Ok(None);
        }
        let options = reading.options();
        let shared = Archive::shared_options(&options, reading.gpu());
        let top = open_directory(file, &options.remote, &shared.account)?;
        Ok(top.map(|top| Self::new(top, mirroring, shared)))
    }

    /// As [`Mirrored::of`], for a command other than `mount`; warns of options that have no effect on it.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a layout that only mounts have.
    pub(super) fn unmounted(file: &Path, reading: &DecodeArgs, mirroring: &MirrorArgs) -> Result<Option<Self>> {
        let found = Self::of(file, reading, mirroring)?;
        if found.as_ref().is_some_and(|found| found.rules.is_flat()) {
            return Err(Error::new(Kind::Usage("only a mount has the layouts flat and plain".into()), "layout"));
        }
        match found {
            None => mirroring.report_unused(file),
            Some(_) => reading.report_unused_remote(file),
        }
        Ok(found)
    }

    /// Its containers, for a mount, and the options they share.
    #[cfg(feature = "fuse")]
    pub(super) fn containers(self) -> (Containers, format::Options) {
        (Containers::new(self.top, self.rules, self.shared.clone()), self.shared)
    }

    /// Resolves `path`. Links are not followed.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; from open(2) and stat(2).
    pub(super) fn find(&self, path: &OsStr) -> Result<Place> {
        let (mut file, mut inner) = (PathBuf::new(), None::<PathBuf>);
        let mut what = What::Dir;
        let mut seen = self.top.below(&file)?.stat_itself()?;
        let mut shown = PathBuf::new();
        for component in Path::new(path).components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::CurDir | Component::RootDir => continue,
                Component::ParentDir | Component::Prefix(_) => return Err(missing(path)),
            };
            if let Some(inner) = &mut inner {
                inner.push(name);
                continue;
            }
            let below = self.top.below(&file)?;
            let is_there = |name: &OsStr| below.stat(name).is_ok_and(|seen| is_candidate(&below, name, seen.kind));
            let exists = |name: &OsStr| below.stat(name).is_ok();
            let (real, is_tree) = match self.rules.target(name.as_bytes(), is_there, exists) {
                Target::Itself => (name, false),
                Target::Tree(real) => (OsStr::from_bytes(real), true),
            };
            seen = below.stat(real).map_err(|e| if e.errno() == libc::ENOENT { missing(path) } else { e })?;
            file.push(real);
            shown.push(name);
            match seen.kind {
                _ if is_tree => inner = Some(PathBuf::new()),
                FileType::Directory => what = What::Dir,
                FileType::RegularFile => what = What::File,
                _ => what = What::Other,
            }
        }
        if let Some(inner) = inner {
            what = What::Container(inner.to_string_lossy().into_owned());
        }
        Ok(Place { file, shown, what, seen })
    }

    /// The entries of the directory `dir`, sorted by name, as the tree shows them.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn entries(&self, dir: &Path) -> Result<Vec<Place>> {
        let below = self.top.below(dir)?;
        let mut names = Vec::new();
        below.names(|name, _| names.push(name.to_vec()))?;
        let mut places = Vec::new();
        for name in names {
            let name = OsStr::from_bytes(&name);
            // Removed meanwhile.
            let Ok(seen) = below.stat(name) else { continue };
            let is_tree = self.rules.is_container(name.as_bytes()) && is_candidate(&below, name, seen.kind);
            let (file, container) = (dir.join(name), What::Container(String::new()));
            let what = match seen.kind {
                _ if is_tree && !self.rules.shows_file() => container.clone(),
                FileType::Directory => What::Dir,
                FileType::RegularFile => What::File,
                _ => What::Other,
            };
            if is_tree && self.rules.shows_file() {
                let tree = self.rules.tree_name(name.as_bytes(), |name| below.stat(name).is_ok());
                let shown = tree.map(|tree| dir.join(OsStr::from_bytes(&tree)));
                let at = |shown| Place { file: file.clone(), shown, what: container, seen: seen.clone() };
                places.extend(shown.map(at));
            }
            places.push(Place { shown: file.clone(), file, what, seen });
        }
        places.sort_unstable_by(|a, b| a.shown.as_os_str().cmp(b.shown.as_os_str()));
        Ok(places)
    }

    /// Everything below `dir`, each directory before its content, without the content of containers.
    ///
    /// An error is that of a directory that cannot be read; the walk goes on with the others.
    pub(super) fn walk<'a>(&'a self, dir: &Path) -> impl Iterator<Item = Result<Place>> + 'a {
        let mut failed = None;
        let mut open = match self.entries(dir) {
            Ok(entries) => vec![entries.into_iter()],
            Err(e) => {
                failed = Some(e);
                Vec::new()
            }
        };
        std::iter::from_fn(move || {
            loop {
                if let Some(error) = failed.take() {
                    return Some(Err(error));
                }
                let Some(place) = open.last_mut()?.next() else {
                    open.pop();
                    continue;
                };
                if place.what == What::Dir {
                    match self.entries(&place.file) {
                        Ok(entries) => open.push(entries.into_iter()),
                        Err(e) => failed = Some(e),
                    }
                }
                return Some(Ok(place));
            }
        })
    }

    /// Opens a container.
    ///
    /// # Errors
    /// As [`Archive::open`], but a broken container has entries that say so.
    pub(super) fn open(&self, place: &Place, reading: &DecodeArgs) -> Result<Archive> {
        self.find_container(place, reading, reading.options().account())?.open()
    }

    /// Finds a container, which may wait for a server; `account` may be shared with others.
    ///
    /// # Errors
    /// As [`Mirrored::open`].
    pub(super) fn find_container(&self, place: &Place, reading: &DecodeArgs, account: Account) -> Result<Unopened> {
        let options = reading.options();
        let context = Archive::sequential_options(&options, reading.gpu(), account);
        let containers = Containers::new(self.top.clone(), self.rules.clone(), context);
        let found = containers.find(&place.file, Some(&place.seen))?;
        Ok(Unopened { containers, found, options })
    }

    /// Passes everything below `dir` to `each`, as [`Mirrored::walk`] does, each container found: on a server, several
    /// ahead.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(super) fn walk_finding<E>(
        &self,
        dir: &Path,
        reading: &DecodeArgs,
        mut each: impl FnMut(Result<(Place, Option<Result<Unopened>>)>) -> Result<(), E>,
    ) -> Result<(), E> {
        let ahead = if self.is_far() { FAR } else { 0 };
        let find = |place: Result<Place>| {
            place.map(|place| {
                let find = || self.find_container(&place, reading, reading.options().account());
                let found = place.is_container().then(find);
                (place, found)
            })
        };
        parallel::in_order(ahead, self.walk(dir), find, &mut each)
    }

    /// Whether it is on a server.
    pub(super) fn is_far(&self) -> bool {
        self.top.prefix().is_some()
    }

    /// Opens a file that is passed through.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn file(&self, file: &Path) -> Result<Passed> {
        self.top.file(file)
    }

    /// The target of a link.
    ///
    /// # Errors
    /// From readlink(2).
    pub(super) fn link(&self, file: &Path) -> Result<Vec<u8>> {
        let (below, name) = self.top.around(file)?;
        Ok(below.link(name)?.into_bytes())
    }
}

fn missing(path: &OsStr) -> Error {
    Error::new(Kind::NotFound, format!("{}: no such file or directory", path.to_string_lossy()))
}
