//! `GInterp`: arrays of the writer, broken streams, and windows.

use fzm_writer::{Dtype, field};

use super::spline::Case::{Back, Before, Cubic, Front, Linear};
use super::spline::{Case, Spline, between};
use crate::format::fzm::stage::testing::{coded_array, inverse, inverse_error, parse_error, round_trip};

#[test]
fn every_type_pair_shape_and_flag_decodes_as_the_writer_expects() {
    for (text, dtype, shape) in [
        ("ginterp", Dtype::F32, &[33, 50][..]),
        ("ginterp:code=u8,radius=20,cap=1", Dtype::F32, &[19, 17, 33]),
        ("ginterp:code=u32,eb=1e-4,md=1111", Dtype::F64, &[20, 16, 21]),
        ("ginterp:md=1111,natural=1010,eb=0.5", Dtype::F32, &[70, 35]),
        ("ginterp:md=0000,natural=0101,reverse=0110", Dtype::F32, &[18, 40, 35]),
        ("ginterp:md=0101,natural=1111,reverse=1010,code=u8", Dtype::F64, &[40, 70]),
        ("ginterp:narrow=1,alpha=1.1,beta=1.2", Dtype::F32, &[9, 8, 700]),
        ("ginterp:alpha=3,beta=0.5,radius=2", Dtype::F32, &[2, 1]),
        ("ginterp", Dtype::F64, &[2, 2, 2]),
        ("ginterp:code=u8,zigzag:t=i8,bitshuffle:w=1,ans", Dtype::F32, &[64, 64]),
        (
            "ginterp,ans:from=0,port=anchor,ans:from=0,port=outlier_vals,ans:from=0,port=outlier_idxs",
            Dtype::F32,
            &[30, 700],
        ),
    ] {
        let mut data = field::smooth(dtype, shape, 0.1, 11);
        // Spikes become outliers, also on the faces of tiles.
        for i in (0..data.len() / dtype.size()).step_by(97) {
            data[(i + 1) * dtype.size() - 1] ^= 1;
        }
        round_trip(text, dtype, shape, &data);
    }
}

#[test]
fn a_layer_of_tiles_larger_than_a_band_is_read_as_bricks() {
    let shape = [3, 40, 1000];
    round_trip("ginterp:eb=1", Dtype::F32, &shape, &field::smooth(Dtype::F32, &shape, 0.1, 2));
}

#[test]
fn the_case_of_an_element_follows_from_its_neighbors() {
    let cases =
        |n: usize, unit: usize| -> Vec<Case> { (unit..n).step_by(2 * unit).map(|c| Case::of(c, n, unit)).collect() };
    assert_eq!(cases(17, 1), [Front, Cubic, Cubic, Cubic, Cubic, Cubic, Cubic, Back]);
    assert_eq!((cases(17, 8), cases(17, 4), cases(16, 4)), (vec![Linear], vec![Front, Back], vec![Linear, Before]));
    assert_eq!(
        (cases(4, 1), cases(5, 1), cases(6, 1)),
        (vec![Linear, Before], vec![Front, Back], vec![Front, Back, Before])
    );
}

#[test]
fn splines_go_through_polynomials() {
    let near = |by: isize| by as f64 * by as f64 + 5.0 * by as f64 + 2.0;
    for spline in [Spline::Natural, Spline::Plain, Spline::MultiPlain, Spline::MultiNatural] {
        for case in [Case::Back, Case::Front] {
            assert!((between(case, spline, near) - 2.0_f64).abs() < 1e-12);
        }
        let line = |by: isize| 3.0 * by as f64 + 7.0;
        assert!((between(Case::Cubic, spline, line) - 7.0_f64).abs() < 1e-12);
        assert!((between(Case::Linear, spline, line) - 7.0_f64).abs() < 1e-12);
    }
}

#[test]
fn contradictions_are_refused() {
    let shape = [20, 33];
    let (config, ports) =
        coded_array("ginterp:cap=1,radius=2", Dtype::F32, &shape, &field::smooth(Dtype::F32, &shape, 5.0, 1));
    let ports: Vec<&[u8]> = ports.iter().map(Vec::as_slice).collect();
    assert_eq!(inverse(22, &config, &ports).unwrap().len(), 4 * 20 * 33);
    let with = |at: usize, value: u32| {
        let mut config = config.clone();
        config[at..at + 4].copy_from_slice(&value.to_le_bytes());
        inverse_error(22, &config, &ports)
    };
    assert!(with(12, 659).starts_with("659 codes for 1x20x33 elements (num_codes"), "{}", with(12, 659));
    assert!(with(8, 1 << 31).starts_with("2147483648 is not below 2^31"), "{}", with(8, 1 << 31));
    assert!(with(28, 1).starts_with("1x1x33 is not an array of 2 dimensions"), "{}", with(28, 1));
    assert!(with(32, 0).starts_with("0x20x33 is not an array of 2 dimensions"), "{}", with(32, 0));
    assert!(with(36, 4).starts_with("4 anchors for 33 elements"), "{}", with(36, 4));
    let e = with(16, 1 << 20);
    assert!(e.starts_with("needs 4194304 bytes, ") && e.ends_with("left (outlier_vals)"), "{e}");
    let cut = |port: usize| {
        let mut ports = ports.clone();
        ports[port] = &ports[port][..ports[port].len() - 1];
        inverse_error(22, &config, &ports)
    };
    assert_eq!(cut(0), "needs 1320 bytes, 1319 left (codes)");
    assert_eq!(cut(1), "needs 24 bytes, 23 left (anchor)");
    assert!(cut(3).ends_with("left (outlier_idxs)"), "{}", cut(3));
    let mut indices = ports[3].to_vec();
    indices[..4].copy_from_slice(&660_u32.to_le_bytes());
    let e = inverse_error(22, &config, &[ports[0], ports[1], ports[2], &indices]);
    assert_eq!(e, "position 660 is outside the array of 660 elements (outlier_idxs)");
    let mut other = config.clone();
    other[20] = 1;
    assert!(parse_error(22, &other).starts_with("element type uint16 is unknown ("), "{}", parse_error(22, &other));
}
