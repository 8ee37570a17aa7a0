//! The test writer itself: encoding the decoded bytes of a reference file reproduces the file.
//!
//! Encoding decoded values yields the same codes, because every value is on the grid already. The files of the
//! reference library are the standard; cases in which the format leaves a choice (the order of outliers, uninitialized
//! bytes, ties in a Huffman tree) are not in the table.

use std::collections::BTreeMap;
use std::path::Path;

use fzm_writer::{Dtype, Form, Pipeline, Source, spec};
use fzmfs::format::{Input, Options, open};

use super::fzm_properties::{Plain, files};

/// File, element type, shape, pipeline.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("lq1d_f32_abs", "f32", "5000", "lorenzo_quant:shape=none"),
    ("lq2d_f64_u32", "f64", "48x64", "lorenzo_quant:code=u32,eb=1e-5,radius=1000000"),
    ("lq1d_one", "f32", "1", "lorenzo_quant:shape=none"),
    ("lq_zero_rle", "f32", "3000", "lorenzo_quant:shape=none,rle"),
    ("lor1d_i32_zz_bp", "i32", "5003", "lorenzo:shape=none,zigzag,bitpack:bits=16"),
    ("lor2d_i16_nb_bs2_rze", "i16", "64x128", "lorenzo,negabinary,bitshuffle:w=2,rze"),
    ("lor3d_i8_rle", "i8", "7x20x30", "lorenzo"),
    ("lor1d_i64", "i64", "1000", "lorenzo:shape=none"),
    ("lor2d_wide", "i32", "8x1500", "lorenzo"),
    ("diff_i32nb_bs4_rze", "i32", "9000", "difference:out=u32,chunk=16384,bitshuffle:w=4,rze"),
    ("diff_i64nb_bs8", "i64", "4096", "difference:out=u64,bitshuffle:w=8"),
    ("diff_i8nb_bs1_rze", "i8", "32768", "difference:out=u8,bitshuffle:w=1,rze"),
    ("rle_u32", "u32", "1237", "rle"),
    ("rle_u16_odd_pad", "u16", "999", "rle"),
    ("bp_u16_1", "u16", "1001", "bitpack:bits=1"),
    ("bp_u8_4_rze_oddtail", "u8", "55001", "bitpack:bits=4,rle:t=u8,rze"),
    ("qz_inplace_special", "f32", "3000", "quantizer:code=u32,eb=0.01,zigzag=1,inplace=1"),
    ("dag_fanout", "f32", "6000", "lorenzo_quant:eb=0.01,shape=none,rle,bitpack:bits=16,from=0,port=codes"),
    ("v31_gaps_reordered", "f32", "2000", "lorenzo_quant:eb=0.01,radius=50,cap=0.5,shape=none,rle"),
    ("v30_lq2d_type12", "f32", "50x60", "lorenzo_quant:eb=0.01,type=12"),
    ("empty_rle", "u16", "0", "rle"),
];

/// The rows of the stage table, and by id the row (without the offset) and the bytes of every segment.
type Tables = (Vec<Vec<u8>>, BTreeMap<u16, (Vec<u8>, Vec<u8>)>);

fn tables(file: &[u8]) -> Tables {
    let u16_at = |at: usize| u16::from_le_bytes(*file[at..].first_chunk().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    let core = if u16_at(4) == 0x0300 { 72 } else { 80 };
    let (stages, buffers, payload) = (u16_at(32) as usize, u16_at(6) as usize, u64_at(24));
    let rows = file[core..].chunks(256).take(stages).map(<[u8]>::to_vec).collect();
    let segments = (0..buffers).map(|k| {
        let at = core + 256 * (stages + k);
        let mut row = file[at..at + 256].to_vec();
        row[96..104].fill(0);
        let start = payload + u64_at(at + 96);
        (u16_at(at + 6), (row, file[start..start + u64_at(at + 72)].to_vec()))
    });
    (rows, segments.collect())
}

#[test]
fn encoding_a_decoded_reference_file_reproduces_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fzm");
    for (name, dtype, shape, stages) in CASES {
        let file = std::fs::read(folder.join(format!("{name}.fzm"))).unwrap();
        let input = Input::of(fzmfs::source::Source::from_bytes(file.clone())).unwrap();
        let container = open(&input, None, &Options::default()).unwrap();
        let mut tree = BTreeMap::new();
        files(&container.entries().unwrap(), "", &mut tree);
        let view = fzmfs::view::View::new(&tree["data.raw"][0].content, &Plain).unwrap();
        let mut bytes = vec![0; view.len() as usize];
        view.read(0, &mut bytes, &Plain).unwrap();

        let (dtype, shape) = (Dtype::parse(dtype).unwrap(), spec::shape(shape).unwrap());
        bytes.truncate(shape.iter().product::<u32>() as usize * dtype.size());
        let source = Source { dtype, shape, bytes };
        let pipeline = Pipeline::parse(stages, std::slice::from_ref(&source)).unwrap();
        let run = pipeline.run(vec![source], false).unwrap();
        let version = u16::from_le_bytes(*file[4..].first_chunk().unwrap());
        let ours = run.file(&Form { version, ..Form::default() }).to_vec();
        let ((want_rows, want), (got_rows, got)) = (tables(&file), tables(&ours));
        assert_eq!(got_rows, want_rows, "{name}: the stage table");
        assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{name}: stored buffers");
        for (id, (row, bytes)) in want {
            assert_eq!(got[&id].0, row, "{name}: the entry of buffer {id}");
            assert!(got[&id].1 == bytes, "{name}: the segment of buffer {id}");
        }
        assert_eq!(ours[8..16], file[8..16], "{name}: uncompressed size");
    }
}
