//! The names of arrays and groups: safe, allowed in Zarr, and each given to one of them.
//!
//! The first array with a name keeps it; further ones get the suffix `~2`, `~3`, ..., and so does a group with the name
//! of an array. Only these names are kept; others follow from the name in the container.
//!
//! Arrays called `a`, `a/b` and `a`, in this order, get the paths `a`, `a~2/b` and `a~3`: the group of the second has
//! the name of an array.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::NamedArray;
use crate::limits::{Charge, Limits};

use super::super::names::safe;
use super::{Zarr, dimensions};

/// Maximum number of nested groups around an array; further slashes of its name are escaped.
const DEPTH: usize = 32;
/// Bytes for an array or a group while names are given, and for an exception beside its text.
const PER_NAME: u64 = 64;
/// Bytes for an array or a group that are kept.
const PER_MEMBER: u64 = 8;
/// Name of this memory in error messages.
const WHAT: &str = "names of data.zarr";

/// The groups, and the names that differ from [`path_of`] and from the arrays' own names of dimensions.
pub(super) struct ZarrNames {
    renamed: HashMap<u64, Box<str>>,
    /// The first array in each group, and the number of path components of the group.
    groups: Vec<(u64, u32)>,
    /// The number of each array and, after them, of each group, with that of the group that contains it; 0: the root.
    members: Vec<(u32, u32)>,
    /// Arrays with dimensions named by their sizes despite having names.
    sized: HashSet<u64>,
    _charges: Vec<Charge>,
}

impl ZarrNames {
    /// The path of array `index`.
    pub(super) fn path(&self, index: u64, named: &NamedArray) -> String {
        self.renamed.get(&index).map_or_else(|| path_of(&named.name), ToString::to_string)
    }

    /// The number of groups below the root.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The members by number (groups follow arrays), group by group: zarr-python takes documents for the content of a
    /// group only as long as they are consecutive.
    pub(super) fn members(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|&(_, number)| number.into())
    }

    /// The path of group `number`; the groups that contain it have smaller numbers.
    ///
    /// # Errors
    /// Fails if its first array cannot be described now.
    pub(super) fn group(&self, zarr: &Zarr, number: u64) -> Result<String> {
        let (index, components) = self.first_in(number)?;
        let path = self.path(index, &zarr.array(index)?.0);
        Ok(path.split('/').take(components).collect::<Vec<_>>().join("/"))
    }

    /// The name of group `number` in the container.
    ///
    /// # Errors
    /// As [`ZarrNames::group`].
    pub(super) fn own_group(&self, zarr: &Zarr, number: u64) -> Result<Vec<u8>> {
        let (index, components) = self.first_in(number)?;
        let (named, _) = zarr.array(index)?;
        Ok(named.name.split(|&byte| byte == b'/').take(components).collect::<Vec<_>>().join(&b'/'))
    }

    /// The first array in group `number`, and the number of components of the group's path.
    fn first_in(&self, number: u64) -> Result<(u64, usize)> {
        let none = || Error::new(Kind::NotFound, "group");
        let &(index, components) = self.groups.get(to_usize(number, "group")?).ok_or_else(none)?;
        Ok((index, components as usize))
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

/// A path component. Besides what no file system has, Zarr excludes names of dots alone and reserves names that start
/// with two underscores, or are `zarr.json`, for its documents; to zarr-python a backslash is a slash.
fn component(name: &[u8]) -> String {
    let name = safe(name).replace('\\', "%5C");
    match name.strip_prefix("__") {
        Some(rest) => format!("%5F_{rest}"),
        None if name.bytes().all(|b| b == b'.') => name.replace('.', "%2E"),
        None if name == "zarr.json" => "zarr%2Ejson".to_owned(),
        None => name,
    }
}

/// The owner of a path.
#[derive(Clone, Copy)]
struct Taken {
    /// The next number to try for a name that collides with this one.
    next: u32,
    /// The `~` number of the group that would have this name.
    group: u32,
    /// The number of the group plus one.
    id: u32,
}

/// `number` as it is kept.
fn number_of(number: u64) -> Result<u32> {
    let limit = u64::from(u32::MAX) - 1;
    Limits::check(number, limit, WHAT).map(|number| number as u32)
}

/// Gives names to arrays.
pub(super) struct NamesBuilder {
    names: ZarrNames,
    charges: Vec<Charge>,
    account: Account,
    keys: [RandomState; 2],
    taken: HashMap<[u64; 2], Taken>,
    /// The size of each dimension by the hash of its group and its name.
    sizes: HashMap<[u64; 2], u64>,
    count: u64,
    _charge: Charge,
}

impl NamesBuilder {
    /// For at most `count` arrays.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn new(account: &Account, count: u64) -> Result<Self> {
        let names = ZarrNames {
            renamed: HashMap::new(),
            groups: Vec::new(),
            members: Vec::new(),
            sized: HashSet::new(),
            _charges: Vec::new(),
        };
        Ok(Self {
            names,
            charges: vec![account.charge(count.saturating_mul(PER_MEMBER), WHAT)?],
            count,
            account: account.clone(),
            keys: Default::default(),
            taken: HashMap::new(),
            sizes: HashMap::new(),
            _charge: account.charge(count.saturating_mul(PER_NAME), WHAT)?,
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
        let (mut depth, mut above) = (0, 0);
        while let Some(component) = components.next() {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(component);
            depth += 1;
            let is_last = components.peek().is_none();
            let id;
            (path, id) = self.take(path, (!is_last).then_some((index, depth)), above)?;
            above = if is_last { above } else { id };
        }
        self.names.members.push((above, number_of(index)?));
        if path != wanted {
            self.charge(to_u64(path.len()))?;
            self.names.renamed.insert(index, path.clone().into());
        }
        self.note_sizes(index, path.rsplit_once('/').map_or("", |(group, _)| group), named)
    }

    /// Takes `path`, or the next free one, for an array; or for a group unless it exists: `group` locates its name, and
    /// `above` is the group that contains it. Returns the path, and the number of a group plus one.
    fn take(&mut self, path: String, group: Option<(u64, u32)>, above: u32) -> Result<(String, u32)> {
        let key = self.hash(&path);
        let Some(&there) = self.taken.get(&key) else {
            return Ok((path, self.insert(key, group, above)?));
        };
        if group.is_some() && there.id > 0 {
            return Ok((path, there.id));
        }
        if group.is_some() && there.group > 0 {
            let name = format!("{path}~{}", there.group);
            let id = self.taken.get(&self.hash(&name)).map_or(0, |other| other.id);
            return Ok((name, id));
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
        let number = if group.is_some() { next } else { there.group };
        self.taken.insert(key, Taken { next: next + 1, group: number, ..there });
        Ok((name, self.insert(other, group, above)?))
    }

    fn insert(&mut self, key: [u64; 2], group: Option<(u64, u32)>, above: u32) -> Result<u32> {
        let mut id = 0;
        if let Some(group) = group {
            self.charge(PER_NAME)?;
            let number = to_u64(self.names.groups.len());
            self.names.groups.push(group);
            self.names.members.push((above, number_of(self.count.saturating_add(number))?));
            id = number_of(number)? + 1;
        }
        self.taken.insert(key, Taken { next: 2, group: 0, id });
        Ok(id)
    }

    /// Names the dimensions of array `index` by their sizes, if one of their names has another size in its group, or in
    /// an enclosing one: in a tree of xarray, groups inherit dimensions.
    fn note_sizes(&mut self, index: u64, group: &str, named: &NamedArray) -> Result<()> {
        let Some(names) = &named.dimensions else { return Ok(()) };
        let key = |group: &str, name: &String| self.hash(&format!("{group}/{name}"));
        let shape = &named.array.shape;
        let around = group.match_indices('/').map(|(end, _)| &group[..end]).chain(["", group]);
        let is_other = |group| {
            let differs = |(name, size)| self.sizes.get(&key(group, name)).is_some_and(|there| there != size);
            names.iter().zip(shape).any(differs)
        };
        if around.into_iter().any(is_other) {
            self.names.sized.insert(index);
            return self.charge(0);
        }
        let keys: Vec<_> = names.iter().map(|name| key(group, name)).collect();
        self.charge(PER_NAME.saturating_mul(to_u64(keys.len())))?;
        self.sizes.extend(keys.into_iter().zip(shape.iter().copied()));
        Ok(())
    }

    fn charge(&mut self, bytes: u64) -> Result<()> {
        let charge = self.account.charge(bytes.saturating_add(PER_NAME), WHAT)?;
        self.charges.push(charge);
        Ok(())
    }

    /// The names.
    pub(super) fn finish(mut self) -> ZarrNames {
        // Stable: groups and arrays stay in the order of the container.
        self.names.members.sort_by_key(|&(above, _)| above);
        ZarrNames { _charges: self.charges, ..self.names }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Array, Tiles};

    fn named(name: &str, dimensions: Option<&str>, shape: &[u64]) -> NamedArray {
        let array = Array { descr: "'|u1'".into(), itemsize: 1, shape: shape.to_vec() };
        let dimensions = dimensions.map(|names| names.split(' ').map(str::to_owned).collect());
        NamedArray { name: name.into(), array, type_name: None, tiles: Tiles::default(), stored: 0, dimensions }
    }

    fn builder(arrays: &[NamedArray], account: &Account) -> NamesBuilder {
        let mut builder = NamesBuilder::new(account, to_u64(arrays.len())).unwrap();
        (0..).zip(arrays).for_each(|(index, array)| builder.add(index, array).unwrap());
        builder
    }

    #[test]
    fn a_suffix_is_one_that_no_array_has_and_the_next_one_is_looked_for_after_it() {
        let arrays = ["a", "a~2", "a", "a"].map(|name| named(name, None, &[1]));
        let builder = builder(&arrays, &Account::new(1 << 20, 0));
        assert_eq!(builder.taken.get(&builder.hash("a")).map(|taken| taken.next), Some(5));
        let names = builder.finish();
        let paths: Vec<_> = (0..).zip(&arrays).map(|(index, array)| names.path(index, array)).collect();
        assert_eq!(paths, ["a", "a~2", "a~3", "a~4"]);
    }

    #[test]
    fn a_dimension_has_its_name_unless_that_has_another_size_in_the_group() {
        let arrays = [("a", &[2, 3][..]), ("b", &[2, 3]), ("c", &[4, 5]), ("g/d", &[2, 6]), ("h/e", &[2, 3])]
            .map(|(name, shape)| named(name, Some("y x"), shape));
        let names = builder(&arrays, &Account::new(1 << 20, 0)).finish();
        let all: Vec<_> = (0..).zip(&arrays).map(|(index, array)| names.dimensions(index, array).join(" ")).collect();
        assert_eq!(all, ["y x", "y x", "size_4 size_5", "size_2 size_6", "y x"]);
    }

    #[test]
    fn names_are_charged_for_as_long_as_they_are_kept() {
        let account = Account::new(1 << 20, 0);
        let builder = builder(&["g/x", "a", "a"].map(|name| named(name, None, &[1])), &account);
        let building = account.memory().used();
        let names = builder.finish();
        // Three arrays and a group, and a name that is not the array's own.
        let kept = 3 * PER_MEMBER + 2 * PER_NAME + PER_NAME + to_u64("a~2".len());
        assert_eq!((building, account.memory().used()), (kept + 3 * PER_NAME, kept));
        drop(names);
        assert_eq!(account.memory().used(), 0);
    }

    #[test]
    fn members_have_numbers_of_32_bits_and_one_more_for_none() {
        let largest = u64::from(u32::MAX) - 1;
        assert_eq!(number_of(largest).unwrap(), u32::MAX - 1);
        assert_eq!(number_of(largest + 1).unwrap_err().kind(), &Kind::TooLarge { value: largest + 1, limit: largest });
    }
}
