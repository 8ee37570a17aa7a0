//! Decoding FZM on a GPU, measured and checked: `scripts/gpu`.
//!
//!     gpu report              all of it, step by step, each with a limit and a verdict: report.rs
//!     gpu time [MIB] [CHAIN]  the kernels against copies of the GPU: timing.rs; also `cargo bench --bench gpu`
//!     gpu doctor              what `fzmfs doctor` says; fails without a GPU
//!     gpu smoke [MIB]         the bytes of every chain, GPU against CPU: smoke.rs
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::process::ExitCode;
use std::sync::Arc;

use fzm_writer::{Dtype, Form, Pipeline, Source, field};
use fzmfs::checksum::Verify;
use fzmfs::format::{self, BlobRef, Input, Options};
use fzmfs::gpu::cuda::Cuda;
use fzmfs::gpu::{Device, Gpu};

#[path = "../../support/blobs.rs"]
mod blobs;
mod children;
#[path = "../../support/launches.rs"]
mod launches;
mod report;
mod smoke;
mod timing;

/// Default size of an array that is measured, and of one that is compared.
const MEASURED: usize = 1024;
const COMPARED: usize = 64;

/// A chain of stages over an array.
struct Chain {
    stages: &'static str,
    dtype: Dtype,
    rank: usize,
    /// The share of the bytes asked for that the array has.
    share: usize,
    /// What the device should take at most, as a multiple of a copy of the output.
    most: Option<f64>,
}

const fn chain(stages: &'static str, dtype: Dtype, rank: usize, share: usize, most: Option<f64>) -> Chain {
    Chain { stages, dtype, rank, share, most }
}

const USUAL: &str = "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze";

const CHAINS: &[Chain] = &[
    chain(USUAL, Dtype::F32, 1, 1, Some(1.0)),
    chain(USUAL, Dtype::F32, 2, 4, Some(2.0)),
    chain(USUAL, Dtype::F32, 3, 4, Some(2.0)),
    chain(USUAL, Dtype::F64, 1, 4, Some(1.0)),
    chain("lorenzo_quant:eb=1e-3", Dtype::F32, 1, 4, Some(1.0)),
    chain("lorenzo_quant:code=u8,radius=100,eb=1e-2", Dtype::F32, 1, 4, Some(1.0)),
    chain("bitshuffle:w=4,rze", Dtype::U32, 1, 4, None),
    chain("bitshuffle:w=4", Dtype::U32, 1, 4, None),
    // A batch of more has more outliers than one upload takes.
    chain("quantizer:eb=1e-3,bitshuffle:w=2,rze", Dtype::F32, 1, 32, None),
    chain("difference:chunk=16384,bitshuffle:w=4,rze", Dtype::I32, 1, 4, None),
    chain("lorenzo_quant:eb=1e-2,radius=128,zigzag=1,bitpack:bits=8", Dtype::F32, 1, 4, None),
    chain("lorenzo_quant:eb=1e-2,rle", Dtype::F32, 1, 4, Some(4.0)),
    chain("lorenzo_quant:eb=1e-2,radius=512,zigzag=1,huffman", Dtype::F32, 1, 4, Some(4.0)),
    chain("lorenzo_quant:eb=1e-3,zigzag=1,bitplane_rze", Dtype::F32, 1, 4, None),
    chain("quantizer:linear=1,code=u32,lorenzo:t=i32,block=32,adaptive_bitpack:t=i32", Dtype::F32, 1, 4, None),
    chain("quantizer:linear=1,code=u32,tiled_lorenzo:t=i32,adaptive_bitpack:t=i32", Dtype::F32, 3, 4, None),
];

impl Chain {
    fn name(&self) -> String {
        format!("{} {:?} rank {}", self.stages.replace(',', ", "), self.dtype, self.rank)
    }

    /// A container of an array of about `bytes` bytes, in a temporary file.
    fn make(&self, bytes: usize) -> tempfile::NamedTempFile {
        let elements = bytes / self.dtype.size();
        let side = |rank: f64| (elements as f64).powf(1.0 / rank) as u32;
        let shape = match self.rank {
            1 => vec![elements as u32],
            2 => vec![side(2.0), side(2.0)],
            _ => vec![side(3.0); 3],
        };
        let source =
            Source { dtype: self.dtype, shape: shape.clone(), bytes: field::smooth(self.dtype, &shape, 0.005, 1) };
        let pipeline = Pipeline::parse(self.stages, std::slice::from_ref(&source)).unwrap();
        let run = pipeline.run(vec![source], false).unwrap();
        let form = Form::default();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut out = std::io::BufWriter::new(file.as_file_mut());
        run.file(&form).write_to(&mut out).unwrap();
        drop(out);
        file
    }
}

/// The blob that holds the array.
fn blob(path: &std::path::Path, gpu: Arc<Gpu>) -> BlobRef {
    let options = Options { gpu, verify: Verify::Off, ..Options::default() };
    let container = format::open(&Input::open(path).unwrap(), None, &options).unwrap();
    blobs::decoded_blobs(&*container).swap_remove(0)
}

/// Whether the device has decoded everything.
fn all_on_device(gpu: &Gpu) -> bool {
    gpu.decoder().contains("; CPU: 0 bytes")
}

/// Runs `work` on the GPU; without one, says so, which is a failure if one is required.
fn with_gpu(work: impl FnOnce(&Arc<Cuda>) -> ExitCode) -> ExitCode {
    match Cuda::open(0, None) {
        Ok(cuda) => {
            println!("{}, {}\n", cuda.name(), cuda.about());
            work(&Arc::new(cuda))
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

fn main() -> ExitCode {
    // cargo bench gives --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let mib = args.iter().find_map(|arg| arg.parse().ok());
    let rest: Vec<&str> = args.iter().map(String::as_str).filter(|arg| arg.parse::<usize>().is_err()).collect();
    match rest.split_first() {
        None => with_gpu(|cuda| timing::run(cuda, mib.unwrap_or(MEASURED), "")),
        Some((&"time", words)) => {
            with_gpu(|cuda| timing::run(cuda, mib.unwrap_or(MEASURED), words.first().unwrap_or(&"")))
        }
        Some((&"smoke", _)) => with_gpu(|cuda| smoke::run(cuda, mib.unwrap_or(COMPARED))),
        Some((&"doctor", _)) => report::doctor(),
        Some((&"report", _)) => report::run(),
        Some(_) => {
            eprintln!("gpu [report | doctor | time [MIB] [CHAIN] | smoke [MIB]]");
            ExitCode::from(2)
        }
    }
}
