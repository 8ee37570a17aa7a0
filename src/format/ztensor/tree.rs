//! The virtual files of a zTensor file.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::about::{self, Attributes};
use crate::format::{Array, Attrs, Content, Directory, Entry, File, FileExtent, LazyFile, Node, Spool, collected};
use crate::text;

use super::content::TensorFile;
use super::manifest::{Component, Encoding, Tensor};
use super::{component, npz, safetensors};

/// Maximum text of the attributes of a tensor while they are read.
const LONGEST: u64 = 64 << 20;

/// The root directory.
pub(super) fn root(store: &Arc<TensorFile>) -> Vec<Entry> {
    let manifest = &store.manifest;
    let (at, len) = (manifest.at, to_u64(manifest.bytes().len()));
    let stored = FileExtent { source: Arc::clone(&store.source), at, len, gate: None };
    let text = Arc::clone(store);
    let json = move || Ok(text.manifest.json(text.options.limits.structure)?.content());
    let all = Arc::clone(store);
    let model = Content::Deferred { len: None, make: Arc::new(move || safetensors::content(&all)) };
    vec![
        Entry::own("manifest.cbor", File::new(Content::FileExtent(stored)).stored(len).attr("offset", at.0)),
        Entry::own("manifest.json", File::new(Content::Deferred { len: None, make: Arc::new(json) })),
        Entry::own("tensors", Node::Dir(Arc::new(Tensors(Arc::clone(store))))),
        Entry::own("stored", Node::Dir(Arc::new(StoredTensors(Arc::clone(store))))),
        Entry::own("model.safetensors", File::new(model)),
    ]
}

/// `tensors/`.
struct Tensors(Arc<TensorFile>);

/// The kind of a file in `tensors/`; its number is the tensor's times [`KINDS`], plus this.
const RAW: u64 = 0;
const NPZ: u64 = 1;
const JSON: u64 = 2;
const KINDS: u64 = 3;

impl Directory for Tensors {
    fn entries(&self) -> Result<Vec<Entry>> {
        collected(self)
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        (0..self.0.manifest.len()).try_for_each(|index| self.tensor(index, each))
    }

    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.tensor(to_usize(number.into(), "tensor")?, each)
    }

    fn file(&self, number: u64) -> Result<File> {
        let index = to_usize(number / KINDS, "tensor")?;
        let store = Arc::clone(&self.0);
        let make: Arc<dyn Fn() -> Result<Content> + Send + Sync> = match number % KINDS {
            RAW => {
                let tensor = store.manifest.tensor(index)?;
                let place = TensorFile::role(&tensor, "data").ok_or_else(|| Error::new(Kind::NotFound, "component"))?;
                return dense(&store, index, &tensor, place);
            }
            NPZ => Arc::new(move || npz::content(&store, index)),
            _ => Arc::new(move || Ok(describe(&store, &store.manifest.tensor(index)?)?.content())),
        };
        Ok(File::new(Content::Deferred { len: None, make }))
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        components(&self.0, number, false)
    }
}

impl Tensors {
    /// Passes the entries of tensor `index` to `each`.
    fn tensor(&self, index: usize, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let tensor = self.0.manifest.tensor(index)?;
        let number = to_u64(index).saturating_mul(KINDS);
        let mut add = |suffix, node: Node| {
            let stem = tensor.name.as_bytes().to_vec();
            each(Entry { nested: true, item: u32::try_from(index).ok(), ..Entry::named(stem, suffix, node) })
        };
        let described = |kind| LazyFile { number: number + kind, len: None, stored: 0, array: None };
        if let Some(part) = tensor.component("data").filter(|_| tensor.is_dense()) {
            let array = typed(part, &tensor.shape).and_then(|array| array.byte_len());
            let len = known_len(&tensor, part);
            add(".raw", Node::LazyFile(LazyFile { number: number + RAW, len, stored: part.len, array }))?;
        } else {
            add("", Node::LazyDir(to_u64(index)))?;
            if npz::fits(&tensor) {
                add(".npz", Node::LazyFile(described(NPZ)))?;
            }
        }
        add(".json", Node::LazyFile(described(JSON)))
    }
}

fn attrs(tensor: &Tensor<'_>) -> Attrs {
    vec![("layout", tensor.layout.clone().into_owned()), ("shape", text::shape(&tensor.shape))]
}

/// The length of the decoded bytes of a component, if it is known.
pub(super) fn known_len(tensor: &Tensor<'_>, part: &Component<'_>) -> Option<u64> {
    component::decoded_len(tensor, part).ok().flatten()
}

/// The decoded bytes of a component.
fn decoded(store: &Arc<TensorFile>, index: usize, tensor: &Tensor<'_>, place: usize) -> Result<File> {
    let part = tensor.components.get(place).ok_or_else(|| Error::new(Kind::NotFound, "component"))?;
    let len = known_len(tensor, part);
    let store = Arc::clone(store);
    let make = Arc::new(move || store.content(index, place));
    let mut file = File::new(Content::Deferred { len, make })
        .stored(part.len)
        .attr("dtype", part.logical.as_deref().unwrap_or(&part.dtype))
        .attr("codec", encoding(part))
        .attr("stored_size", part.len)
        .attr("offset", part.at.0);
    if let Some(digest) = &part.digest {
        file = file.attr("checksum", digest);
    }
    if let Some(shard) = &part.shard {
        file = file.attr("shard", shard);
    }
    Ok(file)
}

fn encoding<'a>(part: &'a Component<'_>) -> &'a str {
    match &part.encoding {
        Encoding::Raw => "raw",
        Encoding::Zstd => "zstd",
        Encoding::Seekable => "zt.zstd-seekable/1",
        Encoding::Unknown(name) => name,
    }
}

/// An array of the elements of a component; `None` if NumPy lacks their type.
pub(super) fn typed(part: &Component<'_>, shape: &[u64]) -> Option<Array> {
    let element = part.element().filter(|e| !e.descr.is_empty())?;
    Some(Array { descr: element.descr.into(), itemsize: element.width(), shape: shape.to_vec() })
}

pub(super) fn dense(store: &Arc<TensorFile>, index: usize, tensor: &Tensor<'_>, place: usize) -> Result<File> {
    let array = tensor.components.get(place).and_then(|part| typed(part, &tensor.shape));
    let file = decoded(store, index, tensor, place)?.typed(array).attr("shape", text::shape(&tensor.shape));
    let (Some(range), store) = (tensor.attributes.clone(), Arc::clone(store)) else { return Ok(file) };
    Ok(file.about(move || attributes(&store, &range)))
}

/// The attributes of a tensor, at `range` of the manifest. Larger ones are in `<name>.json` alone.
fn attributes(store: &TensorFile, range: &Range<usize>) -> Result<Attributes> {
    if to_u64(range.len()) > about::MOST {
        return Ok(Attributes::new());
    }
    let mut text = Spool::new(&store.options.account, LONGEST, "attributes of a tensor");
    store.manifest.attributes_text(range, 0, &mut text)?;
    // Values nested too deeply to be read back are not shown.
    Ok(serde_json::from_slice(&text.bytes()).unwrap_or_default())
}

/// The array in a part of a tensor that is not dense: one dimension, except for coordinates.
fn component_array(tensor: &Tensor<'_>, part: &Component<'_>) -> Option<Array> {
    let count = component::decoded_len(tensor, part).ok().flatten()? / part.element()?.width();
    let rank = to_u64(tensor.shape.len());
    // The coordinates form a matrix of rank x count.
    let matrix = part.role == "coords" && tensor.is_coo() && rank > 0 && count.is_multiple_of(rank);
    if matrix { typed(part, &[rank, count / rank]) } else { typed(part, &[count]) }
}

/// `stored/`: a directory for each tensor, with its components as stored.
struct StoredTensors(Arc<TensorFile>);

impl Directory for StoredTensors {
    fn entries(&self) -> Result<Vec<Entry>> {
        (0..self.0.manifest.len()).map(|index| self.entry(index)).collect()
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        (0..self.0.manifest.len()).try_for_each(|index| each(self.entry(index)?))
    }

    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        each(self.entry(to_usize(number.into(), "tensor")?)?)
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        components(&self.0, number, true)
    }
}

impl StoredTensors {
    fn entry(&self, index: usize) -> Result<Entry> {
        let tensor = self.0.manifest.tensor(index)?;
        let (node, item) = (Node::LazyDir(to_u64(index)), u32::try_from(index).ok());
        Ok(Entry { nested: true, item, ..Entry::named(tensor.name.as_bytes().to_vec(), "", node) })
    }
}

/// The directory of the components of a tensor.
fn components(store: &Arc<TensorFile>, number: u64, stored: bool) -> Result<Arc<dyn Directory>> {
    Ok(Arc::new(Components { store: Arc::clone(store), index: to_usize(number, "tensor")?, stored }))
}

/// The components of a tensor, decoded or as stored.
struct Components {
    store: Arc<TensorFile>,
    index: usize,
    stored: bool,
}

impl Directory for Components {
    fn attrs(&self) -> Attrs {
        self.store.manifest.tensor(self.index).map(|tensor| attrs(&tensor)).unwrap_or_default()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let tensor = self.store.manifest.tensor(self.index)?;
        let each = |(number, part): (u64, &Component<'_>)| {
            let (suffix, len, array) = if self.stored {
                (".bin", Some(part.len), None)
            } else {
                (".raw", known_len(&tensor, part), component_array(&tensor, part).and_then(|array| array.byte_len()))
            };
            let file = LazyFile { number, len, stored: part.len, array };
            Entry::named(part.role.as_bytes().to_vec(), suffix, Node::LazyFile(file))
        };
        Ok((0..).zip(&tensor.components).map(each).collect())
    }

    fn file(&self, number: u64) -> Result<File> {
        let (store, index, place) = (Arc::clone(&self.store), self.index, to_usize(number, "component")?);
        let tensor = store.manifest.tensor(index)?;
        let part = tensor.components.get(place).ok_or_else(|| Error::new(Kind::NotFound, "component"))?;
        let (len, at) = (part.len, part.at.0);
        if !self.stored {
            return Ok(decoded(&store, index, &tensor, place)?.typed(component_array(&tensor, part)));
        }
        let stored = Arc::clone(&store);
        let make = Arc::new(move || stored.stored(index, place).map(Content::FileExtent));
        Ok(File::new(Content::Deferred { len: Some(len), make }).stored(len).attr("offset", at))
    }
}

/// The description of a tensor in `<name>.json`.
fn describe(store: &TensorFile, tensor: &Tensor<'_>) -> Result<Spool> {
    let mut parts = Map::new();
    for part in &tensor.components {
        let mut map = Map::new();
        let mut add = |key: &str, value: Value| drop(map.insert(key.into(), value));
        add("dtype", part.dtype.as_ref().into());
        if let Some(logical) = &part.logical {
            add("type", logical.as_ref().into());
        }
        add("encoding", encoding(part).into());
        add("offset", part.at.0.into());
        add("stored_size", part.len.into());
        add("decoded_size", component::decoded_len(tensor, part).ok().flatten().into());
        for (key, value) in [("digest", &part.digest), ("shard", &part.shard), ("data_endianness", &part.endianness)] {
            if let Some(value) = value {
                add(key, value.as_ref().into());
            }
        }
        parts.insert(part.role.clone().into_owned(), map.into());
    }
    let mut map = Map::new();
    map.insert("name".into(), tensor.name.as_ref().into());
    map.insert("layout".into(), tensor.layout.as_ref().into());
    map.insert("shape".into(), json!(tensor.shape));
    map.insert("components".into(), parts.into());
    let mut out = Spool::new(&store.options.account, store.options.limits.structure, "description of a tensor");
    let text = text::json(&Value::from(map));
    match &tensor.attributes {
        None => out.push(text.as_bytes())?,
        Some(range) => {
            let open = text.strip_suffix("\n}").unwrap_or(&text);
            out.push(open.as_bytes())?;
            out.push(b",\n  \"attributes\": ")?;
            store.manifest.attributes_text(range, 1, &mut out)?;
            out.push(b"\n}")?;
        }
    }
    out.push(b"\n")?;
    Ok(out)
}
