//! The arrays of a container, for programs that know arrays and not containers.
//!
//! The files of the tree show the same bytes; here an array has its own name and storage layout.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};

use super::about::Attributes;
use super::{Array, Content, File, Grid, Space};

/// The arrays of a container, by number.
pub trait Arrays: Send + Sync {
    /// The number of arrays, and of other entries counted with them.
    fn count(&self) -> u64;

    /// The entry with number `index`. Cheap; decodes nothing.
    ///
    /// # Errors
    /// Fails if that cannot be determined now, or if there is no such number.
    fn find(&self, index: u64) -> Result<Found>;

    /// The file with the elements of array `index` in C order; further bytes may follow.
    ///
    /// # Errors
    /// As [`Arrays::find`].
    fn file(&self, index: u64) -> Result<File>;

    /// The container's metadata of the group `name`, which is that of an array up to a `/`.
    ///
    /// # Errors
    /// As [`super::About::attributes`].
    fn group(&self, name: &[u8]) -> Result<Attributes> {
        let _ = name;
        Ok(Attributes::new())
    }
}

/// An entry of [`Arrays`].
#[derive(Debug, Clone)]
pub enum Found {
    /// An array.
    Array(NamedArray),
    /// An array that has no element type, or is broken: its name, and why.
    LeftOut(Vec<u8>, Cow<'static, str>),
    /// Something else.
    Nothing,
}

/// An array with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedArray {
    /// Its name in the container, in which `/` separates the names of groups; any bytes.
    pub name: Vec<u8>,
    /// Its element type and shape.
    pub array: Array,
    /// The name of its element type in the container, if that says more than the array does.
    pub type_name: Option<String>,
    /// How it is stored.
    pub tiles: Tiles,
    /// Bytes that it occupies in the container.
    pub stored: u64,
    /// The names of its dimensions, slowest first, if it has any.
    pub dimensions: Option<Vec<String>>,
}

impl NamedArray {
    /// The same, whose dimensions have the names of axes if it is in `space` and they have no names of their own.
    pub(super) fn within(mut self, space: Option<&Space>) -> Self {
        let rank = self.array.shape.len();
        let has_names = self.dimensions.as_ref().is_some_and(|names| *names != numbered_dimensions(rank));
        if let Some(space) = space.filter(|space| space.spacing.len() == rank && !has_names) {
            self.dimensions = Some(space.axes());
        }
        self
    }
}

/// How the elements of an array are stored: the parts that can be read without decoding their neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tiles {
    /// In C order, in pieces of this many bytes.
    Flat(u64),
    /// As [`super::Grid`] describes: elements of a chunk and of a block, per dimension.
    Grid {
        /// Elements of a chunk per dimension.
        chunk: Vec<u64>,
        /// Elements of a block per dimension.
        block: Vec<u64>,
    },
}

/// Bytes of a piece, if nothing else is known.
const PIECE: u64 = 1 << 20;

impl Default for Tiles {
    fn default() -> Self {
        Self::Flat(PIECE)
    }
}

impl Tiles {
    /// How `array` is stored, which is at the start of `content`. Decodes nothing.
    pub fn of(content: &Content, array: &Array) -> Self {
        if let Some(grid) = Self::grid(content, array) {
            return Self::Grid { chunk: grid.chunk.clone(), block: grid.block.clone() };
        }
        let Content::Blob(blob) = content else { return Self::default() };
        match blob.known_len().map(|_| blob.layout()) {
            Some(Ok(layout)) if !layout.is_empty() => Self::Flat(layout.range(0).end),
            _ => Self::default(),
        }
    }

    /// The grid in which `content` stores `array`, if it does.
    pub fn grid<'a>(content: &'a Content, array: &Array) -> Option<&'a Arc<Grid>> {
        match content {
            Content::Grid(grid) => {
                Some(grid).filter(|grid| grid.itemsize == array.itemsize && grid.shape == array.shape)
            }
            Content::Join(parts) => Self::grid(parts.first()?, array),
            _ => None,
        }
    }
}

/// Names of `rank` dimensions that have none: `dim_0`, `dim_1`, ...
pub fn numbered_dimensions(rank: usize) -> Vec<String> {
    (0..rank).map(|d| format!("dim_{d}")).collect()
}

/// Some arrays, each as the file that shows it.
pub struct ArrayList(Vec<ListedArray>);

/// A name, the names of the dimensions if there are any, and the file.
pub type ListedArray = (Vec<u8>, Option<Vec<String>>, File);

impl ArrayList {
    /// The one array in `data.raw`, if `file` is typed.
    pub fn data(file: File) -> Option<Arc<dyn Arrays>> {
        let names = numbered_dimensions(file.array.as_ref()?.shape.len());
        Some(Arc::new(Self(vec![(b"data".to_vec(), Some(names), file.principal())])))
    }

    /// A list of these.
    pub fn new(arrays: Vec<ListedArray>) -> Self {
        Self(arrays)
    }

    fn get(&self, index: u64) -> Result<&ListedArray> {
        self.0.get(to_usize(index, "array")?).ok_or_else(|| Error::new(Kind::NotFound, "array"))
    }
}

impl Arrays for ArrayList {
    fn count(&self) -> u64 {
        to_u64(self.0.len())
    }

    fn find(&self, index: u64) -> Result<Found> {
        let (name, dimensions, file) = self.get(index)?;
        Ok(Found::of(name.clone(), dimensions.clone(), file))
    }

    fn file(&self, index: u64) -> Result<File> {
        self.get(index).map(|(.., file)| file.clone())
    }
}

impl fmt::Debug for ArrayList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrayList({})", self.0.len())
    }
}

impl Found {
    /// The array in `file`.
    pub fn of(name: Vec<u8>, dimensions: Option<Vec<String>>, file: &File) -> Self {
        let said = |name| file.attrs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        match &file.array {
            Some(array) => {
                let tiles = Tiles::of(&file.content, array);
                let (array, stored) = (array.clone(), file.stored);
                let named = NamedArray { name, array, type_name: None, tiles, stored, dimensions };
                Self::Array(named.within(file.space.as_ref()))
            }
            None => Self::LeftOut(name, said("error").map_or("it has no element type".into(), Cow::Owned)),
        }
    }
}
