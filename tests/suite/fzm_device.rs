//! FZM on a device: the bytes equal those of the CPU, of NaNs too; if the device fails, the CPU decodes.
//!
//! The device is the host, which runs the same kernels with fibers as threads.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use fzm_writer::{Dtype, Form, Pipeline, Random, Run, Source, field};
use fzmfs::error::Result;
use fzmfs::format::fzm::device::{Fusing, Order, Plan, STAGES};
use fzmfs::format::fzm::stream::ByteStream;
use fzmfs::format::{BlobRef, Options};
use fzmfs::gpu::{Device, Gpu};

use proptest::prelude::*;
use serde_json::Value;

use crate::blobs::{decode_row, decoded_blobs, row_len};
use crate::fzm_inverses::inverses;
use crate::fzm_properties::{self, difference};
use crate::gpu::{Host, driver};
use crate::support::opened::{data, open};
use crate::support::{cases, hostile};

/// The inverse of the first stage of `run` with a few bytes of segment `index` changed; `None` if opening it fails.
fn changed(run: &Run, index: usize, random: &mut Random) -> Option<Arc<dyn ByteStream>> {
    let change = |i: usize, mut bytes: Vec<u8>| {
        for _ in 0..if i == index { 1 + random.below(2) } else { 0 } {
            // Often in the bitmaps at the end of the last chunk.
            let near = if random.below(2) == 0 { bytes.len() } else { 100.min(bytes.len()) };
            let at = bytes.len() - 1 - random.below(near);
            bytes[at] ^= 1 << random.below(8);
        }
        bytes
    };
    Some(inverses(run, change).ok()?.pop()?.1)
}

/// The inverse of each stage of `run`, with its name.
fn unchanged(run: &Run) -> Vec<(&'static str, Arc<dyn ByteStream>)> {
    inverses(run, |_, bytes| bytes).unwrap()
}

/// Whether the bytes are equal, or with `loose` are floats up to two units apart.
fn alike(got: &[u8], want: &[u8], loose: bool) -> bool {
    let nans = |bytes: &[u8]| -> Vec<(usize, [u8; 4])> {
        let words = bytes.as_chunks::<4>().0.iter().copied().enumerate();
        words.filter(|(_, word)| f32::from_le_bytes(*word).is_nan()).collect()
    };
    let differ = |dtype: &Dtype| difference(*dtype, true, got, want).is_none();
    got == want || loose && nans(got) == nans(want) && [Dtype::F32, Dtype::F64].iter().any(differ)
}

/// Whether values from a GPU may differ by two units: it has its own exponential function (section 8).
fn is_loose(name: &str) -> bool {
    let relative =
        name.contains("quantizer") && name.contains("mode=rel") || name.contains("qz_rel") || name.contains("pfpl");
    relative && driver::is_real()
}

/// Compares `stream` and random windows of it from the device with those from the CPU.
fn windows_agree(what: &str, stream: &Arc<dyn ByteStream>, device: &dyn Device, random: &mut Random) {
    for fusing in [Fusing::Yes, Fusing::No] {
        let plan = Plan::of(stream, Order::Bytes, fusing).unwrap_or_else(|| panic!("{what}: no plan"));
        let len = stream.len() as usize;
        for n in 0..=cases(4) {
            let start = if n == 0 { 0 } else { random.below(len + 1) };
            let size = if n == 0 { len } else { random.below(len - start + 1) };
            let mut want = vec![0x11; size];
            stream.read(start as u64, &mut want).unwrap();
            let mut got = vec![0x77; size];
            let (front, back) = got.split_at_mut(random.below(size + 1));
            plan.decode(device, start as u64, &mut [front, back])
                .unwrap_or_else(|e| panic!("{what} {fusing:?} {start}+{size}: {e:?}"));
            let at = got.iter().zip(&want).position(|(a, b)| a != b);
            assert!(alike(&got, &want, is_loose(what)), "{what} {fusing:?} {start}+{size} of {len}: byte {at:?}");
        }
        let Some(bricks) = stream.bricks() else { continue };
        let count: u64 = bricks.shape.iter().zip(&bricks.brick).map(|(n, b)| n.div_ceil(*b)).product();
        let piece = bricks.itemsize * bricks.brick.iter().product::<u64>();
        let plan = Plan::of(stream, Order::Bricks { len: count * piece }, fusing).unwrap();
        let mut want = vec![0; (count * piece) as usize];
        for (i, own) in (0..).zip(want.chunks_mut(piece as usize)) {
            stream.read_brick(i, own).unwrap();
        }
        for n in 0..=cases(4) {
            let first = if n == 0 { 0 } else { random.below(count as usize) };
            let last = if n == 0 { count as usize } else { first + 1 + random.below(count as usize - first) };
            let mut got = vec![0x77; (last - first) * piece as usize];
            let mut pieces: Vec<&mut [u8]> = got.chunks_mut(piece as usize).collect();
            let done = plan.decode(device, first as u64 * piece, &mut pieces);
            // The device refuses a batch with few bricks of a layer.
            if done.is_ok() || (last - first) as u64 >= bricks.layer() {
                done.unwrap();
                let want = &want[first * piece as usize..last * piece as usize];
                let at = got.iter().zip(want).position(|(a, b)| a != b);
                assert!(alike(&got, want, false), "{what}: bricks {first}..{last}: byte {at:?}");
            }
        }
    }
}

/// Compares every stage of `text` over an array on a device with the CPU.
fn stages_agree(text: &str, dtype: Dtype, shape: &[u32], bytes: Vec<u8>, seed: u64) {
    let Some(device) = Host::able() else { return };
    let sources = vec![Source { dtype, shape: shape.to_vec(), bytes }];
    let pipeline = Pipeline::parse(text, &sources).unwrap();
    let run = pipeline.run(sources, true).unwrap();
    let mut random = Random::new(seed);
    for (name, stream) in unchanged(&run) {
        windows_agree(&format!("{name} of {text} {shape:?}"), &stream, &device, &mut random);
    }
}

/// Chains over arrays: the pipeline, and type and shape of its input.
const CHAINS: [(&str, Dtype, &[u32]); 59] = [
    ("lorenzo_quant", Dtype::F32, &[5000]),
    ("lorenzo_quant:code=u8,radius=100,eb=0.5,cap=1", Dtype::F32, &[3001]),
    ("lorenzo_quant:cap=1,radius=4", Dtype::F32, &[9000]),
    ("lorenzo_quant:config=32", Dtype::F32, &[2049]),
    ("lorenzo_quant:zigzag=1,bitshuffle:w=2,rze", Dtype::F32, &[50_000]),
    ("lorenzo_quant:zigzag=1,radius=500,cap=1,bitshuffle:w=2,rze", Dtype::F32, &[50_000]),
    ("lorenzo_quant:zigzag=1,radius=50,eb=1e-6,cap=1,bitshuffle:w=2,rze", Dtype::F64, &[30_000]),
    ("lorenzo_quant:code=u32,bitshuffle:w=4,rze", Dtype::F64, &[20_000]),
    ("lorenzo_quant:zigzag=1,bitshuffle:w=2,rze", Dtype::F32, &[70, 130]),
    ("lorenzo_quant:radius=20,cap=1", Dtype::F32, &[65, 33]),
    ("lorenzo_quant:code=u32,radius=20,cap=1", Dtype::F64, &[5, 100]),
    ("lorenzo_quant:code=u8,radius=100,eb=1,cap=1", Dtype::F32, &[40, 41]),
    ("lorenzo_quant:zigzag=1,bitshuffle:w=2,rze", Dtype::F32, &[20, 30, 41]),
    ("lorenzo_quant:radius=20,cap=1", Dtype::F32, &[9, 17, 23]),
    ("lorenzo_quant:code=u16,radius=20,cap=1", Dtype::F64, &[8, 8, 8]),
    ("lorenzo_quant:radius=20,cap=1", Dtype::F32, &[33, 34_000]),
    ("lorenzo_quant:radius=20,cap=0.2", Dtype::F32, &[10, 260, 520]),
    ("bitshuffle:w=1,block=8192,rze", Dtype::U8, &[50_001]),
    ("bitshuffle:w=1,rze", Dtype::U8, &[50_001]),
    ("bitshuffle:w=4,rze", Dtype::U32, &[12_345]),
    ("bitshuffle:w=8,rze", Dtype::U64, &[5001]),
    ("rze,rze", Dtype::U8, &[40_000]),
    ("huffman", Dtype::U8, &[9001]),
    ("huffman:bklen=300", Dtype::U16, &[9001]),
    ("huffman:bklen=32767,sublen=1024", Dtype::U32, &[5001]),
    ("huffman:sublen=7", Dtype::U8, &[3001]),
    ("lorenzo_quant:eb=1e-2,radius=512,zigzag=1,cap=1,huffman", Dtype::F32, &[9000]),
    ("rle", Dtype::U8, &[30_001]),
    ("rle:t=u16", Dtype::U16, &[20_001]),
    ("rle:t=u32,rze", Dtype::U32, &[9_001]),
    ("lorenzo_quant:eb=1,rle", Dtype::F32, &[20_000]),
    ("quantizer:cap=1,radius=100", Dtype::F32, &[5003]),
    ("quantizer:code=u32,zigzag=1,cap=1", Dtype::F64, &[5001]),
    ("quantizer:zigzag=1,radius=9,cap=1", Dtype::F64, &[5003]),
    ("quantizer:mode=rel,cap=1", Dtype::F32, &[5003]),
    ("quantizer:mode=rel,code=u32,cap=1", Dtype::F64, &[5003]),
    ("quantizer:code=u32,zigzag=1,inplace=1,radius=50", Dtype::F32, &[5003]),
    ("quantizer:code=u32,zigzag=1,difference:chunk=16384,bitshuffle:w=4,rze", Dtype::F32, &[9000]),
    ("difference", Dtype::F32, &[5000]),
    ("difference:chunk=4096", Dtype::F64, &[5000]),
    ("difference:chunk=3000", Dtype::F32, &[9000]),
    ("difference", Dtype::U8, &[100_003]),
    ("difference:chunk=70000", Dtype::U16, &[150_000]),
    ("difference:chunk=1000", Dtype::I64, &[9000]),
    ("difference:chunk=64", Dtype::I32, &[9000]),
    ("difference:out=u8,bitpack:bits=4", Dtype::I8, &[9001]),
    ("difference:out=u32,chunk=16384,bitshuffle:w=4,rze", Dtype::I32, &[12_000]),
    ("difference:out=u64,bitshuffle:w=8", Dtype::I64, &[70_000]),
    ("lorenzo,zigzag,bitshuffle:w=4,rze", Dtype::I32, &[5001]),
    ("lorenzo,negabinary", Dtype::I8, &[3001]),
    ("lorenzo,zigzag", Dtype::I16, &[33, 70]),
    ("lorenzo,zigzag", Dtype::I32, &[3, 80_000]),
    ("lorenzo,negabinary", Dtype::I64, &[11, 12, 130]),
    ("bitpack:bits=1", Dtype::U8, &[5003]),
    ("bitpack:bits=2", Dtype::U16, &[5003]),
    ("bitpack:bits=8", Dtype::U16, &[5003]),
    ("bitpack:bits=16", Dtype::U32, &[5003]),
    ("bitpack:bits=1", Dtype::U32, &[5003]),
    ("bitpack:bits=32", Dtype::U32, &[5003]),
];

#[test]
fn chains_over_arrays_of_any_shape_decode_on_a_device_as_on_the_cpu() {
    for (n, (text, dtype, shape)) in CHAINS.into_iter().enumerate() {
        let seed = 7 + n as u64;
        let bytes = field::smooth(dtype, shape, [0.0, 0.01, 30.0][n % 3], seed);
        stages_agree(text, dtype, shape, bytes, seed);
    }
}

#[test]
fn blocks_and_tiles_decode_on_a_device_as_on_the_cpu() {
    for (n, (text, dtype, shape)) in [
        ("adaptive_bitpack", Dtype::I32, vec![50_011]),
        ("adaptive_bitpack", Dtype::I16, vec![9001]),
        ("adaptive_bitpack:select=1,block=0", Dtype::I16, vec![20_011]),
        ("adaptive_bitpack:block=33", Dtype::I32, vec![20_011]),
        ("adaptive_bitpack:block=1000,select=1", Dtype::I32, vec![200_001]),
        ("adaptive_bitpack:block=7,select=1", Dtype::I16, vec![9001]),
        ("adaptive_bitpack:block=1", Dtype::I32, vec![3001]),
        ("adaptive_bitpack:block=64,rze", Dtype::I32, vec![20_011]),
        ("bitplane_rze", Dtype::U16, vec![30_001]),
        ("bitplane_rze:order=5", Dtype::U16, vec![30_001]),
        ("bitplane_rze:order=9,config=0", Dtype::U16, vec![2049]),
        ("lorenzo_quant:zigzag=1,bitplane_rze:order=2", Dtype::F32, vec![90, 170]),
        ("tiled_lorenzo", Dtype::I32, vec![5003]),
        ("tiled_lorenzo:tile=3", Dtype::I16, vec![5003]),
        ("tiled_lorenzo", Dtype::I16, vec![50, 70]),
        ("tiled_lorenzo:tile=1x1", Dtype::I32, vec![50, 70]),
        ("tiled_lorenzo:tile=4x255", Dtype::I32, vec![50, 700]),
        ("tiled_lorenzo:tile=5x1", Dtype::I16, vec![1, 700]),
        ("tiled_lorenzo:tile=2x3x5", Dtype::I32, vec![1, 1, 700]),
        ("tiled_lorenzo:tile=2x3x5", Dtype::I32, vec![1, 100, 70]),
        ("tiled_lorenzo", Dtype::I32, vec![17, 1, 70]),
        ("tiled_lorenzo", Dtype::I32, vec![9, 17, 23]),
        ("tiled_lorenzo:tile=3x5x7", Dtype::I16, vec![11, 12, 130]),
        // Arrays in bricks.
        ("tiled_lorenzo:tile=64x1", Dtype::I32, vec![70, 17_000]),
        ("tiled_lorenzo:tile=4x4x4", Dtype::I16, vec![5, 800, 801]),
        ("tiled_lorenzo:tile=2x64x4", Dtype::I32, vec![3, 65, 8500]),
        ("quantizer:linear=1,eb=1e-2,code=u32,lorenzo:t=i32,block=32,adaptive_bitpack:t=i32", Dtype::F32, vec![20_011]),
        ("quantizer:linear=1,eb=1e-2,code=u16,lorenzo:t=i16,block=100", Dtype::F64, vec![20_011]),
        (
            "quantizer:linear=1,eb=1e-2,code=u32,tiled_lorenzo:t=i32,adaptive_bitpack:t=i32,select=1",
            Dtype::F32,
            vec![9, 70, 90],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = 7 + n as u64;
        let bytes = field::smooth(dtype, &shape, [0.0, 0.01, 30.0][n % 3], seed);
        stages_agree(text, dtype, &shape, bytes, seed);
    }
}

/// Floats that are not numbers, with several payloads, and infinities, among small ones.
fn odd_floats(dtype: Dtype, shape: &[u32]) -> Vec<u8> {
    let mut bytes = field::smooth(dtype, shape, 0.01, 9);
    let odd32 = [0x7FC0_0001_u32, 0xFFC1_2345, 0x7F80_0000, 0xFF80_0000, 0x7FA0_0000, 0xFFFF_FFFF, 0x7F7F_FFFF];
    let odd64 = odd32.map(|bits| u64::from(bits & 0x8000_0000) << 32 | 0x7FF0_0000_0000_0000 | u64::from(bits) << 20);
    for (i, own) in bytes.chunks_exact_mut(dtype.size()).enumerate().skip(40).step_by(701) {
        match dtype {
            Dtype::F32 => own.copy_from_slice(&odd32[i / 3 % 7].to_le_bytes()),
            _ => own.copy_from_slice(&odd64[i / 3 % 7].to_le_bytes()),
        }
    }
    bytes
}

#[test]
fn what_is_not_a_number_has_the_same_bytes_on_a_device() {
    for dtype in [Dtype::F32, Dtype::F64] {
        for (text, shape) in [
            ("lorenzo_quant:cap=1", vec![9_000]),
            ("lorenzo_quant:cap=1", vec![90, 100]),
            ("lorenzo_quant:cap=1", vec![19, 20, 21]),
            ("lorenzo_quant:zigzag=1,cap=1,bitshuffle:w=2,rze", vec![50_000]),
            ("quantizer:cap=1", vec![5_003]),
            ("quantizer:mode=rel,cap=1", vec![5_003]),
            ("difference", vec![5_000]),
        ] {
            stages_agree(text, dtype, &shape, odd_floats(dtype, &shape), 5);
        }
    }
}

/// Bounds that are not numbers, or infinite: every element is one of a few values.
#[test]
fn arrays_of_any_error_bound_have_the_same_bytes_on_a_device() {
    for bound in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.5] {
        for (text, shape) in [
            ("lorenzo_quant:cap=1", vec![5_000]),
            ("lorenzo_quant:cap=1", vec![40, 100]),
            ("lorenzo_quant:cap=1", vec![10, 20, 21]),
            ("lorenzo_quant:zigzag=1,cap=1,bitshuffle:w=2,rze", vec![20_000]),
            ("quantizer:cap=1", vec![5_003]),
        ] {
            let Some(device) = Host::able() else { return };
            let source = Source { dtype: Dtype::F32, shape: shape.clone(), bytes: odd_floats(Dtype::F32, &shape) };
            let pipeline = Pipeline::parse(text, std::slice::from_ref(&source)).unwrap();
            let run = pipeline.run(vec![source], true).unwrap();
            let form = Form { data_crc: false, header_crc: false, ..Form::default() };
            let mut file = Vec::new();
            run.file(&form).write_to(&mut file).unwrap();
            // The bound is the first field of the first stage's configuration.
            let was = 1e-3_f32.to_le_bytes();
            let at = file.windows(4).position(|own| own == was).unwrap();
            file[at..at + 4].copy_from_slice(&bound.to_le_bytes());
            assert!(files_agree(&format!("{text} {bound}"), &file, &on(device).0) > 0);
        }
    }
}

#[test]
fn raw_empty_and_short_chunks_decode_on_a_device() {
    let mut random = Random::new(2);
    let noise: Vec<u8> = (0..60_000).map(|_| random.bits() as u8).collect();
    let holes: Vec<u8> = noise.iter().enumerate().map(|(i, &byte)| if i / 16384 % 2 == 0 { 0 } else { byte }).collect();
    for bytes in [noise, holes, vec![0; 60_000]] {
        // The output of RLE is not padded, so the last chunk and block are short.
        for text in [
            "rze",
            "bitshuffle:w=2,rze",
            "rle:t=u8,rze",
            "rle:t=u16,bitshuffle:w=1,rze",
            "rle:t=u16,bitshuffle:w=2,rze",
            "rle:t=u16,bitshuffle:w=4,rze",
        ] {
            stages_agree(text, Dtype::U8, &[60_000], bytes.clone(), 1);
        }
    }
}

/// Options for a container whose batches all go to `device`.
fn on(device: Host) -> (Options, Arc<Gpu>) {
    let device: Arc<dyn Device> = Arc::new(device);
    let gpu = Gpu::required(move || Ok(device.clone()));
    (Options { gpu: gpu.clone(), ..Options::default() }, gpu)
}

/// All blobs of a file that `verify` decodes.
fn blobs(bytes: &[u8], options: &Options) -> Result<Vec<BlobRef>> {
    Ok(decoded_blobs(&*open(bytes.to_vec(), options)?))
}

/// All pieces of `blob` in one batch, or the first error.
fn batch(blob: &BlobRef) -> Result<Vec<u8>> {
    let row = 0..blob.layout()?.count();
    let mut bytes = vec![0xA5; row_len(blob, row.clone())?];
    decode_row(blob, row, &mut bytes)?;
    Ok(bytes)
}

/// Compares all blobs of a file, decoded in batches with `options`, with the CPU, errors included. Returns the number
/// of decoded bytes.
fn files_agree(what: &str, bytes: &[u8], options: &Options) -> usize {
    let (got, want) = (blobs(bytes, options), blobs(bytes, &Options::default()));
    let (got, want) = match (got, want) {
        (Ok(got), Ok(want)) => (got, want),
        (got, want) => {
            assert_eq!(got.err().map(|e| e.to_string()), want.err().map(|e| e.to_string()), "{what}");
            return 0;
        }
    };
    assert_eq!(got.len(), want.len());
    let mut good = 0;
    for (got, want) in got.iter().zip(&want) {
        match (batch(got), batch(want)) {
            (Ok(got), Ok(want)) => {
                assert!(
                    alike(&got, &want, is_loose(what)),
                    "{what}: {:?}",
                    got.iter().zip(&want).position(|(a, b)| a != b)
                );
                good += want.len();
            }
            (got, want) => {
                let texts = [got, want].map(|r| r.err().map(|e| e.to_string()));
                assert_eq!(texts[0], texts[1], "{what}");
            }
        }
    }
    good
}

/// The files of the corpus, or of a larger one in `FZMFS_CORPORA`.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let other = std::env::var_os("FZMFS_CORPORA").map(PathBuf::from);
    let folder = |name| other.as_ref().map_or_else(|| data(name), |dir| dir.join(name));
    let entries = ["fzm", "fzm2"].into_iter().flat_map(|name| fs::read_dir(folder(name)).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.retain(|path| path.extension().is_some_and(|e| e == "fzm"));
    assert!(files.len() > 50);
    files.iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

/// What `info.json` says of a file.
fn info(bytes: &[u8]) -> Value {
    open(bytes.to_vec(), &Options::default()).unwrap().info().to_json()
}

/// The files of the corpus that a device decodes.
fn decoded_on_a_device() -> impl Iterator<Item = (String, Vec<u8>)> {
    corpus().into_iter().filter(|(_, bytes)| info(bytes)["device"] == "cuda")
}

#[test]
fn the_corpus_decodes_on_a_device_as_on_the_cpu_where_info_says_so() {
    let (mut seen, mut kernels) = (0, BTreeSet::new());
    for (name, bytes) in corpus() {
        let Some(device) = Host::able() else { return };
        let (options, gpu) = on(device);
        let decoded = files_agree(&name, &bytes, &options);
        let (by, info) = (gpu.decoder(), info(&bytes));
        let stages = info["pipeline"].as_array().unwrap();
        let (is_line, mut all) = (stages.iter().all(|stage| stage["outputs"].as_array().unwrap().len() == 1), true);
        for stage in stages {
            if stage["device"] == "cuda" && stage["inputs"][0]["size"] != 0 {
                kernels.insert(stage["name"].as_str().unwrap().to_owned());
            }
            all &= stage["device"] == "cuda";
        }
        assert_eq!(info["device"] == "cuda", info["no_kernel"].as_array().unwrap().is_empty(), "{name}");
        assert!(info["device"] == "cuda" || !all, "{name}");
        // Words of 4 bytes, or the first generation: known once it is read.
        if stages.iter().any(|stage| stage["name"] == "rze" && stage["config"]["word_size"] == 4) {
            assert!(by == "CPU" || by.starts_with("host: 0 bytes") || by.ends_with("; CPU: 0 bytes"), "{name}: {by}");
        } else if all {
            assert!(by.ends_with("; CPU: 0 bytes") || decoded == 0, "{name}: {by}");
        } else if is_line {
            assert!(by == "CPU" || by.starts_with("host: 0 bytes"), "{name}: {by}");
        }
        seen += decoded;
    }
    assert!(seen > 1_000_000, "{seen}");
    kernels.remove("pass_through");
    assert_eq!(kernels, STAGES.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn the_cpu_decodes_without_device_memory_and_after_a_device_loss() {
    for (name, bytes) in decoded_on_a_device().filter(|(_, bytes)| bytes.len() < 300_000) {
        for memory_limit in [0, 3, 1000, 20_000, 50_000] {
            let Some(device) = Host::new(memory_limit, u64::MAX) else { return };
            let (options, gpu) = on(device);
            files_agree(&name, &bytes, &options);
            let lost = gpu.device().err();
            assert_eq!(lost, None, "{name}, {memory_limit} bytes: too little memory must not disable the device");
        }
        for launches in [0, 1, 2] {
            let Some(device) = Host::new(u64::MAX, launches) else { return };
            let lost = device.lost();
            let (options, gpu) = on(device);
            files_agree(&name, &bytes, &options);
            assert_eq!(gpu.device().is_err(), lost(), "{name}: used after it was lost");
        }
    }
}

#[test]
fn threads_share_data_kept_on_a_device() {
    let sources = |shape: &[u32]| {
        let bytes = field::smooth(Dtype::F32, shape, 1.0, 3);
        vec![Source { dtype: Dtype::F32, shape: shape.to_vec(), bytes }]
    };
    // A layer of this array is one block, which is kept; the line is decoded window by window.
    for (shape, text) in [
        (vec![8, 40, 100], "lorenzo_quant:radius=20,cap=1"),
        (vec![300_000], "lorenzo_quant:zigzag=1,radius=50,cap=1,bitshuffle:w=2,rze"),
    ] {
        let Some(device) = Host::able() else { return };
        let sources = sources(&shape);
        let pipeline = Pipeline::parse(text, &sources).unwrap();
        let run = pipeline.run(sources, true).unwrap();
        let (_, stream) = unchanged(&run).pop().unwrap();
        let plan = Plan::of(&stream, Order::Bytes, Fusing::Yes).unwrap();
        let mut want = vec![0; stream.len() as usize];
        stream.read(0, &mut want).unwrap();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let (plan, device, want) = (&plan, &device, &want);
                scope.spawn(move || {
                    for at in (t * 10_000..want.len()).step_by(want.len() / 3) {
                        let mut got = vec![0; 9_999.min(want.len() - at)];
                        plan.decode(device, at as u64, &mut [&mut got]).unwrap();
                        assert!(alike(&got, &want[at..][..got.len()], false), "{text} at {at}");
                    }
                });
            }
        });
    }
}

#[test]
fn corrupt_files_fail_on_a_device_too() {
    let mut random = Random::new(3);
    for (name, bytes) in decoded_on_a_device().filter(|(_, bytes)| bytes.len() < 60_000) {
        for _ in 0..hostile(8) {
            let mut bad = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bad.len());
                bad[at] = random.bits() as u8;
            }
            // Mostly without checksums, so that the change reaches the kernels.
            if random.below(4) > 0 {
                bad[38] &= !3;
            }
            let Some(device) = Host::new(1 << 28, u64::MAX) else { return };
            files_agree(&name, &bad, &on(device).0);
        }
    }
}

/// Streams with changed bytes: the device and the CPU reject the same ones.
#[test]
fn kernels_reject_exactly_what_the_cpu_rejects() {
    let Some(device) = Host::able() else { return };
    let mut random = Random::new(8);
    let (mut good, mut bad) = (0, 0);
    for (text, dtype, elements, noise) in [
        ("rze", Dtype::U8, 20_000, 0.0),
        ("rze", Dtype::U8, 33_000, 200.0),
        ("rle", Dtype::U8, 20_000, 0.0),
        ("lorenzo_quant:zigzag=1,bitshuffle:w=2,rze", Dtype::F32, 10_000, 0.01),
        ("huffman", Dtype::U8, 20_000, 0.0),
        ("huffman:bklen=300", Dtype::U16, 5_000, 0.01),
        ("adaptive_bitpack:block=8,select=1", Dtype::I32, 5_000, 0.01),
        ("adaptive_bitpack:block=1", Dtype::I16, 500, 0.01),
        ("bitplane_rze", Dtype::U16, 20_000, 30.0),
    ] {
        let mut bytes = field::smooth(dtype, &[elements], noise, 5);
        if dtype == Dtype::U8 {
            bytes.iter_mut().filter(|_| random.below(4) > 0).for_each(|byte| *byte = 0);
        }
        let sources = vec![Source { dtype, shape: vec![elements], bytes }];
        let pipeline = Pipeline::parse(text, &sources).unwrap();
        let run = pipeline.run(sources, true).unwrap();
        let stored =
            run.segments().iter().position(|segment| segment.port == 0 && segment.step + 1 == run.steps().len());
        for _ in 0..hostile(60) {
            let Some(stream) = changed(&run, stored.unwrap(), &mut random) else { continue };
            // The change may have made it one without a kernel.
            let Some(plan) = Plan::of(&stream, Order::Bytes, Fusing::Yes) else { continue };
            let (mut want, mut got) = (vec![0; stream.len() as usize], vec![0; stream.len() as usize]);
            let cpu = stream.read(0, &mut want);
            let gpu = plan.decode(&device, 0, &mut [&mut got]);
            assert_eq!(gpu.is_ok(), cpu.is_ok(), "{text}: {cpu:?}");
            if cpu.is_ok() {
                assert!(alike(&got, &want, false), "{text}");
                good += 1;
            } else {
                bad += 1;
            }
        }
    }
    assert!(good > 10 && bad > 10, "{good} {bad}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        // A quarter of the cases of the CPU.
        cases: ProptestConfig::default().cases / 4,
        max_global_rejects: 1_000_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_pipelines_decode_on_a_device_as_on_the_cpu(case in fzm_properties::case()) {
        let Some(file) = case.file() else { return Err(TestCaseError::reject("it does not fit")) };
        let Some(device) = Host::able() else { return Ok(()) };
        files_agree(&format!("{case:?}"), &file, &on(device).0);
    }
}
