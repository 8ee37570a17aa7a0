//! A container as files beside others: `x.raw`, `x.npy`, `x.nhdr` and `x.json` in the place of `x.fzm`.
//!
//! Of a container in a container, those of the innermost one. A container without one principal stream, as one that is
//! broken or that holds tensors, has none of them: it stays a directory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::format::{Arrays, Check, Container, Content, Entry, File, Info, Node, has_usual_extension};
use crate::source::{Folder, Source};
use crate::tree::{Attr, Ino, ROOT, Tree};

/// The suffixes of the files.
pub const SUFFIXES: [&str; 4] = [".raw", ".npy", ".nhdr", ".json"];

/// A file in a flattened tree.
#[derive(Debug, Clone, Copy)]
pub struct ShownFile {
    /// Its inode.
    pub ino: Ino,
    /// Its attributes, unless they require decoding.
    pub attr: Option<Attr>,
}

/// The files in a flattened tree, by suffix; `None` for a missing file.
pub type Shown = [Option<ShownFile>; SUFFIXES.len()];

/// The name of the container `name` without its extensions: `x` for `x.fzm.zst`.
pub(super) fn stem(name: &[u8]) -> &[u8] {
    let cut = |name: &[u8]| name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0);
    let mut rest = name;
    while let Some(dot) = cut(rest).filter(|_| rest.len() == name.len() || has_usual_extension(rest)) {
        rest = rest.get(..dot).unwrap_or_default();
    }
    rest
}

/// The container that shows as its files alone, called `stem`; `None` if it has none.
///
/// # Errors
/// As [`Container::entries`].
pub(super) fn flattened(container: &Arc<dyn Container>, stem: &[u8]) -> Result<Option<Arc<dyn Container>>> {
    let (mut shown, mut entries) = (container.clone(), container.entries()?);
    while let Some(inner) = entries.iter().find_map(|entry| match &entry.node {
        Node::Container(inner) => Some(inner.clone()),
        _ => None,
    }) {
        shown = inner.open()?;
        entries = shown.entries()?;
    }
    let data = entries.into_iter().find_map(|entry| match entry.node {
        Node::File(file) if file.is_principal && entry.suffix == ".raw" => Some(file),
        _ => None,
    });
    let made =
        |data| Arc::new(Flat { outer: container.clone(), shown, data, stem: stem.to_vec() }) as Arc<dyn Container>;
    Ok(data.map(made))
}

/// The files that the root of `tree` shows.
///
/// # Errors
/// As [`Tree::entries`].
pub fn shown(tree: &Tree) -> Result<Shown> {
    let mut shown = Shown::default();
    for entry in tree.entries(ROOT) {
        let entry = entry?;
        if let Some((_, file)) = SUFFIXES.iter().zip(&mut shown).find(|(suffix, _)| entry.name.ends_with(**suffix)) {
            *file = Some(ShownFile { ino: entry.ino, attr: tree.cheap_attr(entry.ino) });
        }
    }
    Ok(shown)
}

/// The files of a container, under another name.
struct Flat {
    outer: Arc<dyn Container>,
    shown: Arc<dyn Container>,
    data: Box<File>,
    stem: Vec<u8>,
}

impl Container for Flat {
    fn info(&self) -> Info {
        self.shown.info()
    }

    fn is_described(&self) -> bool {
        false
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let info = self.info();
        let json = File::new(Content::json(&info.to_json())).attr("format", info.format);
        Ok(vec![
            Entry::named(self.stem.clone(), ".json", json),
            Entry::named(self.stem.clone(), ".raw", Node::File(self.data.clone())),
        ])
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(None)
    }

    fn checks(&self) -> Vec<Check> {
        self.outer.checks()
    }

    fn unverifiable(&self) -> Vec<String> {
        self.outer.unverifiable()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.outer.sources()
    }

    fn folder(&self) -> Option<Arc<Folder>> {
        self.outer.folder()
    }

    fn unchanged(&self) -> Result<()> {
        self.outer.unchanged()
    }
}
