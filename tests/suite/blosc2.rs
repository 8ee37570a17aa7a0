//! Blosc2: every recorded hash of the corpus, every malformed file, and the library's own old files.
//!
//! tests/data/blosc2 holds the smaller files of the corpus. `BLOSC2_CORPUS=DIR` runs the same tests over a whole one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{self, BlobRef, Check, Container, Fetch, Input, Options, Piece};
use fzmfs::source::Source;
use fzmfs::tree::Tree;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Decodes requested pieces; keeps them and counts their bytes.
#[derive(Default)]
struct Direct {
    pieces: RefCell<HashMap<(u64, u64), Piece>>,
    decoded: RefCell<u64>,
}

impl Fetch for Direct {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        if let Some(piece) = self.pieces.borrow().get(&(blob.id(), piece)) {
            return Ok(piece.clone());
        }
        let range = blob.layout()?.range(piece);
        let mut bytes = vec![0xAA; (range.end - range.start) as usize];
        blob.decode(piece, &mut bytes)?;
        *self.decoded.borrow_mut() += range.end - range.start;
        let bytes = Arc::new(bytes);
        self.pieces.borrow_mut().insert((blob.id(), piece), bytes.clone());
        Ok(bytes)
    }
}

pub(crate) struct Opened {
    tree: Tree,
    direct: Direct,
}

impl Opened {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::with(path, None, &Options::default())
    }

    pub(crate) fn with(path: &Path, name: Option<&str>, options: &Options) -> Result<Self> {
        Self::of(&Input::open(path)?, name, options)
    }

    pub(crate) fn of(input: &Input, name: Option<&str>, options: &Options) -> Result<Self> {
        let container = format::open(input, name, options)?;
        let tree = Tree::new(container, input.path.file_name().unwrap_or_default())?;
        Ok(Self { tree, direct: Direct::default() })
    }

    fn container(&self) -> &Arc<dyn Container> {
        self.tree.container()
    }

    pub(crate) fn len(&self, path: &str) -> Result<u64> {
        Ok(self.tree.file(self.tree.resolve(path)?)?.view(&self.direct)?.len())
    }

    fn window(&self, path: &str, at: u64, len: u64) -> Result<Vec<u8>> {
        let view = self.tree.file(self.tree.resolve(path)?)?.view(&self.direct)?;
        let mut bytes = vec![0xAA; len as usize];
        view.read(at, &mut bytes, &self.direct)?;
        Ok(bytes)
    }

    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>> {
        let bytes = self.window(path, 0, self.len(path)?)?;
        self.check_fragments(path, &bytes)?;
        Ok(bytes)
    }

    /// What a reader that jumps gets of the file at `path`, whose bytes are `want`.
    fn check_fragments(&self, path: &str, want: &[u8]) -> Result<()> {
        let view = self.tree.file(self.tree.resolve(path)?)?.view(&self.direct)?;
        for at in [0, want.len() / 3, want.len() / 2 + 1, want.len().saturating_sub(7)] {
            let part = want.get(at..).map_or(&[][..], |rest| &rest[..rest.len().min(1021)]);
            let range = at as u64..(at + part.len()) as u64;
            if let Some(fragments) = view.by_fragments(&range, &|_, _| false) {
                let mut got = vec![0xAA; part.len()];
                fragments.read(range.start, &mut got, &Direct::default())?;
                assert!(got == part, "{path}: fragments at {at}");
            }
        }
        Ok(())
    }

    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>> {
        let dir = self.tree.resolve(path)?;
        self.tree.entries(dir).map(|entry| Ok(entry?.name)).collect()
    }

    /// What `fzmfs verify` does.
    pub(crate) fn verify(&self) -> Result<()> {
        for check in self.container().checks() {
            match check {
                Check::Decode { blob, .. } => {
                    for piece in 0..blob.layout()?.count() {
                        self.direct.piece(&blob, piece)?;
                    }
                }
                Check::Run { run, .. } => run()?,
            }
        }
        Ok(())
    }
}

/// A file made by `tests/support/make_blosc2.py`.
fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/own").join(name)
}

fn data() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2");
    std::env::var_os("BLOSC2_CORPUS").map_or_else(own, PathBuf::from)
}

/// The cases of a manifest whose files exist.
fn cases(folder: &Path) -> Vec<Value> {
    let manifest: Value = serde_json::from_slice(&std::fs::read(folder.join("MANIFEST.json")).unwrap()).unwrap();
    let all = manifest["cases"].as_array().unwrap().clone();
    let there: Vec<Value> = all.into_iter().filter(|c| folder.join(c["file"].as_str().unwrap()).exists()).collect();
    assert!(!there.is_empty());
    there
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}

/// The prefix of the tree's paths for a case, and the file opened.
fn open_case(folder: &Path, case: &Value) -> Result<(String, Opened)> {
    let opened = Opened::open(&folder.join(case["file"].as_str().unwrap()))?;
    let prefix = if case["offset"].as_u64().unwrap_or(0) > 0 { "frames/000001/" } else { "" };
    Ok((prefix.into(), opened))
}

#[test]
fn every_case_is_read_as_recorded() {
    let folder = data();
    let cases = cases(&folder);
    for case in &cases {
        let name = case["case"].as_str().unwrap();
        if !case["optional"].is_null() {
            continue;
        }
        check_case(&folder, case).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

fn check_case(folder: &Path, case: &Value) -> Result<()> {
    let name = case["case"].as_str().unwrap();
    let (prefix, opened) = open_case(folder, case)?;
    let path = |rest: &str| format!("{prefix}{rest}");

    assert_eq!(opened.len(&path("data.raw"))?, case["length"].as_u64().unwrap(), "{name}: length");
    if let Some(want) = case["sha256"].as_str() {
        let whole = opened.read(&path("data.raw"))?;
        assert_eq!(sha256(&whole), want, "{name}: data.raw");
        // Ranges at unaligned offsets equal those of the whole.
        for (i, len) in [1, 13, 1000, 40_000].into_iter().enumerate() {
            let len = len.min(whole.len());
            let at = (whole.len() - len) * (i + 1) / 5;
            assert!(opened.window(&path("data.raw"), at as u64, len as u64)? == whole[at..at + len], "{name}");
        }
    }
    if let Some(count @ 0..10_000) = case["nchunks"].as_u64() {
        assert_eq!(opened.names(&path("chunks"))?.len() as u64, count, "{name}: number of chunks");
    }
    for chunk in case["chunks"].as_array().into_iter().flatten() {
        let file = path(&format!("chunks/{:06}.raw", chunk["i"].as_u64().unwrap()));
        assert_eq!(opened.len(&file)?, chunk["nbytes"].as_u64().unwrap(), "{name}: {file}");
        if let Some(want) = chunk["sha256"].as_str() {
            assert_eq!(sha256(&opened.read(&file)?), want, "{name}: {file}");
        }
    }
    for (kind, names) in [("metalayers", "meta_names"), ("vlmetalayers", "vlmeta_names")] {
        for layer in case[names].as_array().into_iter().flatten() {
            let layer = layer.as_str().unwrap();
            let bytes = opened.read(&path(&format!("{kind}/{layer}.msgpack")))?;
            let recorded = &case[kind.trim_end_matches("layers")][layer];
            if let Some(want) = recorded["sha256"].as_str() {
                assert_eq!(sha256(&bytes), want, "{name}: {kind}/{layer}");
                serde_json::from_slice::<Value>(&opened.read(&path(&format!("{kind}/{layer}.json")))?).unwrap();
            }
        }
    }
    if let Some(shape) = case["shape"].as_array() {
        let npy = opened.window(&path("data.npy"), 0, 64.min(opened.len(&path("data.npy"))?))?;
        assert!(npy.starts_with(b"\x93NUMPY"), "{name}");
        let info: Value = serde_json::from_slice(&opened.read(&path("info.json"))?).unwrap();
        assert_eq!(info["array"]["shape"].as_array(), Some(shape), "{name}");
    }
    if prefix.is_empty() {
        opened.verify()?;
    }
    Ok(())
}

#[test]
fn an_unsupported_codec_affects_only_its_chunks() {
    let folder = data();
    let mut seen = 0;
    for case in cases(&folder).iter().filter(|c| !c["optional"].is_null()) {
        let (_, opened) = open_case(&folder, case).unwrap();
        let e = opened.read("data.raw").unwrap_err();
        assert!(matches!(e.kind(), Kind::Unsupported(_)) && e.to_string().contains("zfp"), "{e}");
        assert_eq!(e.errno(), libc::EIO);
        assert!(opened.verify().is_err());
        assert!(!opened.read("stored/000000.bin").unwrap().is_empty());
        assert!(opened.read("metalayers/b2nd.json").is_ok() && opened.read("info.json").is_ok());
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn every_malformed_file_is_refused_with_field_and_offset() {
    let folder = data().join("bad");
    let cases = cases(&folder);
    for case in &cases {
        let name = case["case"].as_str().unwrap();
        let full = case["full_read"].as_bool().unwrap();
        let path = folder.join(case["file"].as_str().unwrap());
        let result = Opened::with(&path, Some("blosc2"), &Options::default()).and_then(|opened| {
            opened.read("info.json")?;
            opened.verify()?;
            if full {
                // What cannot be verified cannot be read either.
                opened.read("data.raw")?;
            }
            Ok(())
        });
        match case["expect"].as_str().unwrap() {
            "error" => {
                let e = result.map_or_else(|e| e, |()| panic!("{name} is accepted"));
                check_message(name, &e);
            }
            "ok" => result.unwrap_or_else(|e| panic!("{name}: {e}")),
            _ => drop(result),
        }
    }
}

/// A message says what, in which field, and where.
fn check_message(name: &str, e: &Error) {
    assert!(!e.what().is_empty() && e.offset().is_some(), "{name}: {e}");
}

#[test]
fn a_missing_chunk_file_is_named_and_the_others_are_read() {
    let folder = data().join("bad/sframe_missing_chunk.b2frame");
    let opened = Opened::open(&folder).unwrap();
    for e in [opened.verify(), opened.read("chunks/000001.raw").map(drop), opened.read("data.raw").map(drop)] {
        let e = e.unwrap_err();
        assert!(e.to_string().starts_with("the file 00000001.chunk is missing"), "{e}");
        assert_eq!((e.what(), e.errno()), ("chunk 1: chunks.b2frame: chunk offset", libc::EIO));
        // Three entries are stored as they are: the second of them names file 1.
        let at = e.offset().unwrap().0 as usize;
        assert_eq!(std::fs::read(folder.join("chunks.b2frame")).unwrap()[at..][..8], 1_i64.to_le_bytes());
    }
    for name in ["000000", "000002"] {
        let chunk = opened.read(&format!("chunks/{name}.raw")).unwrap();
        assert_eq!(chunk.len() as u64, opened.len(&format!("chunks/{name}.raw")).unwrap());
        assert!(!opened.read(&format!("stored/{name}.bin")).unwrap().is_empty());
    }
}

#[test]
fn files_of_old_libraries_are_read() {
    let folder = data().join("compat");
    for case in cases(&folder) {
        let name = case["case"].as_str().unwrap();
        let path = folder.join(case["file"].as_str().unwrap());
        if case["kind"] == "raw filter output" {
            raw_filter_output(name, &path, &case);
            continue;
        }
        let opened = Opened::open(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let whole = opened.read("data.raw").unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(whole.len() as u64, case["length"].as_u64().unwrap(), "{name}");
        assert_eq!(sha256(&whole), case["sha256"].as_str().unwrap(), "{name}");
        opened.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(opened.names("chunks").unwrap().len() as u64, case["nchunks"].as_u64().unwrap(), "{name}");
    }
}

/// The gzipped output of a filter of the library; not a container.
fn raw_filter_output(name: &str, path: &Path, case: &Value) {
    let mut raw = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut raw).unwrap();
    let mut dst = vec![0xAA; raw.len()];
    match name.split('-').next() {
        Some("shuffle") => fzmfs::codec::shuffle::undo(4, &raw, &mut dst),
        _ => fzmfs::codec::bitshuffle::undo(4, &raw, &mut dst),
    }
    assert_eq!(sha256(&dst), case["sha256"].as_str().unwrap(), "{name}");
}

#[test]
fn every_bare_chunk_of_a_frame_is_a_container() {
    // A file in stored/ is a chunk, which opens as a container of its own.
    let folder = data();
    let mut seen = 0;
    for case in cases(&folder) {
        let name = case["case"].as_str().unwrap();
        // The filter needs the array's geometry, which a bare chunk does not have, or the frame's item size.
        let depends = ["ndcell", "ndmean", "wide", "unrounded", "zfp", "delta"].iter().any(|word| name.contains(word));
        if depends || !case["offset"].is_null() {
            continue;
        }
        let (_, opened) = open_case(&folder, &case).unwrap();
        for file in opened.names("stored").unwrap().iter().take(3) {
            let stored = opened.read(&format!("stored/{file}")).unwrap();
            let number = file.trim_end_matches(".bin");
            if opened.len(&format!("chunks/{number}.raw")).unwrap() > 1 << 22 {
                continue;
            }
            let want = opened.read(&format!("chunks/{number}.raw")).unwrap_or_else(|e| panic!("{name}: {file}: {e}"));
            let input = Input::of(Source::from_bytes(stored)).unwrap();
            let bare = Opened::of(&input, None, &Options::default()).unwrap_or_else(|e| panic!("{name}: {file}: {e}"));
            let got = bare.read("data.raw").unwrap_or_else(|e| panic!("{name}: {file}: {e}"));
            assert!(got == want, "{name}: {file}");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn dtype_and_shape_override_those_of_the_container() {
    let folder = data();
    let path = folder.join("f02_blosclz_l5_shuffle_ts4.b2frame");
    let with = |dtype: Option<&str>, shape: Option<&[u64]>| {
        let options = Options { dtype: dtype.map(Into::into), shape: shape.map(<[u64]>::to_vec), ..Options::default() };
        let opened = Opened::with(&path, None, &options)?;
        let npy = opened.read("data.npy")?;
        let header = String::from_utf8_lossy(&npy[10..]).into_owned();
        Ok::<_, Error>((header[..header.find('\n').unwrap()].trim_end().to_owned(), npy.len()))
    };
    let (header, len) = with(None, None).unwrap();
    assert_eq!(header, "{'descr': '|V4', 'fortran_order': False, 'shape': (30000,), }");
    assert_eq!(len, 128 + 120_000);
    let (header, _) = with(Some("f4"), Some(&[100, 300])).unwrap();
    assert_eq!(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (100, 300), }");
    let (header, _) = with(Some("<i2"), None).unwrap();
    assert_eq!(header, "{'descr': '<i2', 'fortran_order': False, 'shape': (60000,), }");
    // A type of the same size keeps the shape of an array.
    let path = folder.join("n05_5d_f4.b2nd");
    let options = Options { dtype: Some(">u4".into()), ..Options::default() };
    let npy = Opened::with(&path, None, &options).unwrap().read("data.npy").unwrap();
    assert!(
        String::from_utf8_lossy(&npy[10..128])
            .starts_with("{'descr': '>u4', 'fortran_order': False, 'shape': (5, 4, 6, 3, 7)")
    );
    for (dtype, shape) in [(Some("f9"), None), (None, Some(&[30_001_u64][..])), (Some("f8"), Some(&[u64::MAX, 2][..]))]
    {
        let e = with(dtype, shape).unwrap_err();
        assert!(matches!(e.kind(), Kind::Usage(_)), "{e}");
    }
}

#[test]
fn a_small_read_decodes_a_small_part() {
    // One chunk of 64 MiB in blocks of 128 KiB.
    let opened = Opened::open(&own("one_large_chunk.b2frame")).unwrap();
    let bytes = opened.window("data.raw", 40 << 20, 4096).unwrap();
    let want: Vec<u8> = (0..1024_u32).flat_map(|i| ((10 << 20) + i).wrapping_mul(3).to_le_bytes()).collect();
    assert_eq!(bytes, want);
    assert!(*opened.direct.decoded.borrow() <= 2 << 20, "{}", opened.direct.decoded.borrow());
    let bytes = opened.window("chunks/000000.raw", (64 << 20) - 8, 8).unwrap();
    assert_eq!(bytes, [0x3fff_fffa_u32 & 0x02ff_fffa, 0x02ff_fffd].map(u32::to_le_bytes).as_flattened());
}

#[test]
fn small_chunks_are_decoded_together_and_a_corrupt_one_affects_only_its_piece() {
    const CHUNK: u64 = 1000;
    let chunk = |i: u32| (0..250).flat_map(|j| (j / 50 + 1000 * i).to_le_bytes()).collect::<Vec<u8>>();
    let file = own("small_chunks.b2frame");
    let opened = Opened::open(&file).unwrap();
    assert!(opened.read("data.raw").unwrap() == (0..40).flat_map(chunk).collect::<Vec<u8>>());
    // 4 chunks fit in a page.
    assert_eq!(opened.direct.pieces.borrow().len(), 10);

    let (mut bytes, stored) = (std::fs::read(&file).unwrap(), opened.read("stored/000020.bin").unwrap());
    let at = bytes.windows(stored.len()).position(|window| window == stored).unwrap();
    bytes[at] = 0;
    let broken = Opened::of(&Input::of(Source::from_bytes(bytes)).unwrap(), None, &Options::default()).unwrap();
    let is_chunk_20 = |e: &Error| e.errno() == libc::EIO && e.what().contains("chunk 20: ") && e.offset().is_some();
    for i in 0..40 {
        match broken.read(&format!("chunks/{i:06}.raw")) {
            Err(e) => assert!(i == 20 && is_chunk_20(&e), "{i}: {e}"),
            Ok(bytes) => assert!(i != 20 && bytes == chunk(i), "{i}"),
        }
    }
    for (at, len, ok) in
        [(0, 20 * CHUNK, true), (20 * CHUNK, 1, false), (24 * CHUNK - 1, 1, false), (24 * CHUNK, 16 * CHUNK, true)]
    {
        match broken.window("data.raw", at, len) {
            Err(e) => assert!(!ok && is_chunk_20(&e), "{at}: {e}"),
            Ok(bytes) => assert!(ok && bytes[..4] == chunk((at / CHUNK) as u32)[..4], "{at}"),
        }
    }
    assert!(is_chunk_20(&broken.verify().unwrap_err()));
}

#[test]
fn small_chunks_that_are_not_stored_are_filled_together() {
    // 2^25 chunks of 32 bytes.
    let opened = Opened::open(&own("small_special_chunks.b2frame")).unwrap();
    assert!(opened.window("data.raw", (1 << 29) - 7, 4096).unwrap().iter().all(|&byte| byte == 0));
    assert!(*opened.direct.decoded.borrow() <= 8 << 10, "{}", opened.direct.decoded.borrow());
    assert_eq!(opened.read("chunks/33554431.raw").unwrap(), [0; 32]);
    opened.verify().unwrap();
}

#[test]
fn a_frame_whose_chunks_were_all_deleted_is_empty() {
    let opened = Opened::open(&own("all_chunks_deleted.b2frame")).unwrap();
    opened.verify().unwrap();
    assert!(opened.read("data.raw").unwrap().is_empty());
    assert!(opened.names("chunks").unwrap().is_empty());
    let info: Value = serde_json::from_slice(&opened.read("info.json").unwrap()).unwrap();
    assert_eq!((&info["decoded_size"], &info["cbytes"]), (&0.into(), &0.into()));
}
