//! Random data, random pipelines, random windows: every read returns what the writer expects.
//!
//! The writer (tests/support/fzm) inverts lossy stages by plain scalar loops; lossless pipelines must reproduce their
//! input. Every buffer is compared, whole and in pieces of a random size. `PROPTEST_CASES` sets the number of cases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fzm_writer::{Dtype, Form, Generation, Pipeline, Random, Run, Source, field};
use fzmfs::cache::Cache;
use fzmfs::error::Result;
use fzmfs::format::{self, BlobRef, Entry, Fetch, Input, Node, Options, Piece};
use fzmfs::limits::Limits;
use fzmfs::view::View;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// A pipeline with its data and its file.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    stages: String,
    sources: Vec<Data>,
    version: u16,
    crc: bool,
    scatter: Option<u64>,
    generation: Generation,
    /// `Limits::piece` of a second read, in bytes.
    piece: Option<u64>,
}

/// An array generated from a few numbers.
#[derive(Debug, Clone)]
struct Data {
    dtype: Dtype,
    shape: Vec<u32>,
    kind: u8,
    seed: u64,
    /// Bytes after the last element.
    ragged: usize,
}

impl Data {
    fn source(&self) -> Source {
        let Self { dtype, shape, kind, seed, ragged } = self;
        let elements: u32 = shape.iter().product();
        let size = dtype.size();
        let mut random = Random::new(*seed);
        let mut bytes = match kind {
            0 => field::smooth(*dtype, shape, 0.01, *seed),
            1 => field::smooth(*dtype, shape, 30.0, *seed),
            // Any bytes: as floats also NaNs, infinities, subnormals and every magnitude.
            2 => (0..elements as usize * size).map(|_| random.bits() as u8).collect(),
            // Long runs of few values.
            3 => {
                let values = [[0; 8], [1, 0, 0, 0, 0, 0, 0, 0], [0xFF; 8], random.bits().to_le_bytes()];
                let mut bytes = Vec::new();
                while bytes.len() < elements as usize * size {
                    let value = &values[random.below(4)][..size];
                    (0..random.below(300)).for_each(|_| bytes.extend(value));
                }
                bytes.truncate(elements as usize * size);
                bytes
            }
            4 => vec![0; elements as usize * size],
            // A smooth field with spikes.
            _ => {
                let mut bytes = field::smooth(*dtype, shape, 0.0, *seed);
                for _ in 0..elements / 50 {
                    let at = random.below(elements as usize) * size;
                    let (spike32, spike64) = ((random.unit() * 1e6) as f32, random.unit() * 1e6);
                    match dtype {
                        Dtype::F32 => bytes[at..at + 4].copy_from_slice(&spike32.to_le_bytes()),
                        Dtype::F64 => bytes[at..at + 8].copy_from_slice(&spike64.to_le_bytes()),
                        _ => bytes[at] ^= 0x80,
                    }
                }
                bytes
            }
        };
        bytes.extend((0..*ragged).map(|_| random.bits() as u8 | 1));
        Source { dtype: *dtype, shape: shape.clone(), bytes }
    }
}

impl Case {
    /// The file, if the stages fit the arrays.
    pub(crate) fn file(&self) -> Option<Vec<u8>> {
        let sources: Vec<Source> = self.sources.iter().map(Data::source).collect();
        let pipeline = Pipeline::parse(&self.stages, &sources).ok()?;
        let run = pipeline.run(sources, true).ok()?;
        Some(run.file(&self.form()).to_vec())
    }

    fn form(&self) -> Form {
        Form {
            version: self.version,
            data_crc: self.crc,
            header_crc: self.crc,
            scatter: self.scatter,
            generation: self.generation,
        }
    }
}

/// Numbers that determine a description; each is used once, and missing ones are 0.
struct Choices(std::vec::IntoIter<u8>);

impl Choices {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.0.next().unwrap_or(0)) % from.len()]
    }

    fn often(&mut self, share: u8) -> bool {
        self.0.next().is_some_and(|c| c < share)
    }
}

/// The output of the stages described so far.
#[derive(Clone, Copy)]
struct Flow {
    dtype: Dtype,
    /// Whether its bytes are whole elements of four bytes or less.
    whole: bool,
    /// Every element is below this.
    below: u64,
    /// Whether it is a source array, whose shape the stages know.
    array: bool,
}

/// A stage after `flow`, and its output.
fn stage(flow: Flow, c: &mut Choices) -> (String, Flow) {
    use Dtype::{F32, F64, I8, I16, I32, I64, Opaque, U8, U16, U32, U64};
    let bytes = Flow { dtype: U8, whole: true, below: 256, array: false };
    let dtype = if flow.dtype == Opaque { U8 } else { flow.dtype };
    let t = dtype.name();
    if let Some(found) = entropy_coder(flow, c) {
        return found;
    }
    if let Some(own) = in_blocks(flow, c) {
        return own;
    }
    match (c.pick(&[0_u8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), dtype) {
        (10, F32 | F64) if flow.whole => wavelet(flow, c),
        (10, I32) if flow.array && flow.whole => ("speck2d".into(), Flow { dtype: Opaque, ..bytes }),
        (0..=3, F32 | F64) => lorenzo_quant(flow, c),
        (4 | 5, F32 | F64) => quantizer(flow, c),
        (0 | 1, I8 | I16 | I32 | I64) => (lorenzo(t, c), Flow { below: u64::MAX, ..flow }),
        (2 | 3, I8 | I16 | I32 | I64) => {
            let name = c.pick(&["zigzag", "negabinary", "zigzag:config=3"]);
            let joint = if name.contains(':') { ',' } else { ':' };
            (format!("{name}{joint}t={t}"), Flow { dtype: dtype.unsigned(), below: u64::MAX, ..flow })
        }
        (4..=6, F32 | F64 | U8 | U16 | U32 | I8 | I16 | I32 | I64) => {
            let chunk = c.pick(&["", ",chunk=512", ",chunk=4096"]);
            let out = match (dtype, c.often(128)) {
                (I8 | I16, _) | (I32 | I64, true) => dtype.unsigned(),
                (same, _) => same,
            };
            let code = if out == dtype { "" } else { c.pick(&["", ",config=7", ",zigzag=1"]) };
            (format!("difference:in={t},out={}{chunk}{code}", out.name()), Flow { dtype: out, below: u64::MAX, ..flow })
        }
        (0 | 1, U8 | U16 | U32) if flow.whole || dtype == U8 => {
            let bits = 8 * dtype.size();
            let fits = [1, 2, 4, 8, 16, 32].into_iter().find(|&b| flow.below <= 1 << b).unwrap_or(bits).min(bits);
            let how = c.pick(&["", ",config=15", ",adaptive=1"]);
            (format!("bitpack:t={t},bits={fits}{how}"), Flow { dtype: Opaque, whole: false, below: 256, array: false })
        }
        (7, U8 | U16 | U32) if flow.whole && flow.below <= 256 => {
            (format!("huffman:t={t}"), Flow { dtype: Opaque, ..bytes })
        }
        (7, U16 | U32) if flow.whole && flow.below <= 1024 => {
            (format!("huffman:t={t},bklen=1024"), Flow { dtype: Opaque, ..bytes })
        }
        (7, _) => {
            let sublen = c.pick(&["", ",sublen=1024", ",sublen=1"]);
            (format!("huffman:t=u8{sublen}"), Flow { dtype: Opaque, ..bytes })
        }
        (8, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64) if flow.whole && c.often(128) => {
            let chunk = c.pick(&["config=9", "chunk=64", "chunk=1000", "chunk=131072"]);
            (format!("rle:t={t},{chunk}"), bytes)
        }
        (8, U16 | U32 | I32) if flow.whole => (format!("rle:t={t}"), bytes),
        (8, _) => ("rle:t=u8".into(), bytes),
        (9, _) => {
            let w = c.pick(&[1, 2, 4, 8]);
            let block = c.pick(&[16384, 8192]);
            (format!("bitshuffle:w={w},block={block}"), Flow { dtype: U8, below: 256, array: false, ..flow })
        }
        (3, _) => ("pass_through".into(), flow),
        _ => (coder(flow, dtype, c), bytes),
    }
}

/// A stage that makes bytes of any bytes.
fn coder(flow: Flow, dtype: Dtype, c: &mut Choices) -> String {
    let w = c.pick(&[1, 2, 4, 8]);
    match c.pick(&["rze", "rze:", "rre", "rare", "raze", "clog", "hclog", "tupl", "gpulz", "golomb_rice"]) {
        "rze" => "rze".into(),
        "tupl" => format!("tupl:w={w},dim={},block={}", c.pick(&[2, 3, 6, 255]), c.pick(&[16384, 512, 65536])),
        "gpulz" => format!("gpulz:w={w},chunk={},split={}", c.pick(&[2048, 1024, 4096]), c.pick(&[0, 1])),
        "golomb_rice" if !flow.whole => "rze:w=4".into(),
        "golomb_rice" if dtype.size() == 2 => format!("golomb_rice:t=i16,config={}", c.pick(&[9, 5])),
        "golomb_rice" if dtype.size() == 4 => format!("golomb_rice:t=i32,config={}", c.pick(&[9, 5])),
        "golomb_rice" => "rze:w=8".into(),
        name => format!("{}:w={w},chunk={}", name.trim_end_matches(':'), c.pick(&[16384, 8192, 4096])),
    }
}

fn lorenzo(t: &str, c: &mut Choices) -> String {
    let block = c.pick(&[None, None, Some(32), Some(1), Some(100), Some(1024)]);
    let Some(block) = block else { return format!("lorenzo:t={t}") };
    let (order, centering) = (c.pick(&[1, 2]), c.pick(&[0, 1]));
    format!("lorenzo:t={t},block={block},order={order},centering={centering}")
}

/// Sometimes one of the entropy coders, or of the predictors that they were made for.
fn entropy_coder(flow: Flow, c: &mut Choices) -> Option<(String, Flow)> {
    if !c.often(50) {
        return None;
    }
    let coded = Flow { dtype: Dtype::Opaque, whole: true, below: 256, array: false };
    Some(match (c.pick(&[0, 1, 2]), flow.dtype) {
        (0, Dtype::F32) if flow.whole => ("log_transform".into(), Flow { below: u64::MAX, ..flow }),
        (0 | 1, Dtype::F32 | Dtype::F64) if flow.array => ginterp(c),
        (0, Dtype::U16 | Dtype::U32) if flow.whole => (format!("adm:t={}", flow.dtype.name()), coded),
        _ => ("ans".into(), coded),
    })
}

fn ginterp(c: &mut Choices) -> (String, Flow) {
    let code = c.pick(&[Dtype::U8, Dtype::U16, Dtype::U32]);
    let flags = |c: &mut Choices| c.pick(&["0000", "1100", "1111", "0110", "1001"]);
    let (md, natural, reverse) = (flags(c), flags(c), flags(c));
    let text = format!(
        "ginterp:code={},radius={},eb={},cap=1,md={md},natural={natural},reverse={reverse}",
        code.name(),
        c.pick(&[100, 4]),
        c.pick(&["1e-2", "0.5", "1e-5"]),
    );
    (text, Flow { dtype: code, whole: true, below: 256, array: false })
}

/// A stage that codes blocks, tiles or chunks, now and then.
fn in_blocks(flow: Flow, c: &mut Choices) -> Option<(String, Flow)> {
    use Dtype::{I16, I32, U8, U16};
    let bytes = Flow { dtype: U8, whole: true, below: 256, array: false };
    let select = |c: &mut Choices| if c.often(128) { ",select=1" } else { "" };
    let t = flow.dtype.name();
    match (c.pick(&[0_u8, 1, 2, 3, 4, 5, 6, 7]), flow.dtype) {
        (0 | 1, I16 | I32) => {
            let block = c.pick(&[32, 64, 0, 1, 33, 1000]);
            Some((format!("adaptive_bitpack:t={t},block={block}{}", select(c)), bytes))
        }
        (2, I16 | I32) if flow.array => {
            let tile = c.pick(&["", ",tile=4x4x4", ",tile=16x64", ",tile=2x3x5", ",tile=31"]);
            Some((format!("tiled_lorenzo:t={t}{tile}"), Flow { array: false, whole: true, below: u64::MAX, ..flow }))
        }
        (2, I16 | I32) => {
            let tile = c.pick(&["", ",tile=1", ",tile=5"]);
            Some((format!("tiled_lorenzo:t={t},shape=none{tile}"), Flow { whole: true, below: u64::MAX, ..flow }))
        }
        (3, I16 | I32) => {
            let tile = c.pick(&[8, 1, 32]);
            let text = format!("adaptive_lorenzo:t={t},tile={tile}{}", select(c));
            Some((text, Flow { below: u64::MAX, ..flow }))
        }
        (0..=2, U16) if flow.whole => Some((format!("bitplane_rze:order={}", c.pick(&[0, 1, 77])), bytes)),
        _ => None,
    }
}

fn lorenzo_quant(flow: Flow, c: &mut Choices) -> (String, Flow) {
    let code = match (flow.dtype, c.often(64)) {
        (Dtype::F32, true) => Dtype::U8,
        (Dtype::F64, true) => Dtype::U32,
        _ => Dtype::U16,
    };
    let (config, biased) = c.pick(&[
        ("", false),
        (",config=44,ports=3", false),
        (",config=64,ports=3", false),
        (",config=44,centering=1", false),
        (",config=64,centering=1", false),
        (",config=64", false),
        (",config=40", false),
        (",config=32", true),
    ]);
    let zigzag = !config.ends_with('0') && !biased && c.often(128);
    let radius = if code == Dtype::U8 { 100 } else { c.pick(&[32768, 500, 4]) };
    let mut text = format!(
        "lorenzo_quant:code={},radius={radius},eb={},mode={},cap={}{config}",
        code.name(),
        c.pick(&["1e-3", "0.5", "1e-6"]),
        c.pick(&["abs", "noa", "rel", "prel"]),
        c.pick(&["0.2", "1", "0", "0.02"]),
    );
    if zigzag {
        text += ",zigzag=1";
    }
    if !flow.array || c.often(20) || config.ends_with("centering=1") {
        text += ",shape=none";
    }
    if config.len() > 1 && c.often(100) {
        text += c.pick(&[",type=12", ",type=13"]);
    }
    let below = if zigzag || biased { 2 * radius } else { u64::MAX };
    (text, Flow { dtype: code, whole: true, below, array: flow.array })
}

fn quantizer(flow: Flow, c: &mut Choices) -> (String, Flow) {
    let code = c.pick(&[Dtype::U16, Dtype::U32]);
    let linear = c.often(80);
    let mode = if linear { c.pick(&["abs", "noa"]) } else { c.pick(&["abs", "noa", "rel", "prel"]) };
    let zigzag = mode != "rel" && !linear && c.often(128);
    let config = c.pick(&[36, 72, 72, 56, 52, 48, 28]);
    let config = if linear { config.max(36) } else { config };
    let mut text = format!(
        "quantizer:code={},mode={mode},eb={},cap={},config={config}",
        code.name(),
        c.pick(&["1e-3", "0.5", "0.02"]),
        c.pick(&["0.2", "1", "0"])
    );
    if zigzag {
        text += ",zigzag=1";
    }
    if linear {
        text += ",linear=1";
        text += if config == 72 { c.pick(&["", ",precise=1"]) } else { "" };
    } else if zigzag && (flow.dtype, code) == (Dtype::F32, Dtype::U32) && config >= 36 && c.often(128) {
        text += ",inplace=1";
        text += if config == 72 { c.pick(&["", ",verify=1", ",pow2=1"]) } else { "" };
    } else if config >= 48 && c.often(100) {
        text += ",dither=1,seed=12345";
        text += if config >= 52 { c.pick(&["", ",strength=0.3"]) } else { "" };
    } else if c.often(60) {
        text += c.pick(&[",threshold=50", ",radius=50", ",ports=3"]);
    }
    (text, Flow { dtype: code, whole: true, below: u64::MAX, array: false })
}

/// A stage of floats that is not quantized by itself: `SZx`, `SZp`, and those that know the shape of an array.
fn wavelet(flow: Flow, c: &mut Choices) -> (String, Flow) {
    let known: &[&str] = if flow.array { &["cdf97", "roibin_split", "szx", "szp"] } else { &["szx", "szp"] };
    let name = c.pick(known);
    match name {
        "cdf97" => (name.into(), flow),
        "roibin_split" => {
            let (peaks, half, bin) = (c.pick(&[0, 3, 50]), c.pick(&[4, 0, 1, 30]), c.pick(&[1, 2, 7, 100]));
            let text = format!("roibin_split:peaks={peaks},half={half},bin={bin},seed={}", c.pick(&[1, 2, 3]));
            (text, Flow { below: u64::MAX, array: false, ..flow })
        }
        _ => {
            let (eb, mode) = (c.pick(&["1e-3", "0.5", "1e-9"]), c.pick(&["abs", "noa"]));
            let text = format!("{name}:eb={eb},mode={mode},block={}", c.pick(&[0, 1, 7, 33, 4096]));
            (text, Flow { dtype: Dtype::Opaque, whole: true, below: 256, array: false })
        }
    }
}

/// The ports besides the first one of the stage `text` between `flow` and `next`.
fn second_ports(text: &str, flow: Flow, next: Flow) -> Vec<(&'static str, Dtype)> {
    let mut ports = Vec::new();
    if text.starts_with("lorenzo_quant") {
        ports.extend([("codes", next.dtype), ("outlier_errors", flow.dtype), ("outlier_indices", Dtype::U32)]);
        if text.contains("centering") {
            ports.push(("means", flow.dtype));
        } else if !text.contains("ports=3") {
            ports.push(("outlier_count", Dtype::U32));
        }
    } else if text.starts_with("lorenzo:") && text.contains("centering=1") {
        ports.push(("means", next.dtype));
    } else if text.starts_with("gpulz") && text.contains("split=1") {
        ports.extend(["lengths", "offsets", "meta"].map(|port| (port, Dtype::U8)));
    } else if text.starts_with("ginterp") || text.starts_with("log_transform") {
        let second = if text.starts_with("ginterp") { ("anchor", flow.dtype) } else { ("signs", Dtype::U8) };
        let outliers = [("outlier_vals", flow.dtype), ("outlier_idxs", Dtype::U32)];
        ports.extend(outliers.into_iter().chain([second]));
    } else if text.starts_with("adaptive_lorenzo") {
        ports.extend([("modes", Dtype::U8), ("means", flow.dtype)]);
    } else if text.starts_with("quantizer") && !text.contains("inplace") && !text.contains("linear") {
        ports.extend([("outlier_vals", flow.dtype), ("outlier_idxs", Dtype::U32)]);
    }
    if text.starts_with("roibin_split") {
        ports.extend([("bg", flow.dtype), ("peaks", Dtype::U8)]);
    }
    ports
}

/// A description of a pipeline over `sources`: a chain for each, with branches.
fn describe(sources: &[Data], choices: Vec<u8>) -> String {
    let mut c = Choices(choices.into_iter());
    let mut stages: Vec<String> = Vec::new();
    let mut ports: Vec<(usize, &str, Dtype)> = Vec::new();
    // Outputs that no stage reads yet.
    let mut ends: Vec<String> = Vec::new();
    for source in sources {
        let mut flow = Flow { dtype: source.dtype, whole: source.ragged == 0, below: u64::MAX, array: true };
        let length = c.pick(&[1, 2, 3, 4]);
        for k in 0..length {
            let (mut text, next) = stage(flow, &mut c);
            if k == 0 && !stages.is_empty() {
                text += if text.contains(':') { ",from=input" } else { ":from=input" };
            }
            let number = stages.len();
            ports.extend(second_ports(&text, flow, next).into_iter().map(|(port, dtype)| (number, port, dtype)));
            stages.push(text);
            flow = next;
        }
        ends.push((stages.len() - 1).to_string());
    }
    for (number, port, dtype) in ports {
        if c.often(100) {
            ends.push(format!("{number}.{port}"));
        } else if c.often(50) && stages.len() < 12 {
            let mut flow = Flow { dtype, whole: true, below: u64::MAX, array: false };
            for k in 0..c.pick(&[1, 2]) {
                let (mut text, next) = stage(flow, &mut c);
                if k == 0 {
                    let joint = if text.contains(':') { ',' } else { ':' };
                    write!(text, "{joint}from={number},port={port}").unwrap();
                }
                stages.push(text);
                flow = next;
            }
            ends.push((stages.len() - 1).to_string());
        }
    }
    merges(&mut stages, ends, &mut c);
    stages.join(",")
}

/// Adds stages that read several of `ends`.
fn merges(stages: &mut Vec<String>, mut ends: Vec<String>, c: &mut Choices) {
    while ends.len() > 1 && stages.len() < 14 && c.often(90) {
        let count = c.pick(&[2, 3, 4, 8, 1]).min(ends.len());
        let first = c.pick(&[0, 1, 2]).min(ends.len() - count);
        let own: Vec<String> = ends.drain(first..first + count).collect();
        stages.push(format!("merge:names={},from={}", u8::from(c.often(128) && count < 4), own.join("+")));
        let mut flow = Flow { dtype: Dtype::Opaque, whole: true, below: 256, array: false };
        for _ in 0..c.pick(&[0, 1, 2]) {
            let (text, next) = stage(flow, c);
            stages.push(text);
            flow = next;
        }
        ends.push((stages.len() - 1).to_string());
    }
}

prop_compose! {
    fn data()(
        dtype in prop::sample::select(&Dtype::ALL[..]),
        shape in prop_oneof![
            4 => prop::collection::vec(0..9000_u32, 1),
            2 => prop::collection::vec(1..90_u32, 2),
            2 => prop::collection::vec(1..20_u32, 3),
        ],
        kind in 0..6_u8,
        seed in any::<u64>(),
        ragged in prop_oneof![4 => Just(0), 1 => 0..8_usize],
    ) -> Data {
        Data { dtype, shape, kind, seed, ragged: ragged % dtype.size() }
    }
}

prop_compose! {
    pub(crate) fn case()(
        sources in prop_oneof![8 => prop::collection::vec(data(), 1), 1 => prop::collection::vec(data(), 2)],
        choices in prop::collection::vec(any::<u8>(), 0..60),
        (version, crc) in prop::sample::select(&[(0x0301, true), (0x0301, false), (0x0300, false), (3, false), (0x0302, true)][..]),
        scatter in prop::option::of(any::<u64>()),
        generation in prop::sample::select(&[Generation::Packed, Generation::Slots][..]),
        piece in prop_oneof![1..200_u64, 200..40_000_u64],
    ) -> Case {
        let stages = describe(&sources, choices);
        Case { stages, sources, version, crc, scatter, generation, piece: Some(piece) }
    }
}

/// Decodes every requested piece again at each call.
pub(crate) struct Plain;

impl Fetch for Plain {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let range = blob.layout()?.range(piece);
        // Not zero, so that unwritten bytes are noticed.
        let mut bytes = vec![0xAA; (range.end - range.start) as usize];
        blob.decode(piece, &mut bytes)?;
        Ok(Arc::new(bytes))
    }
}

/// The files of a container, by path; the first of several with the same name.
pub(crate) fn files(entries: &[Entry], folder: &str, out: &mut BTreeMap<String, Vec<fzmfs::format::File>>) {
    for entry in entries {
        let name = format!("{folder}{}{}", String::from_utf8_lossy(&entry.stem), entry.suffix);
        match &entry.node {
            Node::File(file) => out.entry(name).or_default().push((**file).clone()),
            Node::Dir(dir) => files(&dir.entries().unwrap(), &(name + "/"), out),
            node => panic!("{name} is not a part of an FZM file: {node:?}"),
        }
    }
}

/// Where `got` first differs from `want`. Any two NaNs are equal, and so are values of `mode=rel` up to two units
/// apart.
pub(crate) fn difference(dtype: Dtype, loose: bool, got: &[u8], want: &[u8]) -> Option<usize> {
    if got == want {
        return None;
    }
    if got.len() != want.len() {
        return Some(got.len().min(want.len()));
    }
    let same32 = |a: u32, b: u32| {
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        a == b || x.is_nan() && y.is_nan() || loose && a.abs_diff(b) <= 2
    };
    let same64 = |a: u64, b: u64| {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        // For f64 data the value was computed in f32: two units of f32.
        a == b || x.is_nan() && y.is_nan() || loose && a.abs_diff(b) <= 2 << 29
    };
    match dtype {
        Dtype::F32 => {
            let (a, b) = (got.as_chunks::<4>().0, want.as_chunks::<4>().0);
            a.iter().zip(b).position(|(a, b)| !same32(u32::from_le_bytes(*a), u32::from_le_bytes(*b))).map(|i| 4 * i)
        }
        Dtype::F64 => {
            let (a, b) = (got.as_chunks::<8>().0, want.as_chunks::<8>().0);
            a.iter().zip(b).position(|(a, b)| !same64(u64::from_le_bytes(*a), u64::from_le_bytes(*b))).map(|i| 8 * i)
        }
        _ => got.iter().zip(want).position(|(a, b)| a != b),
    }
}

/// A file of the tree and its expected content.
struct Expected<'a> {
    path: String,
    /// Its place among files of the same name.
    place: usize,
    dtype: Dtype,
    bytes: &'a [u8],
}

/// Every file of decoded or stored bytes, and its expected content.
fn expected<'a>(case: &Case, run: &'a Run<'_>, restored: &'a BTreeMap<u16, Vec<u8>>) -> Vec<Expected<'a>> {
    let (steps, mut out) = (run.steps(), Vec::new());
    let mut dtypes: BTreeMap<u16, Dtype> = steps.iter().flat_map(|s| s.outputs.iter().map(|o| (o.0, o.2))).collect();
    dtypes.extend(run.source_ids().into_iter().zip(case.sources.iter().map(|s| s.dtype)));
    let names: BTreeMap<u16, &str> = steps.iter().flat_map(|s| s.outputs.iter().map(|o| (o.0, o.1))).collect();
    // The container's order of sources is that of its stage table.
    let mut sources = 0;
    for (row, step) in steps.iter().enumerate() {
        let folder = format!("stages/{row:02}-{}", step.name);
        let mut expect = |path: String, id: u16| {
            let place = out.iter().filter(|other: &&Expected| other.path == path).count();
            out.push(Expected { path, place, dtype: dtypes[&id], bytes: &restored[&id] });
        };
        for input in &step.inputs {
            let name = names.get(input).copied().unwrap_or("input");
            // A redundant branch decodes to the same bytes.
            expect(format!("{folder}/in/{name}.raw"), *input);
        }
        for (id, name, _) in &step.outputs {
            expect(format!("{folder}/out/{name}.raw"), *id);
        }
        if !names.contains_key(&step.inputs[0]) {
            let name = if sources == 0 { "data.raw".into() } else { format!("source{sources}.raw") };
            expect(name, step.inputs[0]);
            sources += 1;
        }
    }
    out
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let sources: Vec<Source> = case.sources.iter().map(Data::source).collect();
    let reject = |e: String| TestCaseError::reject(e);
    let pipeline = Pipeline::parse(&case.stages, &sources).map_err(reject)?;
    let run = pipeline.run(sources, true).map_err(reject)?;
    let restored = run.restore().map_err(reject)?;
    let file = run.file(&case.form()).to_vec();
    let expected = expected(case, &run, &restored);
    let longest = expected.iter().map(|e| e.bytes.len()).max().unwrap_or(0);
    // Large enough to bound the number of pieces, and to hold a Huffman partition.
    let least = if case.stages.contains("huffman") { 4096 } else { longest as u64 / 100 };
    let small = case.piece.map(|piece| Limits { piece: piece.max(least), ..Limits::default() });
    for limits in [Limits::default()].into_iter().chain(small) {
        let input = Input::of(fzmfs::source::Source::from_bytes(file.clone())).unwrap();
        let container = format::open(&input, None, &Options { limits, ..Options::default() })
            .map_err(|e| TestCaseError::fail(format!("does not open: {e}")))?;
        let mut tree = BTreeMap::new();
        files(&container.entries().unwrap(), "", &mut tree);
        for want in &expected {
            let file = tree.get(&want.path).ok_or_else(|| TestCaseError::fail(format!("no {}", want.path)))?;
            let fail = |e| TestCaseError::fail(format!("{}: {e}", want.path));
            let view = View::new(&file[want.place].content, &Plain).map_err(fail)?;
            prop_assert_eq!(view.len(), want.bytes.len() as u64, "length of {}", want.path);
            let mut got = vec![0xAA; want.bytes.len()];
            view.read(0, &mut got, &Plain).map_err(fail)?;
            let at = difference(want.dtype, case.stages.contains("mode=rel"), &got, want.bytes);
            if let Some(at) = at {
                let around = at..(at + 8).min(got.len()).min(want.bytes.len());
                let (got, want_bytes) = (&got[around.clone()], &want.bytes[around]);
                prop_assert!(false, "{} differs at byte {at}: {got:02x?}, not {want_bytes:02x?}", want.path);
            }
            let mut random = Random::new(case.piece.unwrap_or(1));
            for _ in 0..4 {
                let start = random.below(got.len() + 1);
                let mut window = vec![0x55; random.below(got.len() - start + 1).min(500)];
                view.read(start as u64, &mut window, &Plain).map_err(fail)?;
                prop_assert!(window == got[start..start + window.len()], "{} from byte {start} on", want.path);
                let range = start as u64..(start + window.len()) as u64;
                if let Some(fragments) = view.by_fragments(&range, &|_, _| false) {
                    window.fill(0x55);
                    fragments.read(range.start, &mut window, &Plain).map_err(fail)?;
                    prop_assert!(window == got[start..start + window.len()], "{}: fragments at {start}", want.path);
                }
            }
        }
        for check in container.checks() {
            let result = match check {
                format::Check::Run { name, run, .. } => run().map_err(|e| format!("{name}: {e}")),
                format::Check::Decode { name, blob } => {
                    let count = blob.layout().unwrap().count();
                    (0..count).try_for_each(|p| Plain.piece(&blob, p).map(drop)).map_err(|e| format!("{name}: {e}"))
                }
            };
            prop_assert!(result.is_ok(), "{result:?}");
        }
    }
    Ok(())
}

/// Arrays of several pieces, in the shapes that real files have.
#[test]
fn arrays_of_many_pieces_read_back_whole_and_in_windows() {
    for (shape, dtype, stages) in [
        (vec![600_001], Dtype::F32, "lorenzo_quant:zigzag=1,bitshuffle:w=2,rze"),
        (vec![260, 1300], Dtype::F32, "lorenzo_quant:zigzag=1,mode=noa,bitshuffle:w=2,rze"),
        (vec![11, 30_001], Dtype::F32, "lorenzo_quant,rle"),
        (vec![28, 150, 170], Dtype::F32, "lorenzo_quant:zigzag=1,radius=500,eb=0.1,huffman"),
        (vec![8, 9, 5003], Dtype::F64, "lorenzo_quant:code=u32,bitpack:bits=32"),
        (vec![3, 3, 40_001], Dtype::F32, "lorenzo_quant:code=u8,eb=1,radius=100,cap=1,rle:t=u8"),
        (
            vec![400_000],
            Dtype::F32,
            "quantizer:code=u32,mode=noa,zigzag=1,difference:in=i32,out=u32,chunk=16384,bitshuffle,rze",
        ),
        (vec![300_003], Dtype::F32, "difference,rze"),
        (vec![60, 90, 200], Dtype::I16, "lorenzo,zigzag,bitshuffle:w=2,rze,huffman"),
        (vec![1_500_000], Dtype::U8, "rle"),
        (vec![300_001], Dtype::F32, "lorenzo_quant:zigzag=1,rze:w=2"),
        (vec![300_001], Dtype::F32, "lorenzo_quant,rre:w=2,chunk=8192"),
        (vec![300_001], Dtype::F32, "lorenzo_quant:zigzag=1,raze:w=2,rare:w=8"),
        (vec![300_001], Dtype::F32, "lorenzo_quant,hclog:w=2"),
        (vec![300_001], Dtype::I32, "lorenzo,golomb_rice"),
        (vec![300_001], Dtype::F32, "tupl:w=4,dim=3,block=1000000,clog"),
        (vec![300_001], Dtype::F32, "lorenzo_quant:zigzag=1,gpulz:split=1,rle:from=0,port=outlier_errors"),
    ] {
        let sources = vec![Data { dtype, shape, kind: 5, seed: 11, ragged: 0 }];
        let stages = stages.to_owned();
        let case = Case {
            stages,
            sources,
            version: 0x0301,
            crc: true,
            scatter: None,
            generation: Generation::Slots,
            piece: None,
        };
        if let Err(e) = check(&case) {
            panic!("{}: {e}", case.stages);
        }
    }
}

/// The lengths of several sources are not in table order. Only a result that may be too long is cut, to the longest.
#[test]
fn a_result_is_not_cut_to_the_length_of_another_source() {
    let data = |dtype, n| Data { dtype, shape: vec![n], kind: 0, seed: 0, ragged: 0 };
    for (first, second) in [(0, 1), (1152, 7190), (7190, 1152)] {
        // All sources are padded to whole chunks.
        let stages = "difference:in=i32,out=i32,chunk=512,adaptive_lorenzo:t=i32,tile=8,select=1,\
                      tiled_lorenzo:t=i16,from=input,tiled_lorenzo:t=i16,shape=none";
        let case = Case {
            stages: stages.into(),
            sources: vec![data(Dtype::I32, first), data(Dtype::I16, second)],
            version: 0x0301,
            crc: true,
            scatter: None,
            generation: Generation::Packed,
            piece: Some(1),
        };
        check(&case).unwrap();
    }
}

/// A reader that jumps decodes at most two fragments for a page, and none again.
#[test]
fn a_page_of_an_array_of_many_pieces_decodes_at_most_64_kib() {
    for (stages, dtype) in [
        ("lorenzo_quant:zigzag=1,bitshuffle:w=2,rze", Dtype::F32),
        ("quantizer:zigzag=1,bitshuffle:w=4,rze", Dtype::F32),
        ("lorenzo_quant:zigzag=1,radius=500,eb=0.1,huffman", Dtype::F32),
        ("lorenzo_quant,rle", Dtype::F32),
        ("difference:chunk=16384,rze", Dtype::U32),
        ("lorenzo_quant:zigzag=1,rze:w=4", Dtype::F32),
        ("lorenzo_quant:zigzag=1,rare:w=2", Dtype::F32),
        ("lorenzo_quant,hclog:w=2", Dtype::F32),
        ("difference:chunk=16384,golomb_rice", Dtype::I32),
        ("lorenzo_quant:zigzag=1,gpulz:split=1", Dtype::F32),
    ] {
        let data = Data { dtype, shape: vec![1_000_000], kind: 1, seed: 3, ragged: 0 };
        let (stages, sources) = (stages.to_owned(), vec![data]);
        let case = Case {
            stages,
            sources,
            version: 0x0301,
            crc: true,
            scatter: None,
            generation: Generation::Slots,
            piece: None,
        };
        let input = Input::of(fzmfs::source::Source::from_bytes(case.file().unwrap())).unwrap();
        let container = format::open(&input, None, &Options::default()).unwrap();
        let mut tree = BTreeMap::new();
        files(&container.entries().unwrap(), "", &mut tree);
        let cache = Cache::new(64 << 20, 1);
        let view = View::new(&tree["data.raw"][0].content, &*cache).unwrap();
        let mut page = [0; 4096];
        for at in [1_000_000_u64, 2_000_000, 3_333_333, 65_000, 1_000_000, 65_100] {
            let before = cache.stats();
            let range = at..at + 4096;
            let fragments = view.by_fragments(&range, &|blob, piece| cache.is_known(blob, piece)).expect(&case.stages);
            fragments.read(at, &mut page, &*cache).unwrap();
            let decoded = cache.stats().decoded_bytes - before.decoded_bytes;
            assert!(decoded <= 64 << 10, "{}: {decoded} bytes at {at}", case.stages);
            fragments.read(at, &mut page, &*cache).unwrap();
            assert_eq!(cache.stats().decoded_bytes - before.decoded_bytes, decoded);
            let mut want = [1; 4096];
            view.read(at, &mut want, &Plain).unwrap();
            assert!(page == want, "{} at {at}", case.stages);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 100_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/suite/regressions/fzm_properties.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_pipeline_over_any_data_reads_back_whole_and_in_windows(case in case()) {
        check(&case)?;
    }
}
