//! Decoding FZM on a GPU, compared with the copy speed of the GPU: `scripts/gpu`, or
//! `cargo bench --bench gpu [-- MIB]`.
//!
//! Device: all kernels of one batch of the whole array, from the stored bytes in the GPU's memory to the array there;
//! the copy moves as many bytes within that memory. End to end: from the file to memory of the host, batch by batch
//! on all cores, as a mount reads; the download is the GPU's own copy of as many bytes, and the CPU decodes the same
//! pieces on all cores. The best of several times.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fzm_writer::{Dtype, Form, Pipeline, Source, field};
use fzmfs::checksum::Verify;
use fzmfs::format::{self, BlobRef, Input, Options};
use fzmfs::gpu::cuda::Cuda;
use fzmfs::gpu::{Device, DeviceResult, Gpu, Queue};

#[path = "../support/blobs.rs"]
mod blobs;
#[path = "../support/launches.rs"]
mod launches;

use blobs::{decode_row, decoded_blobs, row_len};
use launches::Launches;

/// Repetitions of each measurement.
const TIMES: usize = 5;
/// Default size of an array.
const MIB: usize = 1024;

/// Chains, and what their arrays are, with the share of the bytes asked for.
const CHAINS: &[(&str, Dtype, usize, usize)] = &[
    ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, 1, 1),
    ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, 2, 4),
    ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, 3, 4),
    ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F64, 1, 4),
    ("lorenzo_quant:eb=1e-3", Dtype::F32, 1, 4),
    ("bitshuffle:w=4,rze", Dtype::U32, 1, 4),
    ("quantizer:eb=1e-3,bitshuffle:w=2,rze", Dtype::F32, 1, 4),
    ("lorenzo_quant:eb=1e-2,radius=128,zigzag=1,bitpack:bits=8", Dtype::F32, 1, 4),
    ("lorenzo_quant:eb=1e-2,rle", Dtype::F32, 1, 4),
    ("lorenzo_quant:eb=1e-2,radius=512,zigzag=1,huffman", Dtype::F32, 1, 4),
];

/// A device that waits for every kernel and adds up the times.
struct Timed {
    device: Arc<dyn Device>,
    kernels: Arc<Mutex<Vec<(&'static str, Duration)>>>,
}

impl Device for Timed {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn memory_limit(&self) -> u64 {
        self.device.memory_limit()
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        let kernels = self.kernels.clone();
        Ok(Box::new(Launches::new(self.device.queue()?, move |queue, kernel, grid, block, args| {
            queue.finish()?;
            let start = Instant::now();
            queue.launch(kernel, grid, block, args)?;
            queue.finish()?;
            kernels.lock().unwrap().push((kernel.name, start.elapsed()));
            Ok(())
        })))
    }
}

/// A container in a temporary file.
fn make(stages: &str, dtype: Dtype, rank: usize, bytes: usize) -> tempfile::NamedTempFile {
    let elements = bytes / dtype.size();
    let side = |rank: f64| (elements as f64).powf(1.0 / rank) as u32;
    let shape = match rank {
        1 => vec![elements as u32],
        2 => vec![side(2.0), side(2.0)],
        _ => vec![side(3.0); 3],
    };
    let source = Source { dtype, shape: shape.clone(), bytes: field::smooth(dtype, &shape, 0.005, 1) };
    let pipeline = Pipeline::parse(stages, std::slice::from_ref(&source)).unwrap();
    let run = pipeline.run(vec![source], false).unwrap();
    let form = Form { version: 0x0301, data_crc: true, header_crc: true, scatter: None };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut out = std::io::BufWriter::new(file.as_file_mut());
    run.file(&form).write_to(&mut out).unwrap();
    drop(out);
    file
}

/// The blob that holds the array.
fn blob(path: &std::path::Path, gpu: Arc<Gpu>) -> BlobRef {
    let options = Options { gpu, verify: Verify::Off, ..Options::default() };
    let container = format::open(&Input::open(path).unwrap(), None, &options).unwrap();
    decoded_blobs(&*container).swap_remove(0)
}

/// Decodes all pieces on `threads` threads, in batches as the blob says or one by one; returns the time.
fn decode(blob: &BlobRef, threads: usize, together: bool, buffers: &mut [Vec<u8>]) -> Duration {
    let layout = blob.layout().unwrap();
    let (next, start) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for buffer in buffers.iter_mut().take(threads) {
            let (next, layout) = (&next, &layout);
            scope.spawn(move || {
                let row = if together { blob.batch() } else { 1 };
                loop {
                    let first = next.fetch_add(row, Ordering::Relaxed);
                    let last = (first + row).min(layout.count());
                    if first >= last {
                        return;
                    }
                    pieces(blob, first..last, buffer);
                }
            });
        }
    });
    start.elapsed()
}

/// Decodes consecutive pieces in one batch.
fn pieces(blob: &BlobRef, row: Range<u64>, buffer: &mut Vec<u8>) {
    let all = row_len(blob, row.clone()).unwrap();
    if buffer.len() < all {
        buffer.resize(all, 0);
    }
    // A single piece goes to the CPU.
    let bytes = &mut buffer[..all];
    if row.end - row.start == 1 { blob.decode(row.start, bytes) } else { decode_row(blob, row, bytes) }.unwrap();
}

fn best(mut work: impl FnMut() -> Duration) -> Duration {
    (0..TIMES).map(|_| work()).min().unwrap_or_default()
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

fn run(cuda: &Arc<Cuda>, mib: usize) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{}, {}, {threads} threads\n", cuda.name(), cuda.about());
    println!("| chain | array | device | copy | device / copy | end to end | download | end to end / download | CPU |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut kernels_of = Vec::new();
    for &(stages, dtype, rank, share) in CHAINS {
        let file = make(stages, dtype, rank, (mib << 20) / share);
        let kernels = Arc::new(Mutex::new(Vec::new()));
        let timed: Arc<dyn Device> = Arc::new(Timed { device: cuda.clone(), kernels: kernels.clone() });
        let timed = Gpu::required(move || Ok(timed.clone()));
        let device: Arc<dyn Device> = cuda.clone();
        let gpu = Gpu::required(move || Ok(device.clone()));
        let (timed_blob, gpu_blob) = (blob(file.path(), timed.clone()), blob(file.path(), gpu.clone()));
        let cpu_blob = blob(file.path(), Gpu::none());
        let layout = gpu_blob.layout().unwrap();
        let bytes = layout.len() as usize;
        let mut buffers = vec![Vec::new(); threads];

        let mut fastest: Vec<(&str, Duration)> = Vec::new();
        let device_time = best(|| {
            kernels.lock().unwrap().clear();
            pieces(&timed_blob, 0..layout.count(), &mut buffers[0]);
            let times = std::mem::take(&mut *kernels.lock().unwrap());
            let sum = |times: &[(&str, Duration)]| times.iter().map(|(_, time)| *time).sum::<Duration>();
            if fastest.is_empty() || sum(&times) < sum(&fastest) {
                fastest.clone_from(&times);
            }
            sum(&times)
        });
        if !timed.decoder().contains("; CPU: 0 bytes") {
            println!(
                "| {} {dtype:?} rank {rank} | {} MiB | not on the GPU | | | | | | |",
                stages.replace(',', ", "),
                bytes >> 20
            );
            continue;
        }
        let end_to_end = best(|| decode(&gpu_blob, threads, true, &mut buffers));
        let cpu = best(|| decode(&cpu_blob, threads, false, &mut buffers));
        let (copy, out) = (cuda.copy_within(bytes).unwrap(), cuda.copy_out(bytes).unwrap());
        println!(
            "| {} {dtype:?} rank {rank} | {} MiB | {:.3} ms | {:.3} ms | {:.2} | {:.1} GB/s | {:.1} GB/s | {:.2} | {:.1} GB/s |",
            stages.replace(',', ", "),
            bytes >> 20,
            device_time.as_secs_f64() * 1e3,
            copy.as_secs_f64() * 1e3,
            device_time.as_secs_f64() / copy.as_secs_f64(),
            rate(bytes, end_to_end),
            rate(bytes, out),
            out.as_secs_f64() / end_to_end.as_secs_f64(),
            rate(bytes, cpu),
        );
        kernels_of.push((stages, dtype, rank, fastest));
    }
    println!("\nKernels, of all that the device does:\n");
    for (stages, dtype, rank, kernels) in kernels_of {
        for (name, time) in kernels {
            println!("    {stages} {dtype:?} rank {rank}: {name} {:.3} ms", time.as_secs_f64() * 1e3);
        }
    }
}

fn main() -> ExitCode {
    // cargo bench gives --bench.
    let mib = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(MIB);
    match Cuda::open(0, None) {
        Ok(cuda) => {
            run(&Arc::new(cuda), mib);
            ExitCode::SUCCESS
        }
        Err(why) if std::env::var_os("FZMFS_REQUIRE_GPU").is_some() => {
            eprintln!("no GPU: {why}");
            ExitCode::FAILURE
        }
        Err(why) => {
            println!("SKIPPED: the GPU: {why}");
            ExitCode::SUCCESS
        }
    }
}
