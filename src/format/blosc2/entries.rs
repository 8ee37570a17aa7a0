//! The virtual files of a frame or a bare chunk.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::to_u64;
use crate::checksum::ChecksumGate;
use crate::error::{Error, Result};
use crate::format::{
    Array, Attrs, BlobRef, Content, Directory, Dtype, Entry, File, FileExtent, Grid, IndexedDir, Node,
};
use crate::source::Source;

use super::b2nd;
use super::chunk::Place;
use super::data::Data;
use super::filter::Item;
use super::frame::Frame;
use super::header::{self, Header, Kind};
use super::memory::Memory;
use super::meta::Metalayer;
use super::msgpack;
use super::series::Series;

/// Values up to this many bytes are also shown as JSON.
const JSON: u64 = 1 << 20;

/// The decoded content of a frame or bare chunk: its chunks, item size and array geometry.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) series: Arc<Series>,
    pub(super) data: Arc<Data>,
    pub(super) blob: BlobRef,
    /// Item size in bytes.
    pub(super) typesize: u32,
    pub(super) array: Option<b2nd::Array>,
    /// Bytes that the chunks take in the file.
    pub(super) stored: u64,
    gate: Option<ChecksumGate>,
}

impl Decoded {
    pub(super) fn new(
        series: Arc<Series>,
        typesize: u32,
        array: Option<b2nd::Array>,
        stored: u64,
        gate: Option<ChecksumGate>,
    ) -> Self {
        let data = Arc::new(Data::new(series.clone(), gate.clone()));
        Self { series, blob: BlobRef::shared(data.clone()), data, typesize, array, stored, gate }
    }

    /// Size of `data.raw`.
    pub(super) fn len(&self) -> u64 {
        match &self.array {
            // Checked when the frame was opened.
            Some(array) => array.items().unwrap_or(0).saturating_mul(self.typesize.into()),
            None => self.series.total(),
        }
    }

    /// The element type and shape of `data.npy`.
    pub(super) fn typed(&self, options: &Typed) -> Result<Array> {
        let dtype = match (&options.dtype, &self.array) {
            (Some(dtype), _) => dtype.clone(),
            (None, Some(array)) => array.descr(self.typesize),
            (None, None) => Dtype::opaque(self.typesize.into()),
        };
        let shape = match (&options.shape, &self.array) {
            (Some(shape), _) => shape.clone(),
            (None, Some(array)) if dtype.itemsize == u64::from(self.typesize) => array.shape.clone(),
            _ => vec![self.len() / dtype.itemsize],
        };
        let array = Array { descr: dtype.descr, itemsize: dtype.itemsize, shape };
        match array.byte_len() {
            Some(len) if len <= self.len() => Ok(array),
            _ => {
                let why = format!("{:?} items of {} bytes are more than {}", array.shape, array.itemsize, self.len());
                Err(Error::new(crate::error::Kind::Usage(why.into()), "shape"))
            }
        }
    }

    /// `data.raw`, `chunks/` and `stored/`.
    pub(super) fn entries(&self, typed: &Typed) -> Result<Vec<Entry>> {
        let data = File::new(self.content()?)
            .stored(self.stored)
            .typed(Some(self.typed(typed)?))
            .attr("typesize", self.typesize);
        let chunks = Chunks { series: self.series.clone(), blob: self.blob.clone() };
        let stored = StoredChunks { series: self.series.clone(), gate: self.gate.clone() };
        Ok(vec![
            Entry::own("data.raw", data),
            Entry::own("chunks", Node::IndexedDir(Arc::new(chunks))),
            Entry::own("stored", Node::IndexedDir(Arc::new(stored))),
        ])
    }

    fn content(&self) -> Result<Content> {
        let Some(array) = &self.array else {
            return match self.series.fixed() {
                Some(_) => Ok(Content::Blob(self.blob.clone())),
                None => variable(&self.series, &self.blob),
            };
        };
        Ok(match array.shape.len() {
            _ if self.len() == 0 => Content::bytes([]),
            0 => Content::Blob(self.blob.clone()).slice(0..self.len()),
            _ => Content::Grid(Arc::new(Grid {
                blob: self.blob.clone(),
                itemsize: self.typesize.into(),
                shape: array.shape.clone(),
                chunk: array.chunk.iter().map(|&n| n.into()).collect(),
                block: array.block.iter().map(|&n| n.into()).collect(),
            })),
        })
    }
}

/// Element type and shape given by the user.
#[derive(Debug, Clone, Default)]
pub(super) struct Typed {
    pub(super) dtype: Option<Dtype>,
    pub(super) shape: Option<Vec<u64>>,
}

/// The content of a series whose chunks differ in size; fails on every use if one of the sizes is unknown.
fn variable(series: &Arc<Series>, blob: &BlobRef) -> Result<Content> {
    match series.listed() {
        Ok(list) => match list.unknown.first() {
            None => Ok(Content::Blob(blob.clone())),
            Some(&i) => broken(series.why_unknown(i)),
        },
        Err(error) => broken(error),
    }
}

/// A file that fails with `error` on every use.
///
/// # Errors
/// Fails with `error` itself if it is transient, so that the directory can be listed again.
pub(super) fn broken(error: Error) -> Result<Content> {
    if !error.is_lasting() {
        return Err(error);
    }
    Ok(Content::Computed { len: None, make: Arc::new(move |_| Err(error.clone())) })
}

/// The attributes that the header of a chunk gives.
fn attrs(place: &Place, header: &Header) -> Attrs {
    let mut attrs: Attrs = vec![
        ("codec", header.codec_name().into()),
        ("stored_size", header.cbytes.to_string()),
        ("offset", place.at.0.to_string()),
        ("blocksize", header.blocksize.to_string()),
    ];
    if matches!(header.kind, Kind::Blocks | Kind::VlBlocks { .. }) {
        let filters = header.filters.iter().filter(|f| f.id != 0).map(|f| header::filter_name(f.id));
        attrs.push(("filters", filters.collect::<Vec<_>>().join(", ")));
    }
    attrs
}

/// `chunks/`: the decoded chunks.
struct Chunks {
    series: Arc<Series>,
    blob: BlobRef,
}

impl IndexedDir for Chunks {
    fn count(&self) -> u64 {
        self.series.count()
    }

    fn suffix(&self) -> &'static str {
        ".raw"
    }

    fn file(&self, index: u64) -> Result<File> {
        let range = self.series.range(index)?;
        let mut file = File::new(Content::Blob(self.blob.clone()).slice(range));
        // An unreadable header is reported when the chunk is read.
        match self.series.header(index) {
            Ok(Some((place, header))) => {
                file.stored = header.cbytes.into();
                file.attrs = attrs(&place, &header);
            }
            Ok(None) => file = file.attr("codec", "special entry of the index"),
            Err(_) => {}
        }
        Ok(file)
    }
}

/// `stored/`: the chunks as stored.
struct StoredChunks {
    series: Arc<Series>,
    gate: Option<ChecksumGate>,
}

impl IndexedDir for StoredChunks {
    fn count(&self) -> u64 {
        self.series.count()
    }

    fn suffix(&self) -> &'static str {
        ".bin"
    }

    fn next(&self, index: u64) -> Result<Option<u64>> {
        self.series.next_stored(index)
    }

    fn file(&self, index: u64) -> Result<File> {
        let within = |e: Error| e.within(format_args!("chunk {index}"));
        let Some((place, header)) = self.series.header(index).map_err(within)? else {
            return Err(Error::new(crate::error::Kind::NotFound, "chunk"));
        };
        let len = u64::from(header.cbytes);
        let attrs = attrs(&place, &header);
        let stored = FileExtent { source: place.source, at: place.at, len, gate: self.gate.clone() };
        Ok(File { attrs, ..File::new(Content::FileExtent(stored)).stored(len) })
    }
}

/// `metalayers/` or `vlmetalayers/`.
pub(super) struct Metalayers {
    source: Arc<Source>,
    layers: Vec<Metalayer>,
    /// Present if each value is a chunk: the memory to decode it with.
    chunks: Option<Arc<Memory>>,
    gate: Option<ChecksumGate>,
}

impl Metalayers {
    /// `metalayers/` and `vlmetalayers/` of a frame, without empty ones.
    pub(super) fn entries_of(frame: &Frame) -> Vec<Entry> {
        let dir = |name, layers: &Vec<Metalayer>, chunks| {
            let (source, layers, gate) = (frame.source.clone(), layers.clone(), frame.gate.clone());
            let dir = Self { source, layers, chunks, gate };
            (!dir.layers.is_empty()).then(|| Entry::own(name, Node::Dir(Arc::new(dir))))
        };
        let chunks = Some(Arc::clone(&frame.chunks.item().memory));
        let both = [dir("metalayers", &frame.metalayers, None), dir("vlmetalayers", &frame.vlmetalayers, chunks)];
        both.into_iter().flatten().collect()
    }
}

/// The chunk that is the value of a variable-length metalayer.
pub(super) fn value_of(source: &Arc<Source>, layer: &Metalayer, memory: &Arc<Memory>) -> Result<Arc<Series>> {
    let name = || format!("metalayer {:?}", String::from_utf8_lossy(&layer.name));
    let place = Place { source: source.clone(), at: layer.at, room: layer.len };
    let header = place.header().map_err(|e| e.within(name()))?;
    if u64::from(header.cbytes) != layer.len {
        let why = format!("{} bytes of chunk in a value of {}", header.cbytes, layer.len);
        return Err(Error::corrupt(why, "cbytes").at(layer.at.plus(0x0C)).within(name()));
    }
    let item = Item { memory: Arc::clone(memory), typesize: None, blockshape: None };
    Ok(Arc::new(Series::single(place, header.nbytes.into(), item)))
}

impl Directory for Metalayers {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for layer in &self.layers {
            let (file, bytes) = match &self.chunks {
                Some(memory) => self.decoded(layer, memory)?,
                None => self.plain(layer)?,
            };
            entries.push(Entry::named(layer.name.clone(), ".msgpack", file));
            if let Some(json) = bytes.as_deref().and_then(msgpack::to_json) {
                entries.push(Entry::named(layer.name.clone(), ".json", File::new(self.json(&json))));
            }
        }
        Ok(entries)
    }
}

impl Metalayers {
    /// The value as JSON. Its bytes had to be read to make it, but it is withheld by the same gate as the value.
    fn json(&self, value: &serde_json::Value) -> Content {
        match (Content::json(value), self.gate.clone()) {
            (Content::Bytes(bytes), Some(gate)) => Content::Computed {
                len: Some(to_u64(bytes.len())),
                make: Arc::new(move |_| gate.wait().map(|()| bytes.to_vec())),
            },
            (content, _) => content,
        }
    }

    fn plain(&self, layer: &Metalayer) -> Result<(File, Option<Vec<u8>>)> {
        let stored = FileExtent { source: self.source.clone(), at: layer.at, len: layer.len, gate: self.gate.clone() };
        let file = File::new(Content::FileExtent(stored)).stored(layer.len).attr("offset", layer.at.0);
        let small = layer.len <= JSON;
        let bytes = small.then(|| self.source.get(layer.at, layer.len, "metalayer value")).transpose()?;
        Ok((file, bytes))
    }

    /// A corrupt value gets a file that fails on every use.
    fn decoded(&self, layer: &Metalayer, memory: &Arc<Memory>) -> Result<(File, Option<Vec<u8>>)> {
        let series = match value_of(&self.source, layer, memory) {
            Ok(series) => series,
            Err(error) => return Ok((File::new(broken(error)?).stored(layer.len), None)),
        };
        let len = series.total();
        let mut bytes = vec![0; if len <= JSON { len as usize } else { 0 }];
        let bytes = (len <= JSON && series.read(0, 0, &mut bytes).is_ok()).then_some(bytes);
        let blob = BlobRef::new(Data::new(series, self.gate.clone()));
        Ok((File::new(Content::Blob(blob)).stored(layer.len).attr("offset", layer.at.0), bytes))
    }
}
