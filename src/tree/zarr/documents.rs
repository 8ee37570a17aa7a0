//! The documents of groups: attributes, and the documents of all that is below.
#![forbid(unsafe_code)]

use serde_json::Value;

use crate::error::Result;
use crate::format::about::Attributes;
use crate::format::{Content, Spool};
use crate::text;
use crate::view::zarr::{self, GROUP, OME};

use super::{GroupMember, Zarr};

/// Attributes of the root that describe the container.
const CONTAINER: &str = "container";
const LEFT_OUT: &str = "left_out";
/// The one of arrays whose documents are not among those of the group: see `Chunks::uncommon`.
const UNCOMMON: &str = "not_consolidated";
/// Attributes of the root that are not the container's own.
pub(super) const RESERVED: [&str; 4] = [OME, CONTAINER, UNCOMMON, LEFT_OUT];
/// Maximum bytes of the document of a group.
const MOST: u64 = 1 << 30;

impl Zarr {
    /// The document of group `group`; `None`: the root.
    ///
    /// # Errors
    /// Fails if an array cannot be described now, or if the account is exhausted.
    pub(super) fn document(&self, group: Option<u64>) -> Result<Content> {
        let [head, middle, end] = GROUP;
        let mut out = Spool::new(&self.account, MOST, "zarr.json");
        out.push(head.as_bytes())?;
        match group {
            None => self.root_attributes(&mut out)?,
            Some(group) => out.push(text::json_line(&self.group_attributes(group)?.into()).as_bytes())?,
        }
        out.push(middle.as_bytes())?;
        let names = self.names()?;
        let group = group.map(|group| names.group(self, group)).transpose()?;
        let below = |path: String| match &group {
            None => Some(path),
            Some(group) => Some(path.strip_prefix(&**group)?.strip_prefix('/')?.to_owned()),
        };
        let mut separator = "\n";
        let mut member = |path: String, document: &Value| {
            out.push(separator.as_bytes())?;
            separator = ",\n";
            out.json(&Value::String(path))?;
            out.push(b": ")?;
            out.push(text::json_line(document).as_bytes())
        };
        for number in names.members() {
            if let Some(group) = number.checked_sub(self.arrays.count()) {
                if let Some(path) = below(names.group(self, group)?) {
                    member(path, &zarr::group(&self.group_attributes(group)?))?;
                }
                continue;
            }
            let (named, chunks) = self.array(number)?;
            if chunks.uncommon().is_some() {
                continue;
            }
            if let Some(path) = below(names.path(number, &named)) {
                let attributes = match self.attributes(number) {
                    // Left out: see `root_attributes`.
                    Err(e) if e.is_lasting() => continue,
                    attributes => attributes?,
                };
                member(path, &zarr::array(&chunks, &names.dimensions(number, &named), attributes))?;
            }
        }
        out.push(end.as_bytes())?;
        Ok(out.content())
    }

    /// The attributes of a group below the root; those that are broken are left out.
    fn group_attributes(&self, group: u64) -> Result<Attributes> {
        match self.arrays.group(&self.names()?.own_group(self, group)?) {
            Err(e) if e.is_lasting() => Ok(Attributes::new()),
            attributes => attributes,
        }
    }

    /// Writes the attributes of the root: those of the container, its description, and its arrays that are left out.
    fn root_attributes(&self, out: &mut Spool) -> Result<()> {
        out.push(b"{")?;
        for (name, value) in &self.attributes {
            out.json(&Value::String(name.clone()))?;
            out.push(format!(": {}, ", text::json_line(value)).as_bytes())?;
        }
        if let Some(ome) = self.multiscales()? {
            out.push(format!("\"{OME}\": {}, ", text::json_line(&ome)).as_bytes())?;
        }
        out.push(format!("\"{CONTAINER}\": ").as_bytes())?;
        out.json(&self.identity)?;
        let names = self.names()?;
        self.list(UNCOMMON, out, |index| {
            let Some(GroupMember::Array(array)) = self.member(index)? else { return Ok(None) };
            Ok(array.1.uncommon().map(|type_name| (names.path(index, &array.0), type_name.clone())))
        })?;
        self.list(LEFT_OUT, out, |index| {
            let (name, why) = match self.member(index)? {
                None => return Ok(None),
                Some(GroupMember::LeftOut(name, why)) => (name, why),
                Some(GroupMember::Array(array)) => match self.attributes(index) {
                    Err(e) if e.is_lasting() => (array.0.name, format!("its attributes are broken: {e}")),
                    attributes => return attributes.map(|_| None),
                },
            };
            Ok(Some((String::from_utf8_lossy(&name).into_owned(), why.into())))
        })?;
        out.push(b"}")
    }

    /// The first array as an image of OME-Zarr, if it is known where it is in space.
    fn multiscales(&self) -> Result<Option<Value>> {
        if self.arrays.count() == 0 {
            return Ok(None);
        }
        let Some(GroupMember::Array(array)) = self.member(0)? else { return Ok(None) };
        let Some(space) = self.arrays.file(0)?.space else { return Ok(None) };
        let names = self.names()?;
        Ok(zarr::multiscales(&names.path(0, &array.0), &names.dimensions(0, &array.0), &space))
    }

    /// Writes the object `name` of the entries that `each` returns for the arrays: name and value.
    fn list(&self, name: &str, out: &mut Spool, each: impl Fn(u64) -> Result<Option<(String, Value)>>) -> Result<()> {
        out.push(format!(", \"{name}\": {{").as_bytes())?;
        let mut separator = "";
        for index in 0..self.arrays.count() {
            let Some((name, value)) = each(index)? else { continue };
            out.push(separator.as_bytes())?;
            separator = ", ";
            out.json(&Value::String(name))?;
            out.push(b": ")?;
            out.json(&value)?;
        }
        out.push(b"}")
    }
}
