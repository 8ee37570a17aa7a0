//! One run of a command: its time, and the most memory that it has taken.
//!
//! The kernel counts what the parent had in memory when it started the child. So a process of its own, as small as a
//! new one is, starts the command and prints what it has used.

use std::process::{Command, Stdio};
use std::time::Instant;

/// Seconds that `command` takes with its output thrown away, and MiB of memory at its peak.
pub(super) fn run(command: &Command) -> (f64, f64) {
    let mut small = Command::new(std::env::current_exe().unwrap());
    let output = small.arg("once").arg(command.get_program()).args(command.get_args()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(output.status.success() && figures.len() == 2, "{command:?} failed");
    (figures[0], figures[1])
}

/// Runs a command and prints the two figures.
#[expect(unsafe_code, clippy::zombie_processes, reason = "the standard library does not tell what a child has used")]
pub(super) fn measure(args: &[String]) {
    let start = Instant::now();
    let child = Command::new(&args[0]).args(&args[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut status, pid) = (0, child.id() as libc::pid_t);
    // SAFETY: rusage is plain data.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of this function, and nobody else waits for the child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert!(waited == pid && status == 0, "{args:?} failed");
    println!("{} {}", start.elapsed().as_secs_f64(), usage.ru_maxrss as f64 / 1024.0);
}
