//! The messages of an Arrow file, and the footer that says where they are.
//!
//! Reference: Arrow columnar format, sections "Serialization and Interprocess Communication" and "IPC File Format".
//! Invariant: the length of a record batch's message depends on the number of its columns alone.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::DictionaryTracker;
use arrow_ipc::{
    Block, Buffer, DictionaryBatch, DictionaryBatchArgs, FieldNode, Footer, FooterArgs, Message, MessageArgs,
    MessageHeader, MetadataVersion, RecordBatch, RecordBatchArgs,
};
use arrow_schema::Schema;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::bytes::to_u64;

/// Begins and ends a file; at the beginning, two zeros follow.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Marks a message, and ends the last one.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Alignment of bodies and of the buffers in them.
pub(super) const ALIGN: u64 = 64;

/// `len`, up to the next aligned one.
pub(super) fn aligned(len: u64) -> u64 {
    len.next_multiple_of(ALIGN)
}

/// Rows and missing values of a column; bytes of each of its buffers.
pub(super) type Column = (Vec<(u64, u64)>, Vec<u64>);

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The message with `header`, which has `body` bytes after it; `before` are the bytes of the file before it.
fn message(
    mut builder: FlatBufferBuilder<'_>,
    header_type: MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    (before, body): (u64, u64),
) -> Vec<u8> {
    let args = MessageArgs {
        version: MetadataVersion::V5,
        header_type,
        header: Some(header),
        bodyLength: signed(body),
        custom_metadata: None,
    };
    let root = Message::create(&mut builder, &args);
    builder.finish(root, None);
    let data = builder.finished_data();
    let end = aligned(before.saturating_add(8).saturating_add(to_u64(data.len())));
    let len = end.saturating_sub(before).saturating_sub(8);
    let mut out = CONTINUATION.to_vec();
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(data);
    out.resize(usize::try_from(len.saturating_add(8)).unwrap_or(usize::MAX), 0);
    out
}

fn encode<'a>(builder: &mut FlatBufferBuilder<'a>, schema: &Schema) -> WIPOffset<arrow_ipc::Schema<'a>> {
    let mut tracker = DictionaryTracker::new(false);
    IpcSchemaEncoder::new().with_dictionary_tracker(&mut tracker).schema_to_fb_offset(builder, schema)
}

/// The beginning of a file.
pub(super) fn head(schema: &Schema) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.resize(8, 0);
    let mut builder = FlatBufferBuilder::new();
    let header = encode(&mut builder, schema).as_union_value();
    out.extend(message(builder, MessageHeader::Schema, header, (8, 0)));
    out
}

/// Bytes of a body with these columns.
pub(super) fn body_len(columns: &[Column]) -> u64 {
    columns.iter().flat_map(|(_, buffers)| buffers).fold(0, |sum, &len| aligned(len).saturating_add(sum))
}

fn batch<'a>(builder: &mut FlatBufferBuilder<'a>, rows: u64, columns: &[Column]) -> WIPOffset<RecordBatch<'a>> {
    let nodes = columns.iter().flat_map(|(nodes, _)| nodes);
    let nodes: Vec<_> = nodes.map(|&(rows, nulls)| FieldNode::new(signed(rows), signed(nulls))).collect();
    let mut at = 0_u64;
    let place = |&len: &u64| {
        let buffer = Buffer::new(signed(at), signed(len));
        at = at.saturating_add(aligned(len));
        buffer
    };
    let buffers: Vec<_> = columns.iter().flat_map(|(_, buffers)| buffers).map(place).collect();
    let args = RecordBatchArgs {
        length: signed(rows),
        nodes: Some(builder.create_vector(&nodes)),
        buffers: Some(builder.create_vector(&buffers)),
        compression: None,
        variadicBufferCounts: None,
    };
    RecordBatch::create(builder, &args)
}

/// The message before the body of a record batch.
pub(super) fn record_batch(rows: u64, columns: &[Column]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let header = batch(&mut builder, rows, columns).as_union_value();
    message(builder, MessageHeader::RecordBatch, header, (0, body_len(columns)))
}

/// The message before the body of dictionary `id`.
pub(super) fn dictionary(id: u64, rows: u64, column: &Column) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let columns = std::slice::from_ref(column);
    let data = Some(batch(&mut builder, rows, columns));
    let args = DictionaryBatchArgs { id: signed(id), data, isDelta: false };
    let header = DictionaryBatch::create(&mut builder, &args).as_union_value();
    message(builder, MessageHeader::DictionaryBatch, header, (0, body_len(columns)))
}

/// Where a message is, and the bytes of it and of its body.
pub(super) fn block(at: u64, message: u64, body: u64) -> Block {
    Block::new(signed(at), i32::try_from(message).unwrap_or(i32::MAX), signed(body))
}

/// The end of a file.
pub(super) fn tail(schema: &Schema, dictionaries: &[Block], batches: &[Block]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let args = FooterArgs {
        version: MetadataVersion::V5,
        dictionaries: Some(builder.create_vector(dictionaries)),
        recordBatches: Some(builder.create_vector(batches)),
        schema: Some(encode(&mut builder, schema)),
        custom_metadata: None,
    };
    let footer = Footer::create(&mut builder, &args);
    builder.finish(footer, None);
    let data = builder.finished_data();
    let mut out = CONTINUATION.to_vec();
    out.extend([0; 4]);
    out.extend(data);
    out.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(MAGIC);
    out
}
