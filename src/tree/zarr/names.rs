//! The names of arrays and groups: safe, allowed in Zarr, and each given to one of them.
//!
//! The first array with a name keeps it; further ones get `~2`, `~3`, ... at its end, and so does a group whose name an
//! array has. Only these names are kept; others follow from the name in the container.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::NamedArray;
use crate::limits::Charge;

use super::super::names::safe;
use super::{Zarr, dimensions};

/// Maximum number of groups that contain an array, one in the other; further slashes of its name are escaped.
const DEPTH: usize = 64;
/// Bytes for an array or a group while names are given, and for an exception beside its text.
const PER_NAME: u64 = 64;

/// The exceptions from [`path_of`] and from the arrays' own names of dimensions, and the groups.
pub(super) struct Names {
    renamed: HashMap<u64, Box<str>>,
    /// The first array in each group, and the number of path components of the group.
    groups: Vec<(u64, u32)>,
    /// Arrays whose dimensions are named by their sizes although they have names.
    sized: HashSet<u64>,
    _charges: Vec<Charge>,
}

impl Names {
    /// The path of array `index`.
    pub(super) fn path(&self, index: u64, named: &NamedArray) -> String {
        self.renamed.get(&index).map_or_else(|| path_of(&named.name), |path| path.to_string())
    }

    /// The number of groups below the root.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The path of group `number`; the groups that contain it have smaller numbers.
    ///
    /// # Errors
    /// Fails if its first array cannot be described now.
    pub(super) fn group(&self, zarr: &Zarr, number: u64) -> Result<String> {
        let none = || Error::new(Kind::NotFound, "group");
        let &(index, components) = self.groups.get(to_usize(number, "group")?).ok_or_else(none)?;
        let path = self.path(index, &zarr.array(index)?.0);
        let end = path.match_indices('/').nth((components - 1) as usize).map(|(at, _)| at);
        Ok(path.get(..end.ok_or_else(none)?).unwrap_or_default().to_owned())
    }

    /// The names of the dimensions of array `index`.
    pub(super) fn dimensions(&self, index: u64, named: &NamedArray) -> Vec<String> {
        let own = named
            .dimensions
            .as_ref()
            .filter(|names| dimensions::are_usable(names, named.array.shape.len()) && !self.sized.contains(&index));
        own.cloned().unwrap_or_else(|| dimensions::by_size(&named.array.shape))
    }
}

/// The path of an array called `name`, unless another has it.
fn path_of(name: &[u8]) -> String {
    let components: Vec<&[u8]> = name.splitn(DEPTH, |&b| b == b'/').collect();
    components.into_iter().map(component).collect::<Vec<_>>().join("/")
}

/// A path component: besides what no file system has, Zarr has no names of dots alone, reserves those that start with
/// two underscores, and calls its documents `zarr.json`.
fn component(name: &[u8]) -> String {
    let name = safe(name).into_owned();
    match name.strip_prefix("__") {
        Some(rest) => format!("%5F_{rest}"),
        None if name.bytes().all(|b| b == b'.') => name.replace('.', "%2E"),
        None if name == "zarr.json" => "zarr%2Ejson".to_owned(),
        None => name,
    }
}

/// Who has a path.
#[derive(Clone, Copy)]
struct Taken {
    is_group: bool,
    /// The next number to try for a name that collides with this one.
    next: u32,
    /// The number of the group that would have this name.
    group: u32,
}

/// Gives names to arrays.
pub(super) struct NamesBuilder {
    names: Names,
    charges: Vec<Charge>,
    account: Account,
    keys: [RandomState; 2],
    taken: HashMap<[u64; 2], Taken>,
    /// The size of each dimension by the hash of its group and its name.
    sizes: HashMap<[u64; 2], u64>,
    _charge: Charge,
}

impl NamesBuilder {
    /// For at most `count` arrays.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn new(account: &Account, count: u64) -> Result<Self> {
        let names = Names { renamed: HashMap::new(), groups: Vec::new(), sized: HashSet::new(), _charges: Vec::new() };
        Ok(Self {
            names,
            charges: Vec::new(),
            account: account.clone(),
            keys: Default::default(),
            taken: HashMap::new(),
            sizes: HashMap::new(),
            _charge: account.charge(count.saturating_mul(PER_NAME), "names of data.zarr")?,
        })
    }

    fn hash(&self, text: &str) -> [u64; 2] {
        self.keys.each_ref().map(|key| key.hash_one(text))
    }

    /// Gives array `index` its name.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn add(&mut self, index: u64, named: &NamedArray) -> Result<()> {
        let wanted = path_of(&named.name);
        let mut path = String::with_capacity(wanted.len());
        let mut components = wanted.split('/').peekable();
        let mut depth = 0;
        while let Some(component) = components.next() {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(component);
            depth += 1;
            let is_last = components.peek().is_none();
            path = self.take(path, !is_last, || (index, depth))?;
        }
        if path != wanted {
            self.charge(to_u64(path.len()))?;
            self.names.renamed.insert(index, path.clone().into());
        }
        self.note_sizes(index, path.rsplit_once('/').map_or("", |(group, _)| group), named)
    }

    /// Takes `path`, or the next one that is free, for an array, or for a group unless there is one.
    fn take(&mut self, path: String, is_group: bool, group: impl Fn() -> (u64, u32)) -> Result<String> {
        let key = self.hash(&path);
        let Some(&there) = self.taken.get(&key) else {
            self.insert(key, is_group, group)?;
            return Ok(path);
        };
        if is_group && there.is_group {
            return Ok(path);
        }
        if is_group && there.group > 0 {
            return Ok(format!("{path}~{}", there.group));
        }
        let mut next = there.next;
        let (other, name) = loop {
            let name = format!("{path}~{next}");
            let other = self.hash(&name);
            if !self.taken.contains_key(&other) {
                break (other, name);
            }
            next += 1;
        };
        let number = if is_group { next } else { there.group };
        self.taken.insert(key, Taken { next: next + 1, group: number, ..there });
        self.insert(other, is_group, group)?;
        Ok(name)
    }

    fn insert(&mut self, key: [u64; 2], is_group: bool, group: impl Fn() -> (u64, u32)) -> Result<()> {
        if is_group {
            self.charge(PER_NAME)?;
            self.names.groups.push(group());
        }
        self.taken.insert(key, Taken { is_group, next: 2, group: 0 });
        Ok(())
    }

    /// Names the dimensions of array `index` by their sizes, if one of their names has another size in its group.
    fn note_sizes(&mut self, index: u64, group: &str, named: &NamedArray) -> Result<()> {
        let Some(names) = &named.dimensions else { return Ok(()) };
        let keys: Vec<_> = names.iter().map(|name| self.hash(&format!("{group}/{name}"))).collect();
        let shape = &named.array.shape;
        if keys.iter().zip(shape).any(|(key, size)| self.sizes.get(key).is_some_and(|there| there != size)) {
            self.names.sized.insert(index);
            return self.charge(0);
        }
        self.charge(PER_NAME.saturating_mul(to_u64(keys.len())))?;
        self.sizes.extend(keys.into_iter().zip(shape.iter().copied()));
        Ok(())
    }

    fn charge(&mut self, bytes: u64) -> Result<()> {
        let charge = self.account.charge(bytes.saturating_add(PER_NAME), "names of data.zarr")?;
        self.charges.push(charge);
        Ok(())
    }

    /// The names.
    pub(super) fn finish(self) -> Names {
        Names { _charges: self.charges, ..self.names }
    }
}
