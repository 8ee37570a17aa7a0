//! The directories of metalayers, and their values: as stored, or the content of a chunk.
#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::Value;

use crate::bytes::to_u64;
use crate::checksum::ChecksumGate;
use crate::error::{Error, Result};
use crate::format::{BlobRef, Content, Directory, Entry, Fetch, File, FileExtent, Node};
use crate::limits::zeroed;
use crate::source::Source;
use crate::text;

use super::chunk_blob::ChunkBlob;
use super::chunk_index::ChunkIndex;
use super::entries::{failing, unknown_directory};
use super::frame::Frame;
use super::item_spec::ItemSpec;
use super::json;
use super::memory::ContainerMemory;
use super::metalayer::Metalayer;
use super::stored_chunk::ChunkLocation;

/// Values up to this many bytes are also shown as JSON, up to a total for each directory: they are decoded when it is
/// listed.
const JSON: u64 = 256 << 10;
const JSON_IN_ALL: u64 = 4 << 20;
/// Maximum length of the JSON: deep nesting indents a byte of the value by a hundred.
const TEXT: usize = 8 << 20;

/// `metalayers/` or `vlmetalayers/`.
pub(super) struct Metalayers {
    source: Arc<Source>,
    layers: Vec<Metalayer>,
    /// Present if each value is a chunk: the memory to decode it with.
    chunks: Option<Arc<ContainerMemory>>,
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
        let variable = match &frame.vlmetalayers {
            Ok(layers) => dir("vlmetalayers", layers, chunks),
            Err(error) => Some(Entry::own("vlmetalayers", unknown_directory(error))),
        };
        [dir("metalayers", &frame.metalayers, None), variable].into_iter().flatten().collect()
    }
}

/// The chunk that is the value of a variable-length metalayer.
pub(super) fn value_of(
    source: &Arc<Source>,
    layer: &Metalayer,
    memory: &Arc<ContainerMemory>,
) -> Result<Arc<ChunkIndex>> {
    let name = || format!("metalayer {:?}", String::from_utf8_lossy(&layer.name));
    let location = ChunkLocation { source: source.clone(), at: layer.at, max_len: layer.len };
    let header = location.header().map_err(|e| e.within(name()))?;
    if u64::from(header.cbytes) != layer.len {
        let why = format!("a chunk of {} bytes in a value of {}", header.cbytes, layer.len);
        return Err(Error::corrupt(why, "cbytes").at(layer.at.plus(0x0C)).within(name()));
    }
    let item = ItemSpec { memory: Arc::clone(memory), typesize: None, blockshape: Ok(None) };
    Ok(Arc::new(ChunkIndex::single(location, header.nbytes.into(), item)))
}

/// Counts down the bytes that may still be written.
struct OutputLeft(usize);

impl fmt::Write for OutputLeft {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// The bytes of the value of a metalayer: as stored, or the content of a chunk.
#[derive(Clone)]
pub(super) enum LayerValue {
    Stored(Arc<Source>, Metalayer),
    Chunk(Arc<ChunkIndex>),
}

impl LayerValue {
    /// The value of a variable-length metalayer.
    pub(super) fn of_chunk(source: &Arc<Source>, layer: &Metalayer, memory: &Arc<ContainerMemory>) -> Result<Self> {
        value_of(source, layer, memory).map(Self::Chunk)
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Stored(_, layer) => layer.len,
            Self::Chunk(chunk) => chunk.total(),
        }
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        match self {
            Self::Stored(source, layer) => source.get(layer.at, layer.len, "metalayer value"),
            Self::Chunk(chunk) => {
                let mut bytes = zeroed(chunk.total(), "metalayer value")?;
                chunk.read(0, 0, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// The value as JSON; `None` if it is not `MessagePack`, or longer than [`TEXT`].
    pub(super) fn json(&self) -> Result<Option<Vec<u8>>> {
        let bytes = self.bytes()?;
        let fits = |json: &Value| write!(OutputLeft(TEXT), "{json:#}").is_ok();
        Ok(json::to_json(&bytes).filter(fits).map(|json| (text::json(&json) + "\n").into_bytes()))
    }
}

impl Directory for Metalayers {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut left = JSON_IN_ALL;
        for layer in &self.layers {
            let (file, value) = match &self.chunks {
                Some(memory) => self.decoded(layer, memory)?,
                None => self.plain(layer),
            };
            entries.push(Entry::named(layer.name.clone(), ".msgpack", file));
            let Some(value) = value.filter(|value| value.len() <= left.min(JSON)) else { continue };
            left -= value.len();
            if let Some(json) = self.json(value)? {
                entries.push(Entry::named(layer.name.clone(), ".json", File::new(json)));
            }
        }
        Ok(entries)
    }
}

impl Metalayers {
    /// `value` as JSON; `None` if it has none, or is a corrupt chunk. It is made again for each reader, and
    /// withheld by the same gate as the value.
    fn json(&self, value: LayerValue) -> Result<Option<Content>> {
        let len = match (value.json(), &value) {
            (Ok(Some(json)), _) => to_u64(json.len()),
            (Ok(None), _) | (Err(_), LayerValue::Chunk(_)) => return Ok(None),
            (Err(e), LayerValue::Stored(..)) => return Err(e),
        };
        let gate = self.gate.clone();
        let make = move |_: &dyn Fetch| {
            gate.as_ref().map_or(Ok(()), ChecksumGate::wait)?;
            value.json()?.ok_or_else(|| Error::corrupt("not MessagePack", "metalayer value"))
        };
        Ok(Some(Content::Computed { len: Some(len), make: Arc::new(make) }))
    }

    fn plain(&self, layer: &Metalayer) -> (File, Option<LayerValue>) {
        let stored = FileExtent { source: self.source.clone(), at: layer.at, len: layer.len, gate: self.gate.clone() };
        let file = File::new(Content::FileExtent(stored)).stored(layer.len).attr("offset", layer.at.0);
        (file, Some(LayerValue::Stored(self.source.clone(), layer.clone())))
    }

    /// A corrupt value gets a file that fails on every use.
    fn decoded(&self, layer: &Metalayer, memory: &Arc<ContainerMemory>) -> Result<(File, Option<LayerValue>)> {
        let chunk = match value_of(&self.source, layer, memory) {
            Ok(chunk) => chunk,
            Err(error) => return Ok((File::new(failing(error)?).stored(layer.len), None)),
        };
        let blob = BlobRef::new(ChunkBlob::new(Arc::clone(&chunk), self.gate.clone()));
        let file = File::new(Content::Blob(blob)).stored(layer.len).attr("offset", layer.at.0);
        Ok((file, Some(LayerValue::Chunk(chunk))))
    }
}
