//! Makes an FZM file of any size from a synthetic field: `scripts/make-fzm --help`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fzm_writer::{Dtype, Form, Generation, Pipeline, Source, field, spec};

/// Makes an FZM file from a smooth synthetic field: a sum of sines and a little noise.
///
/// Stages are separated by commas, their keys follow a colon:
/// `lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze`. Every stage reads the one before it, or what
/// `from=K,port=NAME` says. The stages and their keys are in tests/support/fzm/spec.rs, the pipelines of the
/// library's presets in tests/support/fzm/presets.rs.
///
/// A file whose outliers are all values of the array, in reverse order, needs the largest index relative to its size.
/// With 36 million of them the index and its sorted copy have 864 MB; a cache of 16 MB, or 1 MB, must do:
///
///     make-fzm --dtype f64 --shape 36000000 --noise 1 --no-crc
///         --stages quantizer:eb=1e-9,radius=1,cap=1 outliers.fzm
///     scripts/peaks --options cache=16M,threads=2 --commands verify,cat outliers.fzm
#[derive(Debug, Parser)]
#[command(name = "make-fzm")]
struct Args {
    /// Elements per dimension, slowest first
    #[arg(long, value_name = "ZxYxX", default_value = "1800x3600")]
    shape: String,
    /// Element type
    #[arg(long, value_name = "f32|f64|u8|...|i64", default_value = "f32")]
    dtype: String,
    /// The pipeline
    #[arg(long, default_value = "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze")]
    stages: String,
    /// Largest deviation from the smooth field
    #[arg(long, default_value_t = 0.005)]
    noise: f64,
    /// Another seed, another field
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write format version 3.0: a shorter header and no checksums
    #[arg(long)]
    v30: bool,
    /// Leave the checksums out
    #[arg(long)]
    no_crc: bool,
    /// Segments in any order with gaps between them, from this seed
    #[arg(long, value_name = "SEED")]
    scatter: Option<u64>,
    /// Write segments in slots of 16 bytes, and mark the primary source, as the library does since August 2026
    #[arg(long)]
    slots: bool,
    /// Take the array from this file, not a synthetic field
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Write the array itself here
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write here what decoding must give, by a plain scalar decoder
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// The file to make
    out: PathBuf,
}

fn write(path: &PathBuf, content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<(), String> {
    let file = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        content(&mut file)?;
        file.flush()
    });
    file.map_err(|e| format!("{}: {e}", path.display()))
}

fn run(args: &Args) -> Result<(), String> {
    let (dtype, shape) = (Dtype::parse(&args.dtype)?, spec::shape(&args.shape)?);
    let bytes = match &args.data {
        Some(path) => std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => field::smooth(dtype, &shape, args.noise, args.seed),
    };
    if let Some(path) = &args.input {
        write(path, |out| out.write_all(&bytes))?;
    }
    let source = Source { dtype, shape, bytes };
    let pipeline = Pipeline::parse(&args.stages, std::slice::from_ref(&source))?;
    let run = pipeline.run(vec![source], args.expect.is_some())?;
    let form = Form {
        version: if args.v30 { 0x0300 } else { 0x0301 },
        data_crc: !args.no_crc,
        header_crc: !args.no_crc,
        scatter: args.scatter,
        generation: if args.slots { Generation::Slots } else { Generation::Packed },
    };
    write(&args.out, |out| run.file(&form).write_to(out))?;
    if let Some(path) = &args.expect {
        let restored = run.restore()?;
        write(path, |out| out.write_all(&restored[&run.source_ids()[0]]))?;
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a program's error goes there")]
fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("make-fzm: {e}");
            ExitCode::FAILURE
        }
    }
}
