//! The documents of groups: attributes, and the documents of all that is below.
#![forbid(unsafe_code)]

use serde_json::Value;

use crate::error::Result;
use crate::format::{Content, Spool};
use crate::text;
use crate::view::zarr::{self, GROUP};

use super::{Member, Zarr};

/// Maximum bytes of the document of a group.
const MOST: u64 = 1 << 30;

impl Zarr {
    /// The document of the group with the path `group`; `None`: the root.
    ///
    /// # Errors
    /// Fails if an array cannot be described now, or if the account is exhausted.
    pub(super) fn document(&self, group: Option<&str>) -> Result<Content> {
        let [head, middle, end] = GROUP;
        let mut out = Spool::new(&self.account, MOST, "zarr.json");
        out.push(head.as_bytes())?;
        match group {
            None => self.attributes(&mut out)?,
            Some(_) => out.push(b"{}")?,
        }
        out.push(middle.as_bytes())?;
        let names = self.names()?;
        let below = |path: String| match group {
            None => Some(path),
            Some(group) => Some(path.strip_prefix(group)?.strip_prefix('/')?.to_owned()),
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
                    member(path, &zarr::group())?;
                }
                continue;
            }
            let (named, chunks) = self.array(number)?;
            if let Some(path) = below(names.path(number, &named)) {
                member(path, &zarr::array(&chunks, &names.dimensions(number, &named)))?;
            }
        }
        out.push(end.as_bytes())?;
        Ok(out.content())
    }

    /// Writes the attributes of the root: what the container is, and which of its arrays are left out.
    fn attributes(&self, out: &mut Spool) -> Result<()> {
        out.push(b"{\"container\": ")?;
        out.json(&self.identity)?;
        out.push(b", \"left_out\": {")?;
        let mut separator = "";
        for index in 0..self.arrays.count() {
            let Some(Member::LeftOut(name, why)) = self.member(index)? else { continue };
            out.push(separator.as_bytes())?;
            separator = ", ";
            out.json(&Value::String(String::from_utf8_lossy(&name).into_owned()))?;
            out.push(b": ")?;
            out.json(&Value::String(why))?;
        }
        out.push(b"}}")
    }
}
