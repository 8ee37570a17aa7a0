//! An embed store of python-blosc2 (`.b2e`): a frame with other frames in its content, and a metalayer that says where.
//!
//! Shows as: a directory for each leaf, named after its key. Leaves called `__vlmeta__` have no content but the
//! attributes of their group, and are not shown. Checked: each leaf is inside the content; one that is not, or is not a frame, breaks
//! alone: its `data.raw` fails.
//! Limits: [`MAP`] bytes of keys and places. Opening a leaf decodes the parts of the store that it reads; a leaf that is
//! a store itself is shown as a frame.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::account::decode_budget;
use crate::bytes::{FileOffset, to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::about::Attributes;
use crate::format::nested::{self, Decoded};
use crate::format::{Arrays, Check, Container, Directory, Entry, File, Found, Info, Node, Options};
use crate::limits::{Charge, Limits};
use crate::source::Source;

use super::entries::failing;
use super::frame::Frame;
use super::frames::{self, FrameDir, OpenFrame, OpenFrames};
use super::info;
use super::json;
use super::memory::ContainerMemory;
use super::metalayer::Metalayer;
use super::metalayers::LayerValue;
use super::table::{Leaves, Tables};

/// Metalayers, one of which a store has, and the variable-length one with the keys.
const KINDS: [&[u8]; 3] = [b"b2embed", b"b2dict", b"b2tree"];
const METADATA: &[u8] = b"estore_metadata";
/// The field of errors about it.
const WHERE: &str = "embed_map";
/// The name of a leaf with the attributes of the group that it is in.
const VLMETA: &[u8] = b"__vlmeta__";
/// Maximum bytes of the metadata, and how much memory a byte may take while it is read.
const MAP: u64 = 4 << 20;
const PER_BYTE: u64 = 80;

/// Whether `frame` is an embed store.
pub(super) fn is_store(frame: &Frame) -> bool {
    frame.metalayers.iter().any(|layer| KINDS.contains(&&*layer.name)) && metadata(frame).is_some()
}

fn metadata(frame: &Frame) -> Option<&Metalayer> {
    frame.vlmetalayers.as_ref().ok()?.iter().find(|layer| layer.name == METADATA)
}

/// Whether a leaf with this name has the attributes of its group.
pub(super) fn is_vlmeta(name: &[u8]) -> bool {
    name.rsplit(|&byte| byte == b'/').next() == Some(VLMETA)
}

/// The leaves with attributes among these, by the name of their group, which is empty for the root.
pub(super) fn by_group<'a>(names: impl Iterator<Item = &'a [u8]>) -> HashMap<Vec<u8>, usize> {
    let group = |name: &[u8]| Some(name.strip_suffix(VLMETA)?.strip_suffix(b"/").unwrap_or_default().to_vec());
    let named = names.enumerate().filter(|(_, name)| is_vlmeta(name));
    named.filter_map(|(index, name)| Some((group(name)?, index))).collect()
}

/// The frames in another frame.
pub(super) struct EmbedStore {
    pub(super) frame: Arc<OpenFrame>,
    leaves: Vec<Leaf>,
    /// The leaves with attributes, by the name of the group.
    groups: HashMap<Vec<u8>, usize>,
    /// The content of the frame.
    content: Arc<Source>,
    memory: Arc<ContainerMemory>,
    /// Bytes that may be decoded to open a leaf.
    work: u64,
    open: OpenFrames,
    _charge: Charge,
}

/// A key without its first slash, and where the frame is in the content.
struct Leaf {
    name: Vec<u8>,
    place: Result<Range<u64>>,
}

impl EmbedStore {
    /// Reads the keys of the store in `frame`.
    ///
    /// # Errors
    /// Fails if they cannot be read; a leaf outside the content is not an error.
    pub(super) fn open_in(frame: Arc<OpenFrame>, options: &Options) -> Result<Arc<Self>> {
        let own = &frame.frame;
        let layer = metadata(own).ok_or_else(|| Error::corrupt("missing", "estore_metadata").at(own.start))?;
        let value = LayerValue::of_chunk(&own.source, layer, &own.chunks.item().memory)?;
        let len = Limits::check(value.len(), MAP, "estore_metadata").map_err(|e| e.at(layer.at))?;
        let reading = options.account.charge(len.saturating_mul(PER_BYTE), WHERE)?;
        let map = match json::to_json(&decode_budget::once(|| value.bytes())?) {
            Some(Value::Object(mut fields)) => fields.remove(WHERE),
            _ => None,
        };
        let Some(Value::Object(map)) = map else {
            return Err(Error::corrupt("must be a map of keys", WHERE).at(layer.at));
        };
        let each = to_u64(size_of::<[Leaf; 2]>()).saturating_mul(to_u64(map.len()));
        let charge = options.account.charge(each.saturating_add(len.saturating_mul(2)), WHERE)?;
        let decoded = Decoded::new(vec![Arc::clone(&own.source)], frame.decoded.blob.clone(), options)?;
        let content = Source::of(own.source.path(), decoded);
        let leaf = |(key, at): (String, Value)| Leaf {
            place: place(&at, content.len()).map_err(|e| e.at(layer.at).within(&key)),
            name: key.trim_start_matches('/').as_bytes().to_vec(),
        };
        let leaves: Vec<_> = map.into_iter().map(leaf).collect();
        let groups = by_group(leaves.iter().map(|leaf| &*leaf.name));
        drop(reading);
        // Its own memory: the outer frame is decoded while the inner one is.
        let memory = ContainerMemory::of(options);
        let work = nested::work(own.source.len());
        Ok(Arc::new(Self {
            frame,
            leaves,
            groups,
            content,
            memory,
            work,
            open: OpenFrames::new(frames::OPEN),
            _charge: charge,
        }))
    }

    fn leaf(&self, index: usize) -> Result<&Leaf> {
        self.leaves.get(index).ok_or_else(|| Error::new(Kind::NotFound, "leaf"))
    }

    /// Opens the frame of leaf `index`, unless it is open.
    fn leaf_frame(&self, index: usize) -> Result<Arc<OpenFrame>> {
        let leaf = self.leaf(index)?;
        let range = leaf.place.clone()?;
        let open = || {
            let source = Source::within(&self.content, range, self.content.path())?;
            Frame::contiguous(&source, FileOffset(0), &self.memory)
        };
        let open = || decode_budget::once(|| decode_budget::opening(self.work, open)).map(OpenFrame::shared);
        self.open.get_or_open(to_u64(index), open).map_err(|e| e.within(String::from_utf8_lossy(&leaf.name)))
    }

    /// The attributes of the group `name`, which is empty for the root, if the store has some.
    pub(super) fn attributes(&self, name: &[u8]) -> Option<Result<Attributes>> {
        let &index = self.groups.get(name)?;
        Some(self.leaf_frame(index).and_then(|frame| frame.data()?.attributes()))
    }

    /// The keys of the leaves, with their numbers.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.leaves.iter().map(|leaf| &*leaf.name).zip(0..)
    }

    /// A directory for each leaf.
    pub(super) fn entries(self: &Arc<Self>) -> impl Iterator<Item = Entry> {
        let shown = self.leaves.iter().enumerate().filter(|(_, leaf)| !is_vlmeta(&leaf.name));
        shown.map(|(index, leaf)| {
            let node = Node::Dir(Arc::new(LeafDir { store: Arc::clone(self), index }));
            Entry { nested: true, ..Entry::named(leaf.name.clone(), "", node) }
        })
    }

    /// The checks of the store and of its leaves; `name` is a prefix for messages.
    pub(super) fn checks(&self, name: &str) -> Vec<Check> {
        let mut checks = self.frame.checks(name);
        for (index, leaf) in self.leaves.iter().enumerate() {
            let name = format!("{name}{}", String::from_utf8_lossy(&leaf.name));
            match self.leaf_frame(index) {
                Ok(frame) => checks.extend(frame.checks(&format!("{name}: "))),
                Err(e) => checks.push(Check::Run { name, bytes: 0, run: Box::new(move || Err(e.clone())) }),
            }
        }
        checks
    }
}

/// Where a leaf is in a content of `len` bytes.
fn place(at: &Value, len: u64) -> Result<Range<u64>> {
    if at.get("urlbase").is_some() {
        return Err(Error::unsupported("a reference to an array on a server", WHERE));
    }
    let number = |name| at.get(name).and_then(Value::as_u64);
    let (Some(start), Some(size)) = (number("offset"), number("length")) else {
        return Err(Error::corrupt("must have an offset and a length", WHERE));
    };
    match start.checked_add(size) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(Error::corrupt(format!("{size} bytes at {start} are not in the {len} bytes of the store"), WHERE)),
    }
}

impl Leaves for EmbedStore {
    fn open(&self, index: u64) -> Result<Arc<OpenFrame>> {
        self.leaf_frame(to_usize(index, "leaf")?)
    }

    fn source(&self) -> &Arc<Source> {
        &self.frame.frame.source
    }
}

impl Arrays for EmbedStore {
    fn count(&self) -> u64 {
        to_u64(self.leaves.len())
    }

    fn find(&self, index: u64) -> Result<Found> {
        let index = to_usize(index, "leaf")?;
        let leaf = self.leaf(index)?;
        if is_vlmeta(&leaf.name) {
            return Ok(Found::Nothing);
        }
        match self.leaf_frame(index).and_then(|frame| frame.found(&leaf.name)) {
            Err(e) if e.is_lasting() => Ok(Found::LeftOut(leaf.name.clone(), e.to_string().into())),
            found => found,
        }
    }

    fn file(&self, index: u64) -> Result<File> {
        self.open(index)?.data()
    }

    fn group(&self, name: &[u8]) -> Result<Attributes> {
        self.attributes(name).unwrap_or_else(|| Ok(Attributes::new()))
    }
}

/// The directory of a leaf; of a broken one, a file that fails.
struct LeafDir {
    store: Arc<EmbedStore>,
    index: usize,
}

impl Directory for LeafDir {
    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        match self.store.leaf_frame(self.index) {
            Ok(frame) => FrameDir(frame).entries(),
            // All leaves can be listed.
            Err(error) => Ok(vec![Entry::own("data.raw", File::new(failing(error)?))]),
        }
    }
}

/// A file that is an embed store.
pub(super) struct StoreFile(Arc<EmbedStore>, Arc<Tables>);

impl StoreFile {
    /// Opens the store in `frame`, which is all of its file.
    ///
    /// # Errors
    /// As [`EmbedStore::open_in`].
    pub(super) fn open(frame: Arc<OpenFrame>, options: &Options) -> Result<Self> {
        let store = EmbedStore::open_in(frame, options)?;
        let leaves: Arc<dyn Leaves> = store.clone();
        let tables = Tables::find(&store.keys().collect::<Vec<_>>(), &leaves, options)?;
        Ok(Self(store, Arc::new(tables)))
    }
}

impl Container for StoreFile {
    fn info(&self) -> Info {
        let OpenFrame { frame, decoded } = &*self.0.frame;
        let mut details = info::frame(frame, decoded);
        details.insert("kind".into(), "embed store".into());
        details.insert("leaves".into(), self.0.leaves.len().into());
        self.1.add_info(&mut details);
        info::with_attributes(&mut details, self.1.attributes(b"").or_else(|| self.0.attributes(b"")));
        info::container(frame.header.version.to_string(), (frame.source.len(), decoded.len()), None, details)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.1.with_entries(self.0.entries().map(Ok))
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        self.1.with_arrays(self.0.clone()).map(Some)
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = self.1.checks();
        checks.extend(self.0.checks(""));
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.0.frame.frame.source.clone()]
    }
}

impl fmt::Debug for StoreFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreFile({:?})", self.0.content.path())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_leaf_is_inside_the_content_or_an_error_says_what_is_wrong() {
        assert_eq!(place(&json!({"offset": 3, "length": 7}), 10).unwrap(), 3..10);
        assert_eq!(place(&json!({"offset": 10, "length": 0}), 10).unwrap(), 10..10);
        for wrong in [
            json!({"offset": 3, "length": 8}),
            json!({"offset": u64::MAX, "length": 1}),
            json!({"offset": 1, "length": u64::MAX}),
            json!({"offset": -1, "length": 1}),
            json!({"offset": 0.5, "length": 1}),
            json!({"offset": 0}),
            json!([0, 1]),
            json!(null),
            json!({"urlbase": "http://localhost/", "path": "x"}),
        ] {
            let error = place(&wrong, 10).unwrap_err();
            assert!(error.what() == WHERE && error.is_lasting(), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_leaf_with_attributes_is_known_by_the_last_part_of_its_name() {
        for (name, want) in
            [("__vlmeta__", true), ("a/__vlmeta__", true), ("a__vlmeta__", false), ("__vlmeta__/a", false)]
        {
            assert_eq!(is_vlmeta(name.as_bytes()), want, "{name}");
        }
    }
}
