//! `ROIBinSplit`: fields of the writer, boxes that overlap, and windows.

use fzm_writer::{Dtype, field};

use crate::format::fzm::stage::testing::{inverse, inverse_error, parse_error, round_trip, windows_agree};

fn config(dims: [u32; 3], peaks: u32, half: u16, bin: u16, ty: u8) -> Vec<u8> {
    let mut config = dims.map(u32::to_le_bytes).concat();
    config.extend(peaks.to_le_bytes());
    config.extend([half.to_le_bytes(), bin.to_le_bytes()].concat());
    config.extend([ty, 0]);
    config
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn peak(z: u32, x: u16, y: u16) -> Vec<u8> {
    [&z.to_le_bytes()[..], &x.to_le_bytes(), &y.to_le_bytes()].concat()
}

#[test]
fn bins_are_spread_and_boxes_copied_over_them_in_order() {
    let background = floats(&[1.0, 2.0, 3.0, 4.0]);
    let config = |peaks| config([3, 3, 1], peaks, 1, 2, 8);
    let got = inverse(35, &config(0), &[&[], &background, &[]]).unwrap();
    assert_eq!(got, floats(&[1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0]));
    // The first box is cut at the corner, where its last values of a row or column remain.
    let boxes: Vec<f32> = (10..28_u8).map(f32::from).collect();
    let peaks = [peak(9, 2, 2), peak(0, 0, 1)].concat();
    let got = inverse(35, &config(2), &[&floats(&boxes), &background, &peaks]).unwrap();
    assert_eq!(got, floats(&[20.0, 21.0, 2.0, 23.0, 24.0, 12.0, 26.0, 27.0, 18.0]));
    windows_agree(35, &config(2), &[&floats(&boxes), &background, &peaks]);
}

#[test]
fn fields_of_every_shape_decode_as_specified() {
    for (text, dtype, shape) in [
        ("roibin_split:peaks=0", Dtype::F32, &[40, 50][..]),
        ("roibin_split:peaks=30,half=2", Dtype::F32, &[40, 50]),
        ("roibin_split:peaks=300,half=3,bin=3,seed=5", Dtype::F64, &[5, 41, 100]),
        ("roibin_split:peaks=5000,half=0,bin=7", Dtype::F32, &[3, 200, 300]),
        ("roibin_split:peaks=9,half=20,bin=50", Dtype::F64, &[30, 31]),
        ("roibin_split:peaks=20,bin=2", Dtype::F32, &[900, 1, 3]),
        ("roibin_split:peaks=40,bin=2,half=3", Dtype::F32, &[70_000]),
        ("roibin_split:peaks=25,bin=2,quantizer:eb=0.1,code=u32,quantizer:from=0.bg,eb=1", Dtype::F32, &[80, 90]),
    ] {
        round_trip(text, dtype, shape, &field::smooth(dtype, shape, 0.5, 8));
    }
}

#[test]
fn configurations_and_ports_that_do_not_fit_are_refused() {
    assert_eq!(parse_error(35, &config([1, 1, 1], 0, 0, 0, 8)), "must not be 0 (bin_size, at byte 0x112)");
    assert_eq!(parse_error(35, &config([1, 0, 1], 0, 0, 1, 8)), "must not be 0 (dim_y, at byte 0x104)");
    let e = parse_error(35, &config([1, 1, 1], 0, 0, 1, 6));
    assert_eq!(e, "element type int32 is unknown (type, at byte 0x114)");
    let error =
        |config: &[u8], roi, bg, peaks| inverse_error(35, config, &[&vec![0; roi], &vec![0; bg], &vec![0; peaks]]);
    let own = config([3, 3, 1], 1, 1, 2, 8);
    assert_eq!(error(&own, 35, 16, 8), "needs 36 bytes, 35 left (roi)");
    assert_eq!(error(&own, 36, 15, 8), "needs 16 bytes, 15 left (bg)");
    assert_eq!(error(&own, 36, 16, 7), "needs 8 bytes, 7 left (peaks)");
    let e = error(&config([3, 3, 1], u32::MAX, u16::MAX, 2, 8), 36, 16, 8);
    assert_eq!(e, "more than 2^60 elements (dim_x, at byte 0x100)");
}
