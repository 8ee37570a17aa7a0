//! FZM: every file of the corpus decodes like the reference library, and every corrupt one is refused.

use std::fmt::Write;
use std::fs;

use fzmfs::account::Account;
use fzmfs::error::Kind;
use fzmfs::format::Options;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::opened::{data, file, files, open, read, read_at, verify};

fn manifest(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(data(name)).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["cases"].as_array().unwrap().clone()
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(data(&format!("fzm/{name}"))).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("{field} of {case}"))
}

/// Whether `got` is what `case` requires, compared as it requires.
fn compare(case: &Value, got: &[u8]) -> Result<(), String> {
    let want = || bytes(&format!("{}.out", text(case, "case")));
    let floats =
        |bytes: &[u8]| -> Vec<u32> { bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect() };
    if got.len() as u64 != case["out_size"].as_u64().unwrap() {
        return Err(format!("{} bytes instead of {}", got.len(), case["out_size"]));
    }
    let differ = match (text(case, "compare"), case["defined_bytes"].as_u64()) {
        ("exact", None) => {
            let got = sha256(got);
            return if got == text(case, "out_sha256") { Ok(()) } else { Err(format!("sha256 is {got}")) };
        }
        ("exact", Some(defined)) => got.iter().zip(&want()).take(defined as usize).position(|(got, want)| got != want),
        ("nan-class", _) => floats(got)
            .into_iter()
            .zip(floats(&want()))
            .position(|(got, want)| got != want && !(f32::from_bits(got).is_nan() && f32::from_bits(want).is_nan())),
        ("ulp2", _) => floats(got).into_iter().zip(floats(&want())).position(|(got, want)| got.abs_diff(want) > 2),
        (other, _) => return Err(format!("unknown way to compare: {other}")),
    };
    differ.map_or(Ok(()), |at| Err(format!("differs at {at}")))
}

#[test]
fn the_corpus_decodes_like_the_reference_library() {
    let cases = manifest("fzm/MANIFEST.json");
    assert!(cases.len() >= 56);
    let mut failures = Vec::new();
    // With the default memory, and with so little that indexes and arrays go to a file.
    for account in [Options::default().account, Account::new(256 << 10, 1 << 30)] {
        let options = Options { account: account.clone(), ..Options::default() };
        for case in &cases {
            let name = text(case, "case");
            let outcome = open(bytes(text(case, "file")), &options)
                .and_then(|container| read_at(&*container, "data.raw"))
                .map_err(|e| e.to_string())
                .and_then(|got| compare(case, &got));
            if let Err(why) = outcome {
                failures.push(format!("{name}, {account:?}: {why}"));
            }
        }
        assert_eq!((account.memory().used(), account.disk().used()), (0, 0));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_zero_bit_total_does_not_hide_bits_of_partitions() {
    let open = |name: &str| open(fs::read(data(&format!("broken/fzm/{name}"))).unwrap(), &Options::default()).unwrap();
    let [good, total_0] =
        ["huff-good.fzm", "huff-total0-24.fzm"].map(|name| read_at(&*open(name), "data.raw").unwrap());
    assert!(good == total_0);
    let e = verify(&*open("fz-mut3708.fzm")).unwrap_err();
    assert!(matches!(e.kind(), Kind::Corrupt(_)) && e.what().ends_with("par_nbit"), "{e}");
}

#[test]
fn every_intermediate_buffer_equals_that_of_the_reference_library() {
    let mut seen = 0;
    let mut failures = Vec::new();
    for case in &manifest("fzm/MANIFEST.json") {
        let Some(buffers) = case["inverse_buffers"].as_array() else { continue };
        let container = open(bytes(text(case, "file")), &Options::default()).unwrap();
        let files = files(&*container);
        for buffer in buffers {
            let dir = format!("stages/{:02}-", buffer["inverse_of_stage"].as_u64().unwrap());
            let (path, file) = files.iter().find(|(path, _)| path.starts_with(&dir) && path.contains("/in/")).unwrap();
            // Approximate and undefined bytes are compared in the final result only.
            let exact = text(case, "compare") == "exact" && case["defined_bytes"].is_null();
            let source = buffer["inverse_of_stage"] == 0;
            if !exact && source {
                continue;
            }
            seen += 1;
            match read(file) {
                Ok(got) if sha256(&got) == text(buffer, "sha256") => {}
                Ok(got) => failures.push(format!("{}: {path}: {} other bytes", text(case, "case"), got.len())),
                Err(e) => failures.push(format!("{}: {path}: {e}", text(case, "case"))),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(seen > 50, "{seen}");
}

#[test]
fn every_file_of_the_corpus_passes_all_its_checks() {
    let mut failures = Vec::new();
    for case in &manifest("fzm/MANIFEST.json") {
        let container = open(bytes(text(case, "file")), &Options::default()).unwrap();
        if let Err(e) = verify(&*container) {
            failures.push(format!("{}: {e}", text(case, "case")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn corrupt_files_are_refused_with_field_and_offset() {
    let mut failures = Vec::new();
    for case in &manifest("fzm/bad/MANIFEST.json") {
        let name = text(case, "case");
        let outcome = open(bytes(&format!("bad/{}", text(case, "file"))), &Options::default()).and_then(|container| {
            verify(&*container)?;
            files(&*container).iter().try_for_each(|(_, file)| read(file).map(drop))
        });
        match (outcome, text(case, "expect")) {
            (Ok(()), "reject") => failures.push(format!("{name}: accepted")),
            (Err(e), _) if e.offset().is_none() || e.what().is_empty() => {
                failures.push(format!("{name}: says neither where nor what: {e}"));
            }
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The sample pipeline: `LorenzoQuant`, then RLE over its codes.
#[test]
fn buffers_stages_and_stored_segments_show_the_same_bytes() {
    let container = open(bytes("lq1d_f32_noa_rle.fzm"), &Options::default()).unwrap();
    let get = |path: &str| read_at(&*container, path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let codes = get("buffers/output.raw");
    assert_eq!(codes.len(), 7777 * 2);
    assert_eq!(codes, get("stages/01-rle/in/codes.raw"));
    assert_eq!(codes, get("stages/00-lorenzo_quant/out/codes.raw"));
    assert_eq!(get("stages/01-rle/out/output.raw"), get("stored/output.bin"));
    assert_eq!(get("buffers/outlier_count.raw"), get("stored/outlier_count.bin"));
    assert_eq!(get("data.raw"), get("stages/00-lorenzo_quant/in/input.raw"));
    assert_eq!(get("stages/00-lorenzo_quant/config.bin").len(), 44);
    let mut paths: Vec<String> = files(&*container).into_iter().map(|(path, _)| path).collect();
    paths.sort();
    let mut want = Vec::new();
    for name in ["output", "outlier_errors", "outlier_indices", "outlier_count"] {
        want.extend([format!("buffers/{name}.json"), format!("buffers/{name}.raw"), format!("stored/{name}.bin")]);
    }
    let stages = [
        "00-lorenzo_quant/config.bin",
        "00-lorenzo_quant/in/input.raw",
        "00-lorenzo_quant/info.json",
        "00-lorenzo_quant/out/codes.raw",
        "00-lorenzo_quant/out/outlier_count.raw",
        "00-lorenzo_quant/out/outlier_errors.raw",
        "00-lorenzo_quant/out/outlier_indices.raw",
        "01-rle/config.bin",
        "01-rle/in/codes.raw",
        "01-rle/info.json",
        "01-rle/out/output.raw",
    ];
    want.extend(stages.map(|path| format!("stages/{path}")));
    want.extend(["data.raw", "pipeline.dot", "pipeline.svg"].map(str::to_owned));
    want.sort();
    assert_eq!(paths, want);
}

#[test]
fn arrays_have_the_shape_of_the_source_without_its_padding() {
    for (name, descr, shape) in [
        ("lq2d_f32_outliers", "'<f4'", &[77, 100][..]),
        ("undef_tail_2d_rze", "'<f4'", &[70, 90]),
        ("lq3d_f32_zz_bitpack", "'<f4'", &[9, 17, 33]),
        ("lq1d_f32_rel_bs2_rze", "'<f4'", &[20480]),
        ("lor2d_i16_nb_bs2_rze", "'<i2'", &[64, 128]),
        ("lq1d_f64_u16_noa", "'<f8'", &[6001]),
        ("ragged_zz_i32", "'<i4'", &[1024]),
        ("empty_lq", "'<f4'", &[0]),
    ] {
        let container = open(bytes(&format!("{name}.fzm")), &Options::default()).unwrap();
        let array = file(&*container, "data.raw").unwrap().array.unwrap();
        assert_eq!((array.descr.as_str(), array.shape.as_slice()), (descr, shape), "{name}");
    }
}

#[test]
fn info_reports_versions_sizes_and_the_pipeline() {
    let container = open(bytes("dag_dual_branch.fzm"), &Options::default()).unwrap();
    let info = container.info().to_json();
    let keys: Vec<&str> = info.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys[..5], ["format", "format_version", "file_size", "decoded_size", "checksums"]);
    assert_eq!((&info["format"], &info["format_version"]), (&"fzm".into(), &"3.1".into()));
    assert_eq!((&info["file_size"], &info["decoded_size"]), (&37944.into(), &65536.into()));
    assert_eq!(info["checksums"]["header"]["verified"], true);
    assert_eq!(info["checksums"]["data"]["verified"], Value::Null, "not verified before it is requested");
    assert_eq!(info["pipeline"][0]["name"], "lorenzo_quant");
    assert_eq!(info["pipeline"][2]["inputs"][0]["port"], "outlier_errors");
    assert_eq!(info["buffers"].as_array().unwrap().len(), 4);
    verify(&*container).unwrap();
    assert_eq!(container.info().to_json()["checksums"]["data"]["verified"], true);
}

#[test]
fn opening_and_listing_do_not_wait_for_the_payload_checksum() {
    let container = open(bytes("bad/data_crc.fzm"), &Options::default()).unwrap();
    let listed = files(&*container);
    assert!(listed.len() > 10);
    // No byte of the payload is returned, stored or decoded; files made from the header are.
    for (path, file) in listed {
        let outcome = read(&file);
        let payload = !["json", "config", "pipeline."].iter().any(|own| path.contains(own));
        match outcome {
            Err(e) => assert!(payload && e.what() == "data_checksum", "{path}: {e}"),
            Ok(bytes) => assert!(!payload || bytes.is_empty(), "{path}"),
        }
    }
    let off = Options { verify: fzmfs::checksum::Verify::Off, ..Options::default() };
    let container = open(bytes("bad/data_crc.fzm"), &off).unwrap();
    read_at(&*container, "stored/output.bin").unwrap();
}

#[test]
fn type_and_shape_may_be_overridden_if_they_fit() {
    let shaped = |dtype: Option<&str>, shape: &[u64]| {
        let options = Options { dtype: dtype.map(str::to_owned), shape: Some(shape.to_vec()), ..Options::default() };
        let container = open(bytes("rle_u32.fzm"), &options)?;
        Ok::<_, fzmfs::error::Error>(file(&*container, "data.raw").unwrap().array.unwrap())
    };
    assert_eq!(
        (shaped(None, &[1237]).unwrap().descr.as_str(), shaped(None, &[2, 600]).unwrap().shape),
        ("'<u4'", vec![2, 600])
    );
    assert_eq!(shaped(Some("f2"), &[2, 1237]).unwrap().descr, "'<f2'");
    for (dtype, shape) in [(None, &[1238][..]), (Some("nothing"), &[1]), (None, &[u64::MAX, u64::MAX])] {
        let e = shaped(dtype, shape).unwrap_err();
        assert!(matches!(e.kind(), Kind::Usage(_)), "{e}");
    }
}

#[test]
fn stage_errors_point_to_the_configuration_or_the_segment() {
    for (name, what, at) in [
        ("outlier_index", "stage 0 (lorenzo_quant): outlier_indices", 1616 + 16788),
        ("bp_count_huge", "stage 0 (bitpack): num_elements", 120),
        ("lq_dims_mismatch", "stage 0 (lorenzo_quant): dim_x", 120),
        ("rle_runs_huge", "stage 0 (rle): num_runs", 592),
    ] {
        let outcome = open(bytes(&format!("bad/{name}.fzm")), &Options::default()).and_then(|c| verify(&*c));
        let e = outcome.unwrap_err();
        assert_eq!((e.what(), e.offset().map(|at| at.0)), (what, Some(at)), "{name}: {e}");
    }
}
