//! The bytes of every chain, decoded on the GPU and on the CPU: the first thing to know of a GPU.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use fzmfs::gpu::cuda::Cuda;
use fzmfs::gpu::{Device, Gpu};

use crate::blobs::{decode_row, row_len};
use crate::{CHAINS, Chain, all_on_device, blob};

/// Smallest array: several pieces, since single ones go to the CPU.
const LEAST: usize = 4 << 20;

/// Decodes the first chain with `mib` MiB and the others with an eighth of it.
pub(crate) fn run(cuda: &Arc<Cuda>, mib: usize) -> ExitCode {
    let mut wrong = 0;
    for (n, chain) in CHAINS.iter().enumerate() {
        let bytes = (mib << 20) / if n == 0 { 1 } else { 8 };
        if let Err(why) = same(cuda, chain, bytes.max(LEAST)) {
            println!("WRONG {}: {why}", chain.name());
            wrong += 1;
        }
    }
    println!("{} of {} chains have the bytes of the CPU", CHAINS.len() - wrong, CHAINS.len());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn same(cuda: &Arc<Cuda>, chain: &Chain, bytes: usize) -> Result<(), String> {
    let file = chain.make(bytes);
    let device: Arc<dyn Device> = cuda.clone();
    let gpu = Gpu::required(move || Ok(device.clone()));
    let decoded = |gpu: &Arc<Gpu>| -> Result<(Vec<u8>, f64), String> {
        let blob = blob(file.path(), gpu.clone());
        let row = 0..blob.layout().map_err(|e| e.to_string())?.count();
        let mut bytes = vec![0x5A; row_len(&blob, row.clone()).map_err(|e| e.to_string())?];
        let start = Instant::now();
        decode_row(&blob, row, &mut bytes).map_err(|e| e.to_string())?;
        Ok((bytes, start.elapsed().as_secs_f64() * 1e3))
    };
    let (got, first) = decoded(&gpu)?;
    let (again, second) = decoded(&gpu)?;
    let (want, cpu) = decoded(&Gpu::none())?;
    if !all_on_device(&gpu) {
        return Err(format!("not decoded by the GPU: {}", gpu.decoder()));
    }
    for got in [&got, &again] {
        if let Some(at) = got.iter().zip(&want).position(|(a, b)| a != b) {
            let count = got.iter().zip(&want).filter(|(a, b)| a != b).count();
            return Err(format!("{count} of {} bytes differ, first byte {at}", want.len()));
        }
    }
    println!(
        "right {}: {} MiB, {first:.0} ms with the kernels loaded, {second:.0} ms again, CPU {cpu:.0} ms",
        chain.name(),
        want.len() >> 20
    );
    Ok(())
}
