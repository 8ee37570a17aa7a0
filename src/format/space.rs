//! Where the elements of an array are in space: their distances, and what these are measured in.
//!
//! The user gives it (`spacing=`, `units=`) for the array that a container is about, or the container says it.
#![forbid(unsafe_code)]

use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::Result;
use crate::source::Source;

use super::about::Attributes;
use super::{Arrays, Attrs, Check, Container, Directory, Entry, File, Found, Info, Node, NumberedFiles};

/// How many arrays of a container are looked at for one that is in a given space.
const LOOKED_AT: u64 = 100;
/// The axes of space, slowest first, and what is before them.
const AXES: [&str; 3] = ["z", "y", "x"];

/// The space of an array. Lists have a value for each dimension, slowest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// The distance from one element to the next; positive.
    pub spacing: Vec<f64>,
    /// The place of the first element, if it is known.
    pub origin: Option<Vec<f64>>,
    /// Unit of both: `um`, `mm`; empty if unknown.
    pub units: Vec<String>,
    /// Where the dimensions point to, if that is not along the axes: in each row the part of that axis, slowest first.
    pub direction: Option<Vec<Vec<f64>>>,
}

impl Space {
    /// A space of these lists; `None` if a distance is none.
    pub fn new(spacing: Vec<f64>, origin: Option<Vec<f64>>, units: Vec<String>) -> Option<Self> {
        let is_possible = !spacing.is_empty() && spacing.iter().all(|distance| distance.is_normal() && *distance > 0.0);
        let rank = spacing.len();
        let origin = origin.filter(|origin| origin.len() == rank && origin.iter().all(|place| place.is_finite()));
        let units = if units.len() == rank { units } else { vec![String::new(); rank] };
        is_possible.then_some(Self { spacing, origin, units, direction: None })
    }

    /// The same, whose dimensions point to `direction`, unless that is no such matrix.
    fn directed(self, direction: Option<Vec<Vec<f64>>>) -> Self {
        let rank = self.spacing.len();
        let is_row = |row: &Vec<f64>| row.len() == rank && row.iter().all(|part| part.is_finite());
        let direction = direction.filter(|rows| rows.len() == rank && rows.iter().all(is_row));
        Self { direction, ..self }
    }

    /// The vector along each dimension, fastest first, of the parts along the axes, fastest first; `None` if each is
    /// along its axis.
    pub fn vectors(&self) -> Option<Vec<Vec<f64>>> {
        let rows = self.direction.as_ref()?;
        let column = |d: usize| rows.iter().rev().filter_map(|row| row.get(d).copied()).collect();
        Some((0..rows.len()).rev().map(column).collect())
    }

    /// The names of its dimensions: z, y and x are the last.
    pub fn axes(&self) -> Vec<String> {
        let rank = self.spacing.len();
        let name = |d: usize| match (d + AXES.len()).checked_sub(rank).and_then(|axis| AXES.get(axis)) {
            Some(axis) => (*axis).to_owned(),
            None => format!("dim_{d}"),
        };
        (0..rank).map(name).collect()
    }
}

/// The user's data about the space of an array: distances, units, or both.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GivenSpace {
    /// Of each dimension, slowest first.
    pub spacing: Option<Spacing>,
    /// Of all dimensions, or of each.
    pub units: Option<Units>,
}

/// Distances per dimension, slowest first: `2.5x1x0.5`.
#[derive(Debug, Clone, PartialEq)]
pub struct Spacing(Vec<f64>);

/// `f64` is equal to itself here: no distance is NaN.
impl Eq for Spacing {}

impl Spacing {
    /// These distances.
    ///
    /// # Errors
    /// In words, if there are none, or one is not positive.
    pub fn new(distances: Vec<f64>) -> Result<Self, String> {
        let space = Space::new(distances, None, Vec::new());
        let wrong = || "expected a positive distance for each dimension, slowest first, as in 2.5x1x0.5".to_owned();
        space.map(|space| Self(space.spacing)).ok_or_else(wrong)
    }
}

impl FromStr for Spacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let distances: Result<Vec<f64>, _> = text.split('x').map(|distance| distance.trim().parse()).collect();
        Self::new(distances.unwrap_or_default())
    }
}

/// The unit of all dimensions, or that of each, slowest first: `um`, `sxumxum`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units(Vec<String>);

impl FromStr for Units {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_unit = |unit: &str| !unit.is_empty() && unit.len() <= 32 && unit.chars().all(char::is_alphanumeric);
        let units: Vec<_> = text.split('x').map(str::trim).collect();
        if units.iter().all(|unit| is_unit(unit)) {
            return Ok(Self(units.into_iter().map(str::to_owned).collect()));
        }
        Err("expected a unit, as um or mm, or that of each dimension, slowest first, as in sxumxum".to_owned())
    }
}

impl GivenSpace {
    fn is_none(&self) -> bool {
        self.spacing.is_none() && self.units.is_none()
    }

    /// `entry`, with the space of its file, or of the files in its directory.
    fn place(&self, entry: Entry) -> Entry {
        let node = match entry.node {
            Node::File(file) => self.apply(*file).into(),
            Node::Dir(dir) => Node::Dir(Arc::new(PlacedDir { dir, given: self.clone() })),
            other => other,
        };
        Entry { node, ..entry }
    }

    /// Sets the space of `file`, if it is what its directory is about and has as many dimensions.
    fn apply(&self, mut file: File) -> File {
        let Some(rank) = file.array.as_ref().filter(|_| file.is_principal).map(|array| array.shape.len()) else {
            return file;
        };
        let own = file.space.clone();
        let spacing = match &self.spacing {
            Some(spacing) => spacing.0.clone(),
            None => own.as_ref().map_or_else(|| vec![1.0; rank], |own| own.spacing.clone()),
        };
        let units = match &self.units {
            Some(Units(units)) if units.len() == 1 => units.iter().cycle().take(rank).cloned().collect(),
            Some(Units(units)) => units.clone(),
            None => own.as_ref().map_or_else(Vec::new, |own| own.units.clone()),
        };
        let fits = spacing.len() == rank && (units.is_empty() || units.len() == rank);
        let (origin, direction) = own.map_or((None, None), |own| (own.origin, own.direction));
        if let Some(space) = Space::new(spacing, origin, units).filter(|_| fits) {
            file.space = Some(space.directed(direction));
        }
        file
    }
}

/// `container`, whose array is in the space that the user gives.
pub(super) fn placed(container: Arc<dyn Container>, given: &GivenSpace) -> Arc<dyn Container> {
    if given.is_none() { container } else { Arc::new(Placed { container, given: given.clone() }) }
}

struct Placed {
    container: Arc<dyn Container>,
    given: GivenSpace,
}

impl Placed {
    /// The space of the array, if it has got one.
    fn space(&self) -> Option<Space> {
        let own = self.entries().ok()?.into_iter().find_map(|entry| match entry.node {
            Node::File(file) => file.space,
            _ => None,
        });
        own.or_else(|| {
            // Of an archive, that of its first array in it.
            let arrays = self.arrays().ok()??;
            let spaces = (0..arrays.count().min(LOOKED_AT)).map(|index| arrays.file(index).ok()?.space);
            spaces.flatten().next()
        })
    }
}

impl Container for Placed {
    fn wrapped(&self) -> Option<&Arc<dyn Container>> {
        Some(&self.container)
    }

    fn info(&self) -> Info {
        let mut info = self.container.info();
        if let Some(space) = self.space() {
            info.details.insert("space".into(), json!({ "spacing": space.spacing, "units": space.units }));
        }
        info
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.container.entries()?.into_iter().map(|entry| self.given.place(entry)).collect())
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        let given = self.given.clone();
        let place = |arrays| -> Arc<dyn Arrays> { Arc::new(PlacedArrays { arrays, given }) };
        Ok(self.container.arrays()?.map(place))
    }

    fn checks(&self) -> Vec<Check> {
        self.container.checks()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.container.sources()
    }
}

/// A directory in a container, as those of the members of an archive.
struct PlacedDir {
    dir: Arc<dyn Directory>,
    given: GivenSpace,
}

impl Directory for PlacedDir {
    fn attrs(&self) -> Attrs {
        self.dir.attrs()
    }

    fn is_made_again(&self) -> bool {
        self.dir.is_made_again()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.dir.entries()?.into_iter().map(|entry| self.given.place(entry)).collect())
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.dir.for_each(&mut |entry| each(self.given.place(entry)))
    }

    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.dir.item(number, &mut |entry| each(self.given.place(entry)))
    }

    fn file(&self, number: u64) -> Result<File> {
        Ok(self.given.apply(self.dir.file(number)?))
    }

    fn numbered(&self) -> Result<Option<Arc<dyn NumberedFiles>>> {
        self.dir.numbered()
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        let (dir, given) = (self.dir.dir(number)?, self.given.clone());
        Ok(Arc::new(Self { dir, given }))
    }
}

struct PlacedArrays {
    arrays: Arc<dyn Arrays>,
    given: GivenSpace,
}

impl Arrays for PlacedArrays {
    fn count(&self) -> u64 {
        self.arrays.count()
    }

    fn find(&self, index: u64) -> Result<Found> {
        Ok(match self.arrays.find(index)? {
            Found::Array(named) => Found::Array(named.within(self.file(index)?.space.as_ref())),
            other => other,
        })
    }

    fn file(&self, index: u64) -> Result<File> {
        Ok(self.given.apply(self.arrays.file(index)?))
    }

    fn group(&self, name: &[u8]) -> Result<Attributes> {
        self.arrays.group(name)
    }
}

/// The space in metadata of `mlarray`: `spacing`, `origin`, `direction` and `axis_units`, or `affine` and the last, of as
/// many dimensions as the array has.
pub(super) fn of_mlarray(spatial: &Value, rank: usize) -> Option<Space> {
    let numbers = |name: &str| -> Option<Vec<f64>> {
        spatial.get(name)?.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()
    };
    let texts = |name: &str| -> Option<Vec<String>> {
        let text = |unit: &Value| unit.as_str().map(str::to_owned);
        spatial.get(name)?.as_array()?.iter().map(text).collect::<Option<_>>()
    };
    let matrix = |name: &str| -> Option<Vec<Vec<f64>>> {
        let row = |row: &Value| row.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<_>>>();
        spatial.get(name)?.as_array()?.iter().map(row).collect()
    };
    let units = texts("axis_units").unwrap_or_default();
    if let Some(affine) = matrix("affine").filter(|rows| rows.len() == rank + 1) {
        let origin = affine.iter().take(rank).filter_map(|row| row.get(rank).copied()).collect();
        let part = |row: usize, d: usize| affine.get(row).and_then(|row| row.get(d)).copied().unwrap_or(f64::NAN);
        let length = |d: usize| (0..rank).map(|row| part(row, d).powi(2)).sum::<f64>().sqrt();
        let spacing: Vec<_> = (0..rank).map(length).collect();
        let row = |row: usize| spacing.iter().enumerate().map(|(d, length)| part(row, d) / length).collect();
        let direction = (0..rank).map(row).collect();
        return Some(Space::new(spacing.clone(), Some(origin), units)?.directed(Some(direction)));
    }
    let spacing = numbers("spacing").filter(|spacing| spacing.len() == rank)?;
    Some(Space::new(spacing, numbers("origin"), units)?.directed(matrix("direction")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Array, Content};

    #[test]
    fn distances_and_units_are_parsed() {
        assert_eq!("2.5x1x0.5".parse(), Ok(Spacing(vec![2.5, 1.0, 0.5])));
        assert_eq!("1e-3".parse(), Ok(Spacing(vec![0.001])));
        for wrong in ["", "0", "-1x1", "1x", "nan", "inf", "2,3", "um"] {
            assert!(wrong.parse::<Spacing>().is_err(), "{wrong}");
        }
        assert_eq!("sxumxum".parse(), Ok(Units(["s", "um", "um"].map(str::to_owned).to_vec())));
        assert!(["", "u m", "u\nm", "x"].iter().all(|wrong| wrong.parse::<Units>().is_err()));
    }

    #[test]
    fn the_array_of_a_directory_gets_the_space_if_it_has_as_many_dimensions() {
        let file = |shape: &[u64]| {
            let array = Array { descr: "'|u1'".into(), itemsize: 1, shape: shape.to_vec() };
            File::new(Content::Zeros(array.byte_len().unwrap())).typed(Some(array)).principal()
        };
        let given = GivenSpace { spacing: "2.5x1".parse().ok(), units: "um".parse().ok() };
        let space = given.apply(file(&[2, 3])).space.unwrap();
        assert_eq!((space.spacing.as_slice(), space.units.join(" ")), (&[2.5, 1.0][..], "um um".to_owned()));
        assert_eq!(space.axes(), ["y", "x"]);
        assert_eq!(given.apply(file(&[2, 3, 4])).space, None);
        assert_eq!(given.apply(File { is_principal: false, ..file(&[2, 3]) }).space, None);
        // Of what the container says, the rest stays.
        let own = Space::new(vec![3.0, 4.0], Some(vec![1.0, 2.0]), Vec::new());
        let units = GivenSpace { spacing: None, units: "mm".parse().ok() };
        let both = units.apply(File { space: own, ..file(&[2, 3]) }).space.unwrap();
        assert_eq!((both.spacing, both.origin, both.units.len()), (vec![3.0, 4.0], Some(vec![1.0, 2.0]), 2));
        assert_eq!(Space::new(vec![1.0; 5], None, Vec::new()).unwrap().axes(), ["dim_0", "dim_1", "z", "y", "x"]);
    }

    #[test]
    fn a_container_in_a_given_space_still_names_the_part_of_a_fault() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/ztensor/v10-zstd-crc32c.zt");
        let space = GivenSpace { spacing: "2".parse().ok(), units: None };
        let open = |space| {
            let options = crate::format::Options { space, ..Default::default() };
            crate::format::open(&crate::format::Input::open(file.as_ref()).unwrap(), None, &options).unwrap()
        };
        let (plain, placed) = (open(GivenSpace::default()), open(space));
        let at = (0..8192).map(crate::bytes::FileOffset).find(|&at| plain.part_at(at).is_some()).unwrap();
        assert!(placed.wrapped().is_some());
        assert_eq!(placed.part_at(at), plain.part_at(at));
    }

    #[test]
    fn the_space_of_mlarray_is_read_if_it_is_that_of_all_dimensions() {
        let spatial = json!({"spacing": [2.5, 1, 0.5], "origin": [1, 2, 3], "axis_units": ["mm", "mm", "mm"]});
        let space = of_mlarray(&spatial, 3).unwrap();
        assert_eq!((space.spacing, space.origin), (vec![2.5, 1.0, 0.5], Some(vec![1.0, 2.0, 3.0])));
        assert_eq!(of_mlarray(&spatial, 4), None);
        let turned = json!({"spacing": [2, 3], "direction": [[0, 1], [-1, 0]]});
        let affine = json!({"affine": [[0, 3, 5], [-2, 0, 6], [0, 0, 1]]});
        for (spatial, origin) in [(turned, None), (affine, Some(vec![5.0, 6.0]))] {
            let space = of_mlarray(&spatial, 2).unwrap();
            assert_eq!((space.spacing.clone(), space.origin.clone()), (vec![2.0, 3.0], origin));
            // The fastest dimension points along the slower axis, the slower one against the faster axis.
            assert_eq!(space.vectors().unwrap(), [[0.0, 1.0], [-1.0, 0.0]]);
        }
        for wrong in [json!([[1, 0]]), json!([[1, 0], [0]]), json!("x"), json!([[1, "a"], [0, 1]])] {
            assert_eq!(of_mlarray(&json!({"spacing": [1, 1], "direction": wrong}), 2).unwrap().direction, None);
        }
        assert_eq!(of_mlarray(&json!({"affine": [[0, 0, 0], [0, 1, 0], [0, 0, 1]]}), 2), None);
        assert_eq!(of_mlarray(&json!({"spacing": [0, 1]}), 2), None);
        assert_eq!(of_mlarray(&json!({"spacing": null}), 2), None);
    }
}
