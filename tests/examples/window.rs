//! Opens an array and reads a window of it: `cargo run --example window FILE [PATH [FIRST [COUNT]]]`.
//!
//! Without arguments: 5 elements of a Blosc2 array of the test data, from number 1000 on.
#![allow(clippy::print_stdout, reason = "an example prints what it reads")]

use fzmfs::{Archive, Error, ErrorKind, Options};

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |n: usize, default: &str| args.get(n).map_or(default, String::as_str).to_owned();
    let usage = |why: &str| Error::new(ErrorKind::Usage(why.to_owned().into()), "arguments");
    let number = |text: String| text.parse::<u64>().map_err(|e| usage(&e.to_string()));
    let source = arg(0, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/blosc2/n05_5d_f4.b2nd"));
    let (first, count) = (number(arg(2, "1000"))?, number(arg(3, "5"))?);

    let archive = Archive::open(source, &Options::default())?;
    let file = archive.file(&arg(1, "data.npy"))?;
    let array = file.array().ok_or_else(|| usage("the file is not an array"))?;
    println!("{}: {} elements of {}, shape {:?}", file.path(), array.len(), array.dtype(), array.shape());

    // Only the pieces that these elements are in are decoded.
    let window = array.read(first..first.saturating_add(count))?;
    match array.dtype() {
        "<f4" => println!("{:?}", window.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>()),
        "<f8" => println!("{:?}", window.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect::<Vec<_>>()),
        _ => println!("{window:02x?}"),
    }
    Ok(())
}
