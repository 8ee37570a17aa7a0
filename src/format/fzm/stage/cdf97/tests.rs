//! CDF97 and its outlier correction: arrays of the writer, of every rank, in memory and spilled.

use std::sync::Arc;

use fzm_writer::{Dtype, field};

use crate::account::Account;
use crate::error::Result;
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::testing::{
    Memory, Random, context, inverse, inverse_error, made, made_of, parse_error, round_trip, whole,
};
use crate::format::fzm::stream::ByteStream;

fn config(ty: u8, ndim: u8, dim: [u32; 3]) -> Vec<u8> {
    [&[ty, ndim, 0, 0][..], &dim.map(u32::to_le_bytes).concat()].concat()
}

#[test]
fn short_sides_are_not_transformed() {
    let bytes = Random(2).bytes(4 * 8 * 30);
    assert!(inverse(39, &config(8, 2, [30, 8, 9]), &[&bytes]).unwrap() == bytes);
    assert!(inverse(39, &config(8, 0, [240, 8, 9]), &[&bytes]).unwrap() != bytes);
    assert!(inverse(39, &config(9, 3, [7, 7, 7]), &[&[]]).unwrap().is_empty());
}

#[test]
fn arrays_of_every_rank_decode_as_specified() {
    for (shape, dtype) in [
        (&[1000][..], Dtype::F64),
        (&[9], Dtype::F32),
        (&[12_288], Dtype::F32),
        (&[10, 9], Dtype::F32),
        (&[61, 530], Dtype::F32),
        (&[700, 33], Dtype::F64),
        // Dyadic, with equal levels and with different ones.
        (&[17, 20, 33], Dtype::F32),
        (&[129, 130, 300], Dtype::F32),
        // Packet.
        (&[9, 40, 40], Dtype::F64),
        (&[40, 9, 10], Dtype::F32),
        (&[100, 1, 7], Dtype::F32),
        (&[5, 30, 20], Dtype::F32),
    ] {
        round_trip("cdf97", dtype, shape, &field::smooth(dtype, shape, 0.1, 4));
    }
}

#[test]
fn an_array_larger_than_memory_decodes_in_a_file() {
    let bytes = field::smooth(Dtype::F32, &[300, 400], 0.5, 3);
    let decode = |memory, spill| {
        let outputs: Vec<Arc<dyn ByteStream>> = vec![Arc::new(Memory(bytes.clone()))];
        let cx = Context { account: Account::new(memory, spill), ..context() };
        let config = config(8, 2, [400, 300, 1]);
        let stream = made(39, &config, 1).unwrap().invert(outputs, &cx).unwrap().remove(0);
        (whole(&*stream), cx.account.peaks())
    };
    let (in_memory, peaks) = decode(480_000, 0);
    assert_eq!((peaks.memory, peaks.disk), (480_000, 0));
    let (in_file, peaks) = decode(479_999, 1 << 20);
    assert_eq!((peaks.memory, peaks.disk), (0, 480_000));
    assert!(in_memory.unwrap() == in_file.unwrap());
    let e = decode(479_999, 0).0.unwrap_err().to_string();
    assert_eq!(e, "needs 480000 bytes; cache= leaves 479999 and spill= leaves 0: raise either (array)");
}

#[test]
fn dimensions_that_do_not_fit_are_refused() {
    let e = inverse_error(39, &config(8, 2, [31, 20, 1]), &[&[0; 2400]]);
    assert_eq!(e, "31 x 20 x 1 elements are 2480 bytes, the stream has 2400 (dim_x, at byte 0x104)");
    let e = parse_error(39, &config(2, 2, [31, 20, 1]));
    assert_eq!(e, "element type uint32 is unknown (type, at byte 0x100)");
    let e = parse_error(39, &config(9, 3, [1, 2, 6145]));
    assert_eq!(e, "lines of more than 6144 elements is unknown (dim_z, at byte 0x10c)");
}

fn corrected(dims: [u32; 2], corrections: &[(u32, f32)], count: u32) -> (Vec<u8>, Vec<u8>) {
    let mut config = dims.map(u32::to_le_bytes).concat();
    config.extend(0.25_f32.to_le_bytes());
    let mut stream = count.to_le_bytes().to_vec();
    stream.extend(corrections.iter().flat_map(|c| c.0.to_le_bytes()));
    stream.extend(corrections.iter().flat_map(|c| c.1.to_le_bytes()));
    (config, stream)
}

#[test]
fn corrections_are_added_to_scaled_codes() {
    let codes: Vec<u8> = [3_i32, -2, 0, 7, 99].into_iter().flat_map(i32::to_le_bytes).collect();
    let (config, stream) = corrected([2, 2], &[(0, 0.125), (3, -4.0)], 2);
    let invert = |config: &[u8], stream: &[u8], codes: &[u8]| -> Result<[Vec<u8>; 2]> {
        let outputs = [stream, codes].map(|b| Arc::new(Memory(b.to_vec())) as Arc<dyn ByteStream>);
        let streams = made_of(41, config, 2, 2)?.invert(outputs.to_vec(), &context())?;
        Ok([whole(&*streams[0])?, whole(&*streams[1])?])
    };
    let [got, passed] = invert(&config, &stream, &codes).unwrap();
    assert_eq!(passed, codes[..16]);
    let got: Vec<f32> = got.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    assert_eq!(got, [1.625, -1.0, 0.0, -0.5]);
    let error = |corrections: &[(u32, f32)], count, codes: &[u8]| {
        let (config, stream) = corrected([2, 2], corrections, count);
        invert(&config, &stream, codes).unwrap_err().to_string()
    };
    let e = error(&[(4, 1.0)], 1, &codes);
    assert_eq!(e, "position 4 is outside the array of 4 elements (correction)");
    let e = error(&[(1, 1.0), (1, 1.0)], 2, &codes);
    assert_eq!(e, "position 1 is not after the one before it (correction)");
    assert_eq!(error(&[(1, 1.0)], 1 << 29, &codes), "needs 4294967300 bytes, 12 left (correction)");
    assert_eq!(error(&[(1, 1.0)], 1, &codes[..15]), "needs 16 bytes, 15 left (codes)");
    let config =
        |dims: [u32; 2], bound: f32| [dims.map(u32::to_le_bytes).concat(), bound.to_le_bytes().to_vec()].concat();
    let parse_error = |config: &[u8]| made_of(41, config, 2, 2).err().unwrap().to_string();
    let e = parse_error(&config([2, 0], 0.5));
    assert_eq!(e, "a field without elements (stage 0 (cdf97_outlier_correct): dim_y, at byte 0x104)");
    let e = parse_error(&config([12_289, 1], 0.5));
    assert!(e.starts_with("lines of more than 12288 elements is unknown to fzmfs"), "{e}");
    let e = parse_error(&config([2, 2], f32::NAN));
    assert_eq!(e, "NaN is not a number (stage 0 (cdf97_outlier_correct): error_bound, at byte 0x108)");
}

#[test]
fn the_pipeline_of_sperr_decodes_as_specified() {
    for shape in [[64, 48], [33, 65], [8, 40], [40, 1]] {
        let bytes = field::smooth(Dtype::F32, &shape, 0.5, 6);
        let text = "cdf97,quantizer:linear=1,code=u32,eb=0.25,cdf97_outlier_correct:from=input0+1.codes,primary=1,eb=0.25,\
                    speck2d:from=2.codes";
        let [ny, nx] = shape;
        round_trip(&format!("{text},shape={ny}x{nx}"), Dtype::F32, &shape, &bytes);
    }
}
