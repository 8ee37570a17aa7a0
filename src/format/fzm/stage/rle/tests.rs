//! Every form, type and generation.

use fzm_writer::{Dtype, field};

use crate::format::fzm::stage::testing::{
    Random, assert_windows, inverse, inverse_error, parse_error, round_trip, stream, unknown_error, whole,
    windows_agree,
};
use crate::format::fzm::stage::types::Element;

fn coded<T: Element>(runs: &[(T, u32)]) -> Vec<u8> {
    let mut out = (runs.len() as u32).to_le_bytes().to_vec();
    for (value, _) in runs {
        let mut own = vec![0; T::SIZE];
        value.put(&mut own);
        out.extend(own);
    }
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(runs.iter().flat_map(|(_, length)| length.to_le_bytes()));
    out
}

#[test]
fn values_repeat_by_their_lengths() {
    let runs = coded::<u16>(&[(7, 2), (9, 0), (0x102, 1)]);
    for config in [&[1, 3, 0, 0, 0][..], &[1], &[]] {
        assert_eq!(inverse(5, config, &[&runs]).unwrap(), [7, 0, 7, 0, 2, 1], "{config:?}");
    }
    assert_eq!(inverse(5, &[0, 3, 0, 0, 0], &[&coded::<u8>(&[(5, 3)])]).unwrap(), [5, 5, 5]);
    assert_eq!(inverse(5, &[6], &[&coded::<u32>(&[(1 << 24, 1)])]).unwrap(), [0, 0, 0, 1]);
    assert!(inverse(5, &[1, 0, 0, 0, 0], &[&[0; 4]]).unwrap().is_empty());
    assert!(inverse(5, &[1], &[&[]]).unwrap().is_empty());
}

#[test]
fn windows_equal_ranges_of_the_whole() {
    let mut random = Random(3);
    for (longest, runs) in [(1, 5000), (3, 3000), (40, 2000), (3000, 900)] {
        let runs: Vec<(u32, u32)> =
            (0..runs).map(|_| (random.next() as u32, random.below(longest + 1) as u32)).collect();
        let want: Vec<u8> = runs.iter().flat_map(|&(v, n)| v.to_le_bytes().repeat(n as usize)).collect();
        let stream = stream(5, &[2], &[&coded(&runs)]).unwrap();
        assert!(whole(&*stream).unwrap() == want);
        assert_windows(&*stream, &want);
    }
}

#[test]
fn a_window_inside_billions_of_elements_or_behind_empty_runs_costs_only_itself() {
    let mut runs = vec![(1_u16, u32::MAX), (2, u32::MAX)];
    runs.extend(std::iter::repeat_n((3, 0), 100_000));
    runs.push((4, 1));
    let stream = stream(5, &[1], &[&coded(&runs)]).unwrap();
    assert_eq!(stream.len(), 2 * (2 * u64::from(u32::MAX) + 1));
    for (at, want) in [(0, 1), (u64::from(u32::MAX) - 1, 1), (u64::from(u32::MAX), 2), (2 * u64::from(u32::MAX), 4)] {
        let mut dst = [0; 2];
        stream.read(2 * at, &mut dst).unwrap();
        assert_eq!(u16::from_le_bytes(dst), want, "{at}");
    }
}

#[test]
fn inconsistent_runs_are_refused() {
    let runs = coded::<u16>(&[(7, 2), (9, 1)]);
    let config = [1, 3, 0, 0, 0];
    assert_eq!(unknown_error(5, &[3]), "element type uint64 (data_type, at byte 0x100)");
    assert_eq!(unknown_error(5, &config9(8, 1, 0)), "element type float32 (data_type, at byte 0x100)");
    assert_eq!(
        inverse_error(5, &[1, 4, 0, 0, 0], &[&runs]),
        "3 elements in the runs, 4 in the configuration (lengths)"
    );
    assert_eq!(inverse_error(5, &config, &[&runs[..15]]), "needs 16 bytes, 15 left (num_runs)");
    assert_eq!(inverse_error(5, &config, &[&[1, 0]]), "needs 4 bytes, 2 left (num_runs)");
    assert_eq!(inverse_error(5, &config, &[&[0xFF; 20]]), "needs 25769803776 bytes, 20 left (num_runs)");
    assert_eq!(inverse_error(5, &config, &[&[]]), "0 elements in the runs, 3 in the configuration (lengths)");
}

/// A stream of chunks of `u16`: the runs before each, then the runs.
fn chunked(offsets: &[u32], runs: &[(u16, u32)]) -> Vec<u8> {
    let mut out = (offsets.len() as u32 - 1).to_le_bytes().to_vec();
    out.extend(offsets.iter().flat_map(|n| n.to_le_bytes()));
    out.extend(runs.iter().flat_map(|(value, _)| value.to_le_bytes()));
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(runs.iter().flat_map(|(_, length)| length.to_le_bytes()));
    out
}

/// A configuration of 9 bytes.
fn config9(ty: u8, n: u32, chunk: u32) -> Vec<u8> {
    [&[ty][..], &n.to_le_bytes(), &chunk.to_le_bytes()].concat()
}

#[test]
fn chunks_have_their_own_runs() {
    let runs = [(1, 2), (2, 2), (2, 4), (3, 1)];
    let stream = chunked(&[0, 2, 3, 4], &runs);
    let want = [1_u16, 1, 2, 2, 2, 2, 2, 2, 3].map(u16::to_le_bytes).concat();
    assert_eq!(inverse(5, &config9(1, 9, 8), &[&stream]).unwrap(), want);
    windows_agree(5, &config9(1, 9, 8), &[&stream]);
    assert!(inverse(5, &config9(1, 0, 8), &[&[]]).unwrap().is_empty());
    assert!(inverse(5, &config9(1, 0, 8), &[&[0; 8]]).unwrap().is_empty());
    assert!(inverse(5, &config9(3, 0, 0), &[&[0; 4]]).unwrap().is_empty());
    // The values of 8 bytes start at a multiple of 8.
    let long = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[7; 8], &[2, 0, 0, 0]].concat();
    assert_eq!(inverse(5, &config9(7, 2, 0), &[&long]).unwrap(), [7; 16]);
}

#[test]
fn every_type_and_chunk_decodes_as_specified() {
    for (text, dtype) in [
        ("rle:config=9", Dtype::I8),
        ("rle:config=9", Dtype::U64),
        ("rle:chunk=64", Dtype::I8),
        ("rle:chunk=512", Dtype::I32),
        ("rle:chunk=1000", Dtype::I64),
        ("rle:chunk=8", Dtype::F64),
        ("rle:chunk=4096", Dtype::U16),
        ("rle:chunk=131072", Dtype::U16),
        ("rle:chunk=131072", Dtype::I64),
    ] {
        round_trip(text, dtype, &[100_001], &field::smooth(dtype, &[100_001], 0.01, 6));
    }
    // A last chunk that is not full.
    round_trip("bitshuffle:w=2,rle:t=i16,chunk=200", Dtype::I16, &[5003], &field::smooth(Dtype::I16, &[5003], 0.01, 6));
}

#[test]
fn inconsistent_chunks_are_refused() {
    let good = [(1, 2), (2, 2), (2, 4), (3, 1)];
    let error = |offsets: &[u32], runs: &[(u16, u32)]| inverse_error(5, &config9(1, 9, 8), &[&chunked(offsets, runs)]);
    assert_eq!(error(&[0, 2, 2, 4], &good), "a chunk without runs ends at run 2 (run_offsets)");
    assert_eq!(error(&[0, 3, 2, 4], &good), "the runs of a chunk do not end at element 4 (lengths)");
    assert_eq!(error(&[1, 2, 3, 4], &good), "4 runs from 1 of 9 elements (run_offsets)");
    assert_eq!(error(&[0, 2, 3, 10], &good), "10 runs from 0 of 9 elements (run_offsets)");
    assert_eq!(error(&[0, 2, 4], &good), "2 chunks, but 9 elements are 3 (num_chunks)");
    let zero = [(1, 2), (2, 2), (9, 0), (2, 4), (3, 1)];
    assert_eq!(error(&[0, 2, 4, 5], &zero), "a run of no elements (lengths)");
    let long = [(1, 2), (2, 6), (2, 1), (3, 1)];
    assert_eq!(error(&[0, 2, 3, 4], &long), "the runs of a chunk do not end at element 4 (lengths)");
    let short = chunked(&[0, 2, 3, 4], &good);
    assert_eq!(inverse_error(5, &config9(1, 9, 8), &[&short[..43]]), "needs 44 bytes, 43 left (num_runs)");
    assert_eq!(inverse_error(5, &config9(1, 9, 8), &[&short[..19]]), "needs 20 bytes, 19 left (num_chunks)");
    assert!(parse_error(5, &config9(2, 9, 6)).starts_with("chunks of 6 bytes are not whole elements of uint32"));
    assert!(parse_error(5, &config9(2, 9, 2)).starts_with("chunks of 2 bytes are not whole elements of uint32"));
    let zero = [&[2, 0, 0, 0][..], &[1, 2, 0, 0], &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(inverse_error(5, &config9(0, 9, 0), &[&zero]), "a run of no elements (lengths)");
    assert_eq!(inverse(5, &[0, 9, 0, 0, 0], &[&zero]).unwrap(), [1; 9]);
}

#[test]
fn large_chunks_are_checked_while_they_are_scanned() {
    let n = 40_000_u32;
    let chunk = 100_000;
    let config = config9(1, 2 * n + 20_000, chunk);
    let runs = |first: u32| -> Vec<(u16, u32)> {
        (0..n).map(|i| (i as u16, if i == 0 { first } else { 2 })).chain([(7, 20_000)]).collect()
    };
    // 50000 elements are the first 25000 runs.
    let good = chunked(&[0, 25_000, n + 1], &runs(2));
    windows_agree(5, &config, &[&good]);
    for (offsets, runs) in [
        ([0, 24_999, n + 1], runs(2)),
        ([0, 30_000, n + 1], runs(2)),
        ([0, 25_000, n + 1], runs(1)),
        ([0, 25_000, n + 1], runs(3)),
        ([0, n + 1, n + 1], runs(2)),
    ] {
        let e = inverse_error(5, &config, &[&chunked(&offsets, &runs)]);
        assert!(e.starts_with("the runs of a chunk do not end") || e.starts_with("a chunk without runs"), "{e}");
    }
}
