//! Lists all tensors of a checkpoint with their type, shape and sum of bytes: `cargo run --example tensors FILE`.
//!
//! Without arguments: a zTensor file of the test data.
#![allow(clippy::print_stdout, reason = "an example prints what it reads")]

use std::ffi::OsStr;
use std::path::Path;

use fzmfs::{Archive, EntryKind, Error, Options};

fn main() -> Result<(), Error> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/ztensor/v12-all-dtypes.zt");
    let source = std::env::args().nth(1).unwrap_or_else(|| default.to_owned());

    let archive = Archive::open(source, &Options::default())?;
    // Names with slashes are directories: walk goes into them.
    for entry in archive.walk("tensors")? {
        let entry = entry?;
        if entry.kind() != EntryKind::File || Path::new(entry.name()).extension() != Some(OsStr::new("npy")) {
            continue;
        }
        let Some(array) = entry.open()?.array() else { continue };
        // A window at a time: the memory that it takes does not depend on the size of the tensor.
        let (mut sum, mut first) = (0_u64, 0);
        while first < array.len() {
            let end = array.len().min(first + 65_536);
            sum += array.read(first..end)?.iter().map(|&byte| u64::from(byte)).sum::<u64>();
            first = end;
        }
        println!("{} {} {:?} {sum}", entry.path(), array.dtype(), array.shape());
    }
    Ok(())
}
