//! The virtual files of a zTensor file.
#![forbid(unsafe_code)]

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::{Array, Attrs, Content, Directory, Entry, File, FileExtent, Node};
use crate::text;

use super::content::Store;
use super::manifest::{Encoding, Part, Tensor};
use super::spool::Spool;
use super::{npz, part, safetensors};

/// The root directory.
pub(super) fn root(store: &Arc<Store>) -> Vec<Entry> {
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
struct Tensors(Arc<Store>);

impl Directory for Tensors {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for index in 0..self.0.manifest.len() {
            let tensor = self.0.manifest.tensor(index)?;
            let mut add = |suffix, node: Node| {
                let stem = tensor.name.as_bytes().to_vec();
                entries.push(Entry { nested: true, ..Entry::named(stem, suffix, node) });
            };
            if let Some(place) = Store::role(&tensor, "data").filter(|_| tensor.is_dense()) {
                add(".raw", dense(&self.0, index, &tensor, place).into());
            } else {
                add("", Node::Dir(Arc::new(Components { store: Arc::clone(&self.0), index, stored: false })));
                if npz::fits(&tensor) {
                    let store = Arc::clone(&self.0);
                    let make = Arc::new(move || npz::content(&store, index));
                    add(".npz", File::new(Content::Deferred { len: None, make }).into());
                }
            }
            let store = Arc::clone(&self.0);
            let json = move || Ok(describe(&store, &store.manifest.tensor(index)?)?.content());
            add(".json", File::new(Content::Deferred { len: None, make: Arc::new(json) }).into());
        }
        Ok(entries)
    }
}

fn attrs(tensor: &Tensor<'_>) -> Attrs {
    vec![("layout", tensor.layout.clone().into_owned()), ("shape", format!("{:?}", tensor.shape))]
}

/// The decoded bytes of a part, created on first access.
fn decoded(store: &Arc<Store>, index: usize, tensor: &Tensor<'_>, place: usize) -> Option<File> {
    let part = tensor.parts.get(place)?;
    let len = part::decoded_len(tensor, part).ok().flatten().filter(|_| !matches!(part.encoding, Encoding::Unknown(_)));
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
    Some(file)
}

fn encoding<'a>(part: &'a Part<'_>) -> &'a str {
    match &part.encoding {
        Encoding::Raw => "raw",
        Encoding::Zstd => "zstd",
        Encoding::Seekable => "zt.zstd-seekable/1",
        Encoding::Unknown(name) => name,
    }
}

fn dense(store: &Arc<Store>, index: usize, tensor: &Tensor<'_>, place: usize) -> File {
    let element = tensor.parts.get(place).and_then(Part::element).filter(|e| !e.descr.is_empty());
    let array = element.map(|e| Array { descr: e.descr.into(), itemsize: e.width(), shape: tensor.shape.clone() });
    let Some(file) = decoded(store, index, tensor, place) else { return File::new(Content::Zeros(0)) };
    file.typed(array).attr("shape", format_args!("{:?}", tensor.shape))
}

fn component(store: &Arc<Store>, index: usize, tensor: &Tensor<'_>, place: usize) -> Option<Entry> {
    let part = tensor.parts.get(place)?;
    let file = decoded(store, index, tensor, place)?;
    let len = part::decoded_len(tensor, part).ok().flatten();
    let array = part.element().filter(|e| !e.descr.is_empty()).zip(len).map(|(e, len)| {
        let count = len / e.width();
        let rank = to_u64(tensor.shape.len());
        // The coordinates form a matrix of rank x count.
        let matrix = part.role == "coords" && tensor.is_coo() && rank > 0 && count.is_multiple_of(rank);
        let shape = if matrix { vec![rank, count / rank] } else { vec![count] };
        Array { descr: e.descr.into(), itemsize: e.width(), shape }
    });
    Some(Entry::named(part.role.as_bytes().to_vec(), ".raw", file.typed(array)))
}

/// `stored/`: a directory for each tensor, with its components as stored.
struct StoredTensors(Arc<Store>);

impl Directory for StoredTensors {
    fn entries(&self) -> Result<Vec<Entry>> {
        let each = |index| {
            let tensor = self.0.manifest.tensor(index)?;
            let node = Node::Dir(Arc::new(Components { store: Arc::clone(&self.0), index, stored: true }));
            Ok(Entry { nested: true, ..Entry::named(tensor.name.as_bytes().to_vec(), "", node) })
        };
        (0..self.0.manifest.len()).map(each).collect()
    }
}

/// The components of a tensor, decoded or as stored. Holds only the tensor's index, because there may be a million.
struct Components {
    store: Arc<Store>,
    index: usize,
    stored: bool,
}

impl Directory for Components {
    fn attrs(&self) -> Attrs {
        self.store.manifest.tensor(self.index).map(|tensor| attrs(&tensor)).unwrap_or_default()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let Self { store, index, stored } = self;
        let tensor = store.manifest.tensor(*index)?;
        if !stored {
            return Ok((0..tensor.parts.len()).filter_map(|place| component(store, *index, &tensor, place)).collect());
        }
        let each = |(place, part): (usize, &Part<'_>)| {
            let (store, index) = (Arc::clone(store), *index);
            let make = Arc::new(move || store.stored(index, place).map(Content::FileExtent));
            let file = File::new(Content::Deferred { len: Some(part.len), make });
            let file = file.stored(part.len).attr("offset", part.at.0);
            Entry::named(part.role.as_bytes().to_vec(), ".bin", file)
        };
        Ok(tensor.parts.iter().enumerate().map(each).collect())
    }
}

/// The description of a tensor in `<name>.json`.
fn describe(store: &Store, tensor: &Tensor<'_>) -> Result<Spool> {
    let mut parts = Map::new();
    for part in &tensor.parts {
        let mut map = Map::new();
        let mut add = |key: &str, value: Value| drop(map.insert(key.into(), value));
        add("dtype", part.dtype.as_ref().into());
        if let Some(logical) = &part.logical {
            add("type", logical.as_ref().into());
        }
        add("encoding", encoding(part).into());
        add("offset", part.at.0.into());
        add("stored_size", part.len.into());
        add("decoded_size", part::decoded_len(tensor, part).ok().flatten().into());
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
