//! Which mutant is active, and which of them a process has come to: for the copy of the source that `scripts/mutants`
//! makes.
#![allow(unsafe_code, clippy::all, reason = "a map of a file that processes write at once")]

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

struct Probe {
    /// 0: none.
    active: u32,
    /// A byte for each mutant, shared by all processes of a test.
    reached: Option<memmap2::MmapRaw>,
}

/// Whether this mutant is the active one.
pub(crate) fn on(mutant: u32) -> bool {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    let probe = PROBE.get_or_init(|| Probe {
        active: std::env::var("FZMFS_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0),
        reached: std::env::var_os("FZMFS_MUTANTS_REACHED").map(|path| {
            let file = File::options().read(true).write(true).open(path).unwrap();
            memmap2::MmapRaw::map_raw(&file).unwrap()
        }),
    });
    if let Some(reached) = &probe.reached {
        assert!((mutant as usize) < reached.len());
        unsafe { AtomicU8::from_ptr(reached.as_mut_ptr().add(mutant as usize)) }.store(1, Ordering::Relaxed);
    }
    probe.active == mutant
}
