//! The kernels against copies of the GPU.
//!
//! Device: all kernels of one batch of the whole array, from the stored bytes in the GPU's memory to the array there,
//! by the GPU's clock; the copy moves as many bytes within that memory. End to end: from the file to memory of the
//! host, batch by batch on all cores, as a mount reads; the download is the GPU's own copy of as many bytes to pinned
//! memory, and the CPU decodes the same pieces on all cores. Medians of several times.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fzmfs::format::BlobRef;
use fzmfs::gpu::cuda::Cuda;
use fzmfs::gpu::{Arg, Device, DeviceResult, Gpu, Kernel, Queue};

use crate::blobs::{decode_row, row_len};
use crate::launches::{Launcher, Launches};
use crate::{CHAINS, Chain, all_on_device, blob};

/// Repetitions of each measurement, unless `FZMFS_BENCH_TIMES` says otherwise; the median counts.
const TIMES: usize = 21;
/// What a read to the host should reach of the download.
const LEAST: f64 = 0.8;

type Kernels = Vec<(&'static str, Duration)>;

/// A device that takes the time of every kernel.
struct Timed {
    device: Arc<dyn Device>,
    kernels: Arc<Mutex<Kernels>>,
}

impl Device for Timed {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn memory_limit(&self) -> u64 {
        self.device.memory_limit()
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        let marks = Marks { names: Vec::new(), kernels: self.kernels.clone() };
        Ok(Box::new(Launches::new(self.device.queue()?, marks)))
    }
}

/// Marks every launch before and behind it, and keeps the times between.
struct Marks {
    names: Vec<&'static str>,
    kernels: Arc<Mutex<Kernels>>,
}

impl Launcher for Marks {
    #[expect(unsafe_code, reason = "as that of the queue")]
    fn launch(&mut self, queue: &mut dyn Queue, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        queue.mark()?;
        // SAFETY: the caller of this queue guarantees it.
        unsafe { queue.launch(kernel, grid, block, args) }?;
        self.names.push(kernel.name);
        queue.mark()
    }

    fn downloaded(&mut self, queue: &mut dyn Queue) -> DeviceResult {
        let (times, names) = (queue.times()?, std::mem::take(&mut self.names));
        let each = names.into_iter().zip(times.chunks(2).map(|pair| pair[1].saturating_sub(pair[0])));
        self.kernels.lock().unwrap().extend(each);
        Ok(())
    }
}

/// Decodes all pieces on `buffers.len()` threads, in batches as the blob says or one by one; returns the time.
fn decode(blob: &BlobRef, together: bool, buffers: &mut [Vec<u8>]) -> Duration {
    let layout = blob.layout().unwrap();
    let (next, start) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for buffer in buffers {
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

/// The median of several times; the first one is not counted.
fn median(mut work: impl FnMut() -> Duration) -> Duration {
    work();
    let mut all: Vec<Duration> = (0..times()).map(|_| work()).collect();
    all.sort();
    all[all.len() / 2]
}

fn times() -> usize {
    let asked = std::env::var("FZMFS_BENCH_TIMES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(TIMES).max(1)
}

fn total(kernels: &Kernels) -> Duration {
    kernels.iter().map(|(_, time)| *time).sum()
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

/// The measurements of a chain.
struct Row {
    stored: u64,
    bytes: usize,
    kernels: Kernels,
    copy: Duration,
    end_to_end: Duration,
    download: Duration,
    cpu: Duration,
}

/// `None` if the GPU does not decode the chain.
fn measure(cuda: &Arc<Cuda>, chain: &Chain, bytes: usize) -> Option<Row> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let file = chain.make(bytes);
    let kernels = Arc::new(Mutex::new(Vec::new()));
    let timed: Arc<dyn Device> = Arc::new(Timed { device: cuda.clone(), kernels: kernels.clone() });
    let timed = Gpu::required(move || Ok(timed.clone()));
    let device: Arc<dyn Device> = cuda.clone();
    let gpu = Gpu::required(move || Ok(device.clone()));
    let (timed_blob, gpu_blob) = (blob(file.path(), timed.clone()), blob(file.path(), gpu));
    let cpu_blob = blob(file.path(), Gpu::none());
    let layout = gpu_blob.layout().unwrap();
    let bytes = layout.len() as usize;
    let mut buffers = vec![Vec::new(); threads];

    let mut runs = Vec::new();
    median(|| {
        kernels.lock().unwrap().clear();
        pieces(&timed_blob, 0..layout.count(), &mut buffers[0]);
        runs.push(std::mem::take(&mut *kernels.lock().unwrap()));
        total(runs.last().unwrap())
    });
    if !all_on_device(&timed) {
        return None;
    }
    runs.remove(0);
    runs.sort_by_key(total);
    let kernels = runs.swap_remove(times() / 2);
    let end_to_end = median(|| decode(&gpu_blob, true, &mut buffers));
    let cpu = median(|| decode(&cpu_blob, false, &mut buffers));
    let (copy, download) = (cuda.copy_within(bytes).unwrap(), cuda.copy_out(bytes).unwrap());
    let stored = file.as_file().metadata().unwrap().len();
    Some(Row { stored, bytes, kernels, copy, end_to_end, download, cpu })
}

/// `met` or `MISSED`.
fn word(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Measures the chains whose names contain `filter`.
pub(crate) fn run(cuda: &Arc<Cuda>, mib: usize, filter: &str) -> ExitCode {
    println!("upload of pinned memory: {:.1} GB/s\n", rate(mib << 20, cuda.copy_in(mib << 20).unwrap()));
    println!("medians of {}\n", times());
    println!(
        "| chain | array | stored bytes | device | copy | device / copy | predicted | end to end | download | \
         end to end / download | predicted | CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut measured = Vec::new();
    for chain in CHAINS.iter().filter(|chain| chain.name().contains(filter)) {
        let Some(row) = measure(cuda, chain, (mib << 20) / chain.share) else {
            println!("| {} | not on the GPU | | | | | | | | | | |", chain.name());
            continue;
        };
        let device = total(&row.kernels);
        let ratio = device.as_secs_f64() / row.copy.as_secs_f64();
        let share = row.download.as_secs_f64() / row.end_to_end.as_secs_f64();
        println!(
            "| {} | {} MiB | {} | {:.3} ms | {:.3} ms | {ratio:.2} | {} | {:.1} GB/s | {:.1} GB/s | {share:.2} | {} | \
             {:.1} GB/s |",
            chain.name(),
            row.bytes >> 20,
            row.stored,
            device.as_secs_f64() * 1e3,
            row.copy.as_secs_f64() * 1e3,
            chain.most.map_or("-".to_owned(), |most| format!("at most {most}: {}", word(ratio <= most))),
            rate(row.bytes, row.end_to_end),
            rate(row.bytes, row.download),
            format_args!("at least {LEAST}: {}", word(share >= LEAST)),
            rate(row.bytes, row.cpu),
        );
        measured.push((chain, row));
    }
    println!("\nKernels, of all that the device does:\n");
    for (chain, row) in &measured {
        for (name, time) in &row.kernels {
            let ms = time.as_secs_f64() * 1e3;
            println!("    {}: {name} {ms:.3} ms, {:.0} GB/s out", chain.name(), rate(row.bytes, *time));
        }
    }
    if measured.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
