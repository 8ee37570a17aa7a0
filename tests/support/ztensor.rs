//! zTensor files that are small and claim much, in the least bytes.
#![allow(dead_code, reason = "each test binary takes what it needs")]

use ciborium::Value;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC_2: &[u8; 8] = b"\x89ZT2\r\n\x1a\n";

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub(crate) fn map(pairs: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(key, value)| (Value::Text(key), value)).collect())
}

pub(crate) fn fields<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    map(pairs.map(|(key, value)| (key.to_owned(), value)))
}

pub(crate) fn array(numbers: &[u64]) -> Value {
    Value::Array(numbers.iter().map(|&n| n.into()).collect())
}

/// A Zstandard frame of `len` bytes `byte` in blocks of 128 KiB, four bytes each.
pub(crate) fn run_length_frame(len: u64, byte: u8) -> Vec<u8> {
    const BLOCK: u64 = 128 << 10;
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, (17 - 10) << 3];
    out.extend(len.to_le_bytes());
    let mut left = len;
    loop {
        let n = left.min(BLOCK);
        left -= n;
        let head = (n << 3) | 0b10 | u64::from(left == 0);
        out.extend(&head.to_le_bytes()[..3]);
        out.push(byte);
        if left == 0 {
            return out;
        }
    }
}

/// A frame of whatever bytes, uncompressed.
pub(crate) fn raw_frame(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, (17 - 10) << 3];
    out.extend((bytes.len() as u64).to_le_bytes());
    let blocks = bytes.chunks(128 << 10);
    let last = blocks.len() - 1;
    for (i, block) in blocks.enumerate() {
        let head = ((block.len() as u64) << 3) | u64::from(i == last);
        out.extend(&head.to_le_bytes()[..3]);
        out.extend(block);
    }
    out
}

/// A part of `zt.zstd-seekable/1`.
pub(crate) fn seekable(frames: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut table = Vec::new();
    for (frame, len) in frames {
        table.extend((frame.len() as u32).to_le_bytes());
        table.extend((*len as u32).to_le_bytes());
    }
    table.extend((frames.len() as u32).to_le_bytes());
    table.push(0);
    table.extend(0x8F92_EAB1_u32.to_le_bytes());
    let mut out: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.clone()).collect();
    out.extend(0x184D_2A5E_u32.to_le_bytes());
    out.extend((table.len() as u32).to_le_bytes());
    out.extend(table);
    out
}

pub(crate) fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// A file of dialect 1.2 with `blobs`, whose places `objects` gets.
pub(crate) fn version_12(blobs: &[Vec<u8>], objects: impl FnOnce(&[(u64, u64)]) -> Value) -> Vec<u8> {
    let mut out = b"ZTEN1000".to_vec();
    let mut places = Vec::new();
    for blob in blobs {
        out.resize(out.len().next_multiple_of(64), 0);
        places.push((out.len() as u64, blob.len() as u64));
        out.extend(blob);
    }
    let manifest = cbor(&fields([("version", text("1.2.0")), ("objects", objects(&places))]));
    out.extend(&manifest);
    out.extend((manifest.len() as u64).to_le_bytes());
    out.extend(b"ZTEN1000");
    out
}

/// A file of dialect 0.1 with one tensor `t` of `bytes`, described by `more` fields too.
pub(crate) fn version_01<const N: usize>(bytes: &[u8], shape: &[u64], more: [(&str, Value); N]) -> Vec<u8> {
    let mut out = b"ZTEN0001".to_vec();
    out.resize(64, 0);
    out.extend(bytes);
    let place = [("name", text("t")), ("offset", 64_u64.into()), ("size", (bytes.len() as u64).into())];
    let own = place.into_iter().chain([("shape", array(shape)), ("encoding", text("raw"))]).chain(more);
    let manifest = cbor(&Value::Array(vec![map(own.map(|(key, value)| (key.to_owned(), value)))]));
    out.extend(&manifest);
    out.extend((manifest.len() as u64).to_le_bytes());
    out
}

/// A file of dialect 2; keys have to be in their order.
pub(crate) fn version_2(blobs: &[Vec<u8>], root: impl FnOnce(&[(u64, u64)]) -> Value) -> Vec<u8> {
    let mut out = MAGIC_2.to_vec();
    let mut places = Vec::new();
    for blob in blobs {
        out.resize(out.len().next_multiple_of(4096), 0);
        places.push((out.len() as u64, blob.len() as u64));
        out.extend(blob);
    }
    out.resize(out.len().next_multiple_of(4096).max(4096), 0);
    let (at, manifest) = (out.len() as u64, cbor(&root(&places)));
    out.extend(&manifest);
    for field in [at, manifest.len() as u64, xxh3_64(&manifest)] {
        out.extend(field.to_le_bytes());
    }
    out.extend(2_u64.to_le_bytes());
    out.extend(MAGIC_2);
    out
}

/// A file of dialect 1.2 with `count` tensors without bytes, whose names and layouts `each` makes.
pub(crate) fn empty_tensors(count: usize, each: impl Fn(usize) -> (String, String)) -> Vec<u8> {
    version_12(&[], |_| {
        let tensor = |i| {
            let (name, layout) = each(i);
            let data = fields([("dtype", text("u8")), ("offset", 8_u64.into()), ("length", 0_u64.into())]);
            let parts = fields([("data", data)]);
            (name, fields([("shape", array(&[0])), ("format", text(&layout)), ("components", parts)]))
        };
        map((0..count).map(tensor))
    })
}

/// Compressed rows without values, `count` row pointers that are all `byte`.
pub(crate) fn rows(count: u64, byte: u8) -> Vec<u8> {
    version_12(&[run_length_frame(count, byte), Vec::new(), Vec::new()], |places| {
        let part = |i: usize, dtype: &str| {
            vec![("dtype", text(dtype)), ("offset", places[i].0.into()), ("length", places[i].1.into())]
        };
        let mut pointers = part(0, "u8");
        pointers.extend([("encoding", text("zstd")), ("uncompressed_length", count.into())]);
        let parts = [("values", part(1, "f32")), ("indices", part(2, "u32")), ("indptr", pointers)];
        let own = |pairs: Vec<(&str, Value)>| map(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)));
        let parts = map(parts.map(|(role, part)| (role.to_owned(), own(part))));
        let tensor = [("shape", array(&[count - 1, 4])), ("format", text("sparse_csr")), ("components", parts)];
        fields([("t", fields(tensor))])
    })
}

/// A coordinate list of rank 1 and dialect 2: `coords` for as many values.
pub(crate) fn cells(extent: u64, values: Vec<u8>, coords: Vec<u8>, (dtype, count, width): (&str, u64, u64)) -> Vec<u8> {
    version_2(&[values, coords], |places| {
        let part = |i: usize, dtype: &str, len: u64| {
            let blob = array(&[places[i].0, places[i].1]);
            let encoding = text("zt.zstd-seekable/1");
            fields([("blob", blob), ("dtype", text(dtype)), ("encoding", encoding), ("decoded_length", len.into())])
        };
        let parts = fields([("coords", part(1, dtype, count * width)), ("values", part(0, "u8", count))]);
        let tensor = [("parts", parts), ("shape", array(&[extent])), ("layout", text("zt.sparse_coo/1"))];
        fields([("objects", fields([("t", fields(tensor))]))])
    })
}

/// A file with `count` shards, each with a tensor; `shard` says which one a tensor is in, and its blob.
pub(crate) fn sharded(count: u64, shard: impl Fn(u64) -> (String, u64)) -> Vec<u8> {
    version_2(&[], |_| {
        let entry = |i: u64| {
            let entry = fields([("size", 8192_u64.into()), ("digest", text("xxh3:0000000000000000"))]);
            (format!("s{i:07}"), entry)
        };
        let tensor = |i: u64| {
            let (name, len) = shard(i);
            let part = fields([("blob", array(&[4096, len])), ("dtype", text("u8")), ("shard", text(&name))]);
            let parts = fields([("data", part)]);
            (format!("n{i:07}"), fields([("parts", parts), ("shape", array(&[len])), ("layout", text("dense"))]))
        };
        let tensors = map((0..count).map(tensor));
        fields([("shards", map((0..count).map(entry))), ("objects", tensors)])
    })
}

/// A tensor of `count` empty parts.
pub(crate) fn many_parts(count: u64) -> Vec<u8> {
    version_12(&[], |_| {
        let part = || fields([("dtype", text("u8")), ("offset", 8_u64.into()), ("length", 0_u64.into())]);
        let parts = map((0..count).map(|i| (format!("{i:08}"), part())));
        let tensor = [("shape", array(&[0])), ("format", text("x")), ("components", parts)];
        fields([("t", fields(tensor))])
    })
}

/// A checkpoint of dialect 1.2: `count` tensors of 16 bytes, each with a digest, with names as models have them.
pub(crate) fn checkpoint(count: u64) -> Vec<u8> {
    let blob: Vec<u8> = (0..16 * count).map(|i| i as u8).collect();
    version_12(&[blob], |places| {
        let tensor = |i: u64| {
            let at = places[0].0 + 16 * i;
            let bytes: Vec<u8> = (16 * i..16 * (i + 1)).map(|i| i as u8).collect();
            let digest = format!("crc32c:0x{:08X}", crc32c::crc32c(&bytes));
            let data =
                [("dtype", text("f32")), ("offset", at.into()), ("length", 16_u64.into()), ("digest", text(&digest))];
            let parts = fields([("data", fields(data))]);
            let tensor = [("shape", array(&[2, 2])), ("format", text("dense")), ("components", parts)];
            (format!("model.layers.{i:06}.self_attn.q_proj.weight"), fields(tensor))
        };
        map((0..count).map(tensor))
    })
}
