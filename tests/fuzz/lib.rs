//! What all fuzz targets share: open, list and read everything, with checksums mended after most changes.
//!
//! Options are those that users have, but for a small `cache=` and `spill=`. Besides a panic, a report of the sanitizer
//! and a hang it is a fault to take more memory, disk space or work than is promised: tests/support/everything.rs.
//!
//! Adding a format: a file of two lines in targets/ and its `[[bin]]` in Cargo.toml.

#[path = "../support/everything.rs"]
mod everything;
mod memory;
#[path = "../support/reseal.rs"]
mod reseal;

use std::path::PathBuf;
use std::sync::OnceLock;

use fzmfs::format::FORMATS;

pub use libfuzzer_sys;

/// Reads everything of `data` as a container of the format called `name`.
///
/// # Panics
/// Where the container does something that it must never do: this is what the fuzzer looks for.
pub fn run(name: &str, data: &[u8]) {
    static DICTS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let format = FORMATS.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("there is no format {name}"));
    let dicts = DICTS.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data").join(name);
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
        files.filter(|p| p.extension().is_some_and(|e| e == "dict")).collect()
    });
    let bytes = data.to_vec();
    let (seen, peak) = memory::measured(|| everything::open_list_read_everything(format, bytes, dicts));
    let may_take = seen.may_take() + data.len() as u64;
    assert!(peak <= may_take, "it took {peak} bytes of memory, {may_take} are allowed");
}

/// Changes `data` as libFuzzer does, and mends the checksums in three of four cases.
pub fn mutate(name: &str, data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let size = libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    if seed % 4 != 0 {
        reseal::reseal(name, &mut data[..size]);
    }
    size
}

/// The fuzz target of one format.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        use $crate::libfuzzer_sys::{self, fuzz_mutator, fuzz_target};

        fuzz_target!(|data: &[u8]| $crate::run($name, data));
        fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate($name, data, size, max_size, seed)
        });
    };
}
