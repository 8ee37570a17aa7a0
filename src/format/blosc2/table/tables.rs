//! The tables among the leaves of a store.
//!
//! Limits: [`TABLES`] tables with keys of [`KEY`] bytes; others are shown as leaves.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::{Error, Kind, Result};
use crate::format::about::Attributes;
use crate::format::{Arrays, Check, Content, Entry, File, Node, Options};

use super::arrays::StoreArrays;
use super::leaves::{Leaves, TableLeaves};
use super::schema;
use super::store_table::{ColumnsDir, StoreTable};

/// Maximum number of tables in a store, and bytes of the key of one.
const TABLES: usize = 1000;
const KEY: usize = 256;
/// The leaves by which a table is known, and one with the attributes of a table.
const META: &[u8] = b"_meta";
const MARKS: &[u8] = b"_valid_rows";
const ATTRIBUTES: &str = "_vlmeta";

/// The tables of a store.
#[derive(Default)]
pub(in crate::format::blosc2) struct Tables(HashMap<Vec<u8>, Arc<StoreTable>>, Vec<Arc<StoreTable>>);

/// `key` below the group `group`.
fn below(group: &[u8], key: &[u8]) -> Vec<u8> {
    if group.is_empty() { key.to_vec() } else { [group, b"/", key].concat() }
}

/// The group that the leaf `key` is in, if its name is `name`.
fn group_of<'a>(key: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let group = key.strip_suffix(name)?;
    if group.is_empty() { Some(group) } else { group.strip_suffix(b"/") }
}

impl Tables {
    /// The tables among `keys`, which come with their numbers in `leaves`.
    ///
    /// # Errors
    /// Fails if a leaf cannot be read now.
    pub(in crate::format::blosc2) fn find(
        keys: &[(&[u8], u64)],
        leaves: &Arc<dyn Leaves>,
        options: &Options,
    ) -> Result<Self> {
        let marked: HashSet<_> = keys.iter().filter_map(|(key, _)| group_of(key, MARKS)).collect();
        let mut groups: HashMap<Vec<u8>, HashMap<Vec<u8>, u64>> = HashMap::new();
        let is_marked = |group: &&[u8]| group.len() <= KEY && marked.contains(group);
        let candidates =
            keys.iter().filter_map(|(key, number)| Some((group_of(key, META).filter(is_marked)?, *number)));
        for (group, number) in candidates.take(TABLES) {
            let is_schema = match leaves.open(number) {
                Err(e) if !e.is_lasting() => return Err(e),
                frame => frame.is_ok_and(|frame| schema::is_schema(&frame.frame)),
            };
            if is_schema {
                groups.insert(group.to_vec(), HashMap::new());
            }
        }
        if groups.is_empty() {
            return Ok(Self::default());
        }
        for &(key, number) in keys {
            if let Some(len) = table_of(key, |group| groups.contains_key(group))
                && let Some((group, rest)) = split(key, len)
                && let Some(table) = groups.get_mut(group)
            {
                table.insert(rest.to_vec(), number);
            }
        }
        let table = |(key, numbers): (Vec<u8>, HashMap<_, _>)| {
            let (all, numbers, options) = (Arc::clone(leaves), Arc::new(numbers), options.clone());
            Arc::new(StoreTable::new(key, TableLeaves { all, numbers, options }))
        };
        let mut all: Vec<_> = groups.into_iter().map(table).collect();
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(Self(all.iter().map(|table| (table.key.clone(), Arc::clone(table))).collect(), all))
    }

    /// Whether there are none.
    pub(in crate::format::blosc2) fn is_empty(&self) -> bool {
        self.1.is_empty()
    }

    fn split<'a>(&self, key: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if self.is_empty() {
            return None;
        }
        split(key, table_of(key, |group| self.0.contains_key(group))?)
    }

    /// Whether the leaf `key` is a part of a table.
    pub(in crate::format::blosc2) fn has(&self, key: &[u8]) -> bool {
        self.split(key).is_some()
    }

    /// The name to show the leaf `key` by: those of a table are in `stored/` there.
    pub(in crate::format::blosc2) fn shown<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self.split(key) {
            Some((group, rest)) => Cow::Owned(below(group, &[b"stored/", rest].concat())),
            None => Cow::Borrowed(key),
        }
    }

    /// The entries of all leaves, named after their keys, with those of the tables.
    ///
    /// # Errors
    /// The error of an entry; fails if a table cannot be read now.
    pub(in crate::format::blosc2) fn with_entries(
        &self,
        leaves: impl Iterator<Item = Result<Entry>>,
    ) -> Result<Vec<Entry>> {
        let shown = |entry: Entry| {
            let stem = self.shown(&entry.stem).into_owned();
            Entry { stem: Cow::Owned(stem), ..entry }
        };
        let mut entries = leaves.map(|entry| entry.map(shown)).collect::<Result<Vec<_>>>()?;
        for table in &self.1 {
            let named = |name: &[u8], suffix, node: Node| Entry {
                nested: true,
                ..Entry::named(below(&table.key, name), suffix, node)
            };
            // Neither opens the table: its rows may have to be counted.
            let make = {
                let table = Arc::clone(table);
                Arc::new(move || table.files()?.arrow())
            };
            let arrow = File::new(Content::Deferred { len: None, make });
            entries.push(named(b"table", ".arrow", arrow.into()));
            entries.push(named(b"columns", "", Node::Dir(Arc::new(ColumnsDir(Arc::clone(table))))));
        }
        Ok(entries)
    }

    /// The arrays of all leaves that are not part of a table, and those of the tables.
    ///
    /// # Errors
    /// Fails if a table cannot be read now.
    pub(in crate::format::blosc2) fn with_arrays(self: &Arc<Self>, leaves: Arc<dyn Arrays>) -> Result<Arc<dyn Arrays>> {
        if self.is_empty() {
            return Ok(leaves);
        }
        let mut ends = Vec::new();
        let mut sum = 0_u64;
        for table in &self.1 {
            sum = sum.saturating_add(table.arrays()?);
            ends.push(sum);
        }
        Ok(Arc::new(StoreArrays::new(leaves, Arc::clone(self), ends)))
    }

    /// Array `index` of table `table`, with its name.
    pub(super) fn array(&self, table: usize, index: u64) -> Result<Option<(Vec<u8>, File)>> {
        let table = self.1.get(table).ok_or_else(|| Error::new(Kind::NotFound, "table"))?;
        match table.files() {
            Err(e) if !e.is_lasting() => Err(e),
            Err(e) if index == 0 => Ok(Some((table.key.clone(), File::new(Content::bytes([])).attr("error", e)))),
            Err(_) => Ok(None),
            Ok(files) => files.array(index, &below(&table.key, b"")),
        }
    }

    /// The attributes of the table `key`, if it has some.
    pub(in crate::format::blosc2) fn attributes(&self, key: &[u8]) -> Option<Result<Attributes>> {
        let table = self.0.get(key)?;
        let frame = table.leaves.has(ATTRIBUTES).then(|| table.leaves.open(ATTRIBUTES))?;
        Some(frame.and_then(|frame| frame.data()?.attributes()))
    }

    /// Adds what `info.json` says of them, by key.
    pub(in crate::format::blosc2) fn add_info(&self, details: &mut Map<String, Value>) {
        let table = |table: &Arc<StoreTable>| {
            let key = format!("/{}", String::from_utf8_lossy(&table.key));
            let error = |e: Error| Value::Object(Map::from_iter([("error".to_owned(), e.to_string().into())]));
            (key, table.info().unwrap_or_else(error))
        };
        if !self.is_empty() {
            details.insert("tables".into(), Value::Object(self.1.iter().map(table).collect()));
        }
    }

    /// Checks of the tables; their leaves have their own.
    pub(in crate::format::blosc2) fn checks(&self) -> Vec<Check> {
        let check = |table: &Arc<StoreTable>| {
            let table = Arc::clone(table);
            let name = format!("table /{}", String::from_utf8_lossy(&table.key));
            Check::Run { name, bytes: 0, run: Box::new(move || table.check()) }
        };
        self.1.iter().map(check).collect()
    }
}

/// The length of the longest part of `key` before a `/` that `is_table`.
fn table_of(key: &[u8], is_table: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let near = key.get(..=KEY).unwrap_or(key);
    let ends = near.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([0]).find(|&end| key.get(..end).is_some_and(&is_table))
}

/// The first `len` bytes of `key`, and the rest after its `/`.
fn split(key: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let (group, rest) = key.split_at_checked(len)?;
    Some((group, rest.strip_prefix(b"/").unwrap_or(rest)))
}
