//! FZM graphs: sources, branches, sizes and names.

use fzm_writer::{Dtype, Form, Pipeline, Source};
use fzmfs::checksum::Threads;
use fzmfs::error::{Error, Kind};
use fzmfs::format::{Container, File, Options};

use crate::blobs::{decoded_blobs, row_len};
use crate::support::mounts::PATIENCE;
use crate::support::opened::{file, files, open, read, read_at, verify};
use std::sync::{Arc, mpsc};

/// Offset of the tables of a file of version 3.1.
const CORE: usize = 80;

fn numbers(count: i32) -> Source {
    let bytes = (0..count).flat_map(|i| ((i % 50 - 20) * 3).to_le_bytes()).collect();
    Source { dtype: Dtype::I32, shape: Vec::new(), bytes }
}

/// A file without checksums, so that any byte may be changed.
fn encode(pipeline: &str, inputs: Vec<Source>, version: u16) -> Vec<u8> {
    let pipeline = Pipeline::parse(pipeline, &inputs).unwrap();
    let form = Form { version, data_crc: false, header_crc: false, ..Form::default() };
    pipeline.run(inputs, false).unwrap().file(&form).to_vec()
}

fn opened(bytes: &[u8]) -> Result<Arc<dyn Container>, Error> {
    open(bytes.to_vec(), &Options::default())
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Offset of the segment of buffer-table row `row`, from the tables of the file.
fn segment(file: &[u8], row: usize) -> usize {
    let long = |at: usize| u64::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    let stages = u32::from_le_bytes(*file[32..].first_chunk().unwrap()) as usize;
    long(24) + long(CORE + 256 * (stages + row) + 96)
}

#[test]
fn every_source_is_a_file_in_any_order_of_sizes() {
    let (first, second) = (numbers(100), Source { dtype: Dtype::U16, shape: vec![], bytes: vec![7; 90] });
    let pipeline = "zigzag:t=i32,bitpack:t=u32,bits=32,rle:t=u16,from=input";
    let mut bytes = encode(pipeline, vec![first.clone(), second.clone()], 0x0300);
    for swapped in [false, true] {
        if swapped {
            let sizes: [u8; 16] = *bytes[40..].first_chunk().unwrap();
            put(&mut bytes, 40, &sizes[8..]);
            put(&mut bytes, 48, &sizes[..8]);
        }
        let container = opened(&bytes).unwrap();
        assert_eq!(read_at(&*container, "data.raw").unwrap(), first.bytes);
        assert_eq!(read_at(&*container, "source1.raw").unwrap(), second.bytes);
        assert_eq!(container.info().decoded_size, Some(490));
        verify(&*container).unwrap();
    }
    put(&mut bytes, 40, &1000_u64.to_le_bytes());
    let e = opened(&bytes).err().unwrap();
    assert_eq!((e.what(), e.offset().unwrap().0), ("source_uncompressed_sizes", 40));
}

#[test]
fn a_redundant_branch_is_shown_and_checked_and_cannot_affect_the_data() {
    let source = numbers(3000);
    let mut bytes = encode("zigzag:t=i32,rle:t=u32,bitpack:t=u32,bits=32,from=0", vec![source.clone()], 0x0301);
    let container = opened(&bytes).unwrap();
    let codes = read_at(&*container, "stages/02-bitpack/in/output.raw").unwrap();
    assert_eq!(read_at(&*container, "stages/01-rle/in/output.raw").unwrap(), codes);
    assert_eq!(container.info().to_json()["pipeline"][1]["redundant"], true);
    // Both segments decode to the data, by different stages.
    let decoded: Vec<File> =
        files(&*container).into_iter().filter(|(p, _)| p == "buffers/output.raw").map(|f| f.1).collect();
    assert_eq!(decoded.len(), 2);
    for file in decoded {
        assert_eq!(read(&file).unwrap(), source.bytes);
    }
    verify(&*container).unwrap();

    let rows = container.info().to_json()["buffers"].as_array().unwrap().clone();
    let rle = rows.iter().position(|row| row["stage_name"] == "rle").unwrap();
    let at = segment(&bytes, rle);
    put(&mut bytes, at, &u32::MAX.to_le_bytes());
    let container = opened(&bytes).unwrap();
    assert_eq!(read_at(&*container, "data.raw").unwrap(), source.bytes);
    assert_eq!(read_at(&*container, "stages/02-bitpack/in/output.raw").unwrap(), codes);
    read_at(&*container, "stages/01-rle/in/output.raw").unwrap_err();
    let e = verify(&*container).unwrap_err();
    assert!(e.what().starts_with("stage 1 (rle)"), "{e}");
    assert_eq!(e.offset().unwrap().0 as usize, at);
}

#[test]
fn the_first_byte_does_not_wait_for_checks_of_whole_files() {
    let source = numbers(30_000);
    let bytes = encode("zigzag:t=i32,bitshuffle:w=4,rze", vec![source.clone()], 0x0301);
    let threads = Threads::new(1);
    let options = Options { threads: threads.clone(), ..Options::default() };
    let blob = decoded_blobs(&*open(bytes, &options).unwrap()).remove(0);
    let (go, wait) = mpsc::channel::<()>();
    threads.run(Box::new(move || _ = wait.recv()));
    let gate = blob.gate(0).expect("the index of chunks is built before the first piece is decoded");
    let (tx, rx) = mpsc::channel();
    gate.when_open(move |outcome| tx.send(outcome).unwrap());
    rx.recv_timeout(PATIENCE).expect("built while the thread for checks is busy").unwrap();
    assert!(blob.gate(0).is_none());
    drop(go);
    let mut decoded = vec![0; row_len(&blob, 0..1).unwrap()];
    blob.decode(0, &mut decoded).unwrap();
    assert!(decoded.starts_with(&source.bytes));
}

#[test]
fn a_decoded_length_that_differs_from_the_header_is_refused_at_open() {
    let bytes = encode("zigzag:t=i32,rle:t=u32", vec![numbers(100)], 0x0301);
    for (size, fits) in [(400_u64, true), (403, true), (404, false), (399, false), (u64::MAX, false)] {
        let mut bytes = bytes.clone();
        put(&mut bytes, 40, &size.to_le_bytes());
        let outcome = opened(&bytes);
        assert_eq!(outcome.is_ok(), fits, "{size}");
        if let Err(e) = outcome {
            assert_eq!((e.what(), e.offset().unwrap().0), ("source_uncompressed_sizes", 40));
        }
    }
}

#[test]
fn hostile_names_are_escaped_in_diagrams_and_json() {
    let mut bytes = encode("zigzag:t=i32,rle:t=u32", vec![numbers(100)], 0x0301);
    let name = b"a/../\"]<script>&\x01\xFF\\";
    let at = CORE + 2 * 256 + 8;
    bytes[at..at + 64].fill(0);
    put(&mut bytes, at, name);
    let container = opened(&bytes).unwrap();
    let text = |path: &str| String::from_utf8(read_at(&*container, path).unwrap()).unwrap();
    let (svg, dot) = (text("pipeline.svg"), text("pipeline.dot"));
    assert!(svg.contains("&lt;script&gt;&amp;") && !svg.contains("<script>"), "{svg}");
    assert!(dot.contains("\\\"]<script>&\\\\u{1}\u{FFFD}\\\\"), "{dot}");
    assert!(!svg.contains('\u{1}') && !dot.contains('\u{1}'));
    let json = files(&*container).into_iter().find(|(path, _)| path.starts_with("buffers/") && path.ends_with("json"));
    let json: serde_json::Value = serde_json::from_slice(&read(&json.unwrap().1).unwrap()).unwrap();
    assert_eq!(json["name"], String::from_utf8_lossy(name).as_ref());
    assert!(file(&*container, "data.raw").is_some());
}

#[test]
fn ports_that_no_library_gives_a_stage_are_refused() {
    let bytes = encode("zigzag:t=i32,rle:t=u32", vec![numbers(100)], 0x0301);
    let mut two = bytes.clone();
    put(&mut two, CORE + 256 + 5, &[2]);
    put(&mut two, CORE + 256 + 26, &[9, 0]);
    put(&mut two, CORE + 2 * 256 + 6, &[9, 0]);
    let e = opened(&two).err().unwrap();
    assert!(e.what().contains("output_buffer_ids") && e.offset().is_some(), "{e}");
    let mut none = bytes;
    put(&mut none, CORE + 256 + 5, &[0]);
    let e = verify(&*opened(&none).unwrap()).unwrap_err();
    assert!(matches!(e.kind(), Kind::Unknown(_)), "{e}");
    assert!(e.what().contains("output_buffer_ids") && e.offset().is_some(), "{e}");
}
