//! What more threads gain: a cold read through the mount, `verify` and `extract`, on 2, 4, ... threads against one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::frames::{floats, many};
use super::mount::{FZMFS, Place, fzmfs, read};
use super::{decode, median, once, rate, rounds, row, size, table, time};

/// Seconds that something takes with a number of threads.
type Timed<'a> = &'a dyn Fn(usize) -> Duration;

pub(super) fn run() {
    let place = Place::new();
    let (point, out) = (place.point(), place.path("out"));
    let stages = "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze";
    for (name, bytes) in
        [("FZM, 1-D", decode::file(stages, &[(size() / 4) as u32])), ("zstd, frames of 16 MiB", many(&floats()))]
    {
        let file = place.path("data");
        std::fs::write(&file, bytes).unwrap();
        let command = |args: &[&str], threads: usize| {
            let mut command = Command::new(FZMFS);
            command.args(args).arg("--threads").arg(threads.to_string()).arg(&file);
            command
        };
        let cold = |threads: usize| {
            let mounted = fzmfs(&file, &point, &format!("threads={threads}"));
            let whole = time(|| assert_eq!(read(&point.join("data.raw")), size()));
            drop(mounted);
            whole
        };
        let verify = |threads| Duration::from_secs_f64(once::run(&command(&["verify"], threads)).0);
        let extract = |threads| {
            let mut command = command(&["extract", "--force"], threads);
            Duration::from_secs_f64(once::run(command.arg(&out).arg("data.raw")).0)
        };
        let mut sorts: Vec<(&str, Timed<'_>)> = vec![("verify", &verify), ("extract", &extract)];
        if Path::new("/dev/fuse").exists() {
            sorts.insert(0, ("cold read", &cold));
        } else {
            println!("SKIPPED: cold reads: there is no /dev/fuse");
        }
        for (sort, timed) in sorts {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let counts: Vec<usize> =
                std::iter::successors(Some(1), |count| Some(2 * count)).take_while(|&count| count <= cores).collect();
            let mut seconds = vec![vec![]; counts.len()];
            for _ in 0..rounds() {
                counts.iter().zip(&mut seconds).for_each(|(&count, of)| of.push(timed(count).as_secs_f64()));
            }
            let rates: Vec<f64> = seconds.iter_mut().map(|of| rate(size(), median(of))).collect();
            for (&count, &own) in counts.iter().zip(&rates).skip(1) {
                row(&format!("{name}, {sort}: {} / one", table::threads(count)), own, rates[0], "GB/s", "");
            }
        }
    }
}
