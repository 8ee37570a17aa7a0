//! The records of the stage table and of the buffer table.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;

/// An unused id slot.
pub(in crate::format::fzm) const UNUSED: u16 = 0xFFFF;

/// The flag of the stage that takes the data of the file as its input.
const PRIMARY: u16 = 1;

const PORTS: usize = 8;
const CONFIG: usize = 128;

/// One record of the stage table.
#[derive(Debug, Clone)]
pub(in crate::format::fzm) struct StageInfo {
    /// Offset of the record.
    pub(in crate::format::fzm) at: FileOffset,
    pub(in crate::format::fzm) stage_type: u16,
    pub(in crate::format::fzm) stage_version: u16,
    /// See [`PRIMARY`]; the other bits have no meaning yet, and writers of early files left them undefined.
    pub(in crate::format::fzm) stage_flags: u16,
    /// The buffers that the stage reads forward, in port order, without unused slots.
    pub(in crate::format::fzm) inputs: Vec<BufferSlot>,
    /// The buffers that the stage writes forward, in port order, without unused slots.
    pub(in crate::format::fzm) outputs: Vec<BufferSlot>,
    /// The valid bytes of `stage_config`.
    pub(in crate::format::fzm) config: Vec<u8>,
}

impl StageInfo {
    /// Offset of `stage_config`.
    pub(in crate::format::fzm) const fn config_at(&self) -> FileOffset {
        self.at.plus(40)
    }

    /// Whether its input is the data of the file.
    pub(in crate::format::fzm) const fn is_primary(&self) -> bool {
        self.stage_flags & PRIMARY != 0
    }
}

/// A buffer id in a stage record, and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format::fzm) struct BufferSlot {
    pub(in crate::format::fzm) id: u16,
    pub(in crate::format::fzm) at: FileOffset,
}

/// One record of the buffer table: a segment of the payload.
#[derive(Debug, Clone)]
pub(in crate::format::fzm) struct BufferEntry {
    /// Offset of the record.
    pub(in crate::format::fzm) at: FileOffset,
    pub(in crate::format::fzm) stage_type: u16,
    pub(in crate::format::fzm) stage_version: u16,
    pub(in crate::format::fzm) data_type: u8,
    pub(in crate::format::fzm) producer_output_idx: u8,
    pub(in crate::format::fzm) dag_buffer_id: u16,
    /// The producer's port name, up to the first NUL; arbitrary bytes.
    pub(in crate::format::fzm) name: Vec<u8>,
    /// Bytes of the segment.
    pub(in crate::format::fzm) data_size: u64,
    pub(in crate::format::fzm) allocated_size: u64,
    pub(in crate::format::fzm) uncompressed_size: u64,
    /// Offset of the segment in the payload.
    pub(in crate::format::fzm) byte_offset: u64,
    /// The valid bytes of `stage_config`.
    pub(in crate::format::fzm) config: Vec<u8>,
}

impl BufferEntry {
    /// Offset of `dag_buffer_id`.
    pub(in crate::format::fzm) const fn id_at(&self) -> FileOffset {
        self.at.plus(6)
    }
}

impl StageInfo {
    pub(super) fn parse(cur: &mut Cursor<'_>) -> Result<Self> {
        let at = cur.at();
        let stage_type = cur.u16_le("stage_type")?;
        let stage_version = cur.u16_le("stage_version")?;
        let count_at = cur.at();
        let num_inputs = count(cur.u8("num_inputs")?, "num_inputs", count_at)?;
        let num_outputs = count(cur.u8("num_outputs")?, "num_outputs", count_at.plus(1))?;
        let stage_flags = cur.u16_le("stage_flags")?;
        let inputs = slots(cur, num_inputs, "input_buffer_ids")?;
        let outputs = slots(cur, num_outputs, "output_buffer_ids")?;
        let config = config(cur)?;
        cur.take(84, "reserved")?;
        Ok(Self { at, stage_type, stage_version, stage_flags, inputs, outputs, config })
    }
}

fn count(n: u8, what: &'static str, at: FileOffset) -> Result<usize> {
    Limits::check(n.into(), to_u64(PORTS), what).map_err(|e| e.at(at))?;
    Ok(n.into())
}

/// Reads all eight slots; of the first `count`, keeps those with an id.
fn slots(cur: &mut Cursor<'_>, count: usize, what: &'static str) -> Result<Vec<BufferSlot>> {
    let all: Result<Vec<BufferSlot>> =
        (0..PORTS).map(|_| Ok(BufferSlot { at: cur.at(), id: cur.u16_le(what)? })).collect();
    Ok(all?.into_iter().take(count).filter(|slot| slot.id != UNUSED).collect())
}

/// `stage_config` and `config_size`, which end both kinds of records.
fn config(cur: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let bytes = cur.take(CONFIG, "stage_config")?;
    let at = cur.at();
    let size = cur.u32_le("config_size")?;
    Limits::check(size.into(), to_u64(CONFIG), "config_size").map_err(|e| e.at(at))?;
    Ok(bytes.iter().copied().take(usize::try_from(size).unwrap_or(CONFIG)).collect())
}

impl BufferEntry {
    pub(super) fn parse(cur: &mut Cursor<'_>, payload: u64) -> Result<Self> {
        let at = cur.at();
        let stage_type = cur.u16_le("stage_type")?;
        let stage_version = cur.u16_le("stage_version")?;
        let data_type = cur.u8("data_type")?;
        let producer_output_idx = cur.u8("producer_output_idx")?;
        let dag_buffer_id = cur.u16_le("dag_buffer_id")?;
        let name = cur.take(64, "name")?.iter().copied().take_while(|&b| b != 0).collect();
        let size_at = cur.at();
        let data_size = cur.u64_le("data_size")?;
        let allocated_size = cur.u64_le("allocated_size")?;
        let uncompressed_size = cur.u64_le("uncompressed_size")?;
        let offset_at = cur.at();
        let byte_offset = cur.u64_le("byte_offset")?;
        let config = config(cur)?;
        cur.take(20, "reserved")?;
        let Some(have) = payload.checked_sub(byte_offset) else {
            let why = format!("{byte_offset} is past the end of the payload of {payload} bytes");
            return Err(Error::corrupt(why, "byte_offset").at(offset_at));
        };
        if data_size > have {
            return Err(Error::new(Kind::Truncated { need: data_size, have }, "data_size").at(size_at));
        }
        Ok(Self {
            at,
            stage_type,
            stage_version,
            data_type,
            producer_output_idx,
            dag_buffer_id,
            name,
            data_size,
            allocated_size,
            uncompressed_size,
            byte_offset,
            config,
        })
    }
}
