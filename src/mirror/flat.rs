//! A container as files among others: `x.raw`, `x.npy`, `x.nhdr` and `x.json` in the place of `x.fzm`; or with the
//! layout `plain`, `x.parquet` alone in the place of `x.parquet.zst` (`alone`).
//!
//! For nested containers, the files of the innermost one. A container without one principal stream, such as a broken
//! one or one of tensors, has no such files: it stays a directory.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::Arc;

use super::Layout;
use super::alone::alone;
use super::reshaped::Reshaped;
use crate::error::Result;
use crate::format::{Container, Content, Entry, File, Info, Node, compressed_name, extension_at, has_usual_extension};
use crate::tree::{Attr, Ino, ROOT, Tree, is_safe};

/// The suffixes of the files.
const SUFFIXES: [&str; 4] = [".raw", ".npy", ".nhdr", ".json"];

impl Layout {
    /// The suffixes of the files of a container, which is called [`stem`](Layout::stem).
    pub fn suffixes(self) -> &'static [&'static str] {
        if self == Self::Plain { &[""] } else { &SUFFIXES }
    }

    /// The name of the container `name` without all of its extensions: `x` for `x.fzm.zst`; or with the layout `plain`,
    /// the name of what was compressed: `x.fzm`.
    pub(super) fn stem(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::Plain { compressed_name(name) } else { Cow::Borrowed(stem(name)) }
    }
}

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
fn stem(name: &[u8]) -> &[u8] {
    let mut rest = name;
    while let Some(dot) = extension_at(rest).filter(|_| rest.len() == name.len() || has_usual_extension(rest)) {
        rest = rest.get(..dot).unwrap_or_default();
    }
    rest
}

/// The container that shows as its files alone, called `stem`; `None` if it has none.
///
/// # Errors
/// As [`Container::entries`].
pub(super) fn flattened(
    container: &Arc<dyn Container>,
    stem: &[u8],
    layout: Layout,
) -> Result<Option<Arc<dyn Container>>> {
    if layout == Layout::Plain {
        return alone(container, stem);
    }
    // An archive has no array, and may take long to open.
    if container.lists_by_decoding() {
        return Ok(None);
    }
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
    Ok(data.map(|data| {
        let entries = files(&shown.info(), data, stem);
        Arc::new(Reshaped { outer: container.clone(), described: shown, entries, archive: None }) as Arc<dyn Container>
    }))
}

/// The files of a container with the principal stream `data`, called `stem`.
fn files(info: &Info, data: Box<File>, stem: &[u8]) -> Vec<Entry> {
    let json = File::new(Content::json(&info.to_json())).attr("format", info.format);
    // Headers would name the file as it is called in a tree, and here it has the name of the container.
    let data = Box::new(File { is_principal: data.is_principal && is_safe(stem), ..*data });
    vec![Entry::named(stem.to_vec(), ".json", json), Entry::named(stem.to_vec(), ".raw", Node::File(data))]
}

/// The files that the root of `tree` shows.
///
/// # Errors
/// As [`Tree::entries`].
pub fn shown(tree: &Tree, layout: Layout) -> Result<Shown> {
    let mut shown = Shown::default();
    for entry in tree.entries(ROOT) {
        let entry = entry?;
        if let Some((_, file)) =
            layout.suffixes().iter().zip(&mut shown).find(|(suffix, _)| entry.name.ends_with(**suffix))
        {
            *file = Some(ShownFile { ino: entry.ino, attr: tree.cheap_attr(entry.ino) });
        }
    }
    Ok(shown)
}
