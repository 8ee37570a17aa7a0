//! `fzmfs doctor`: reports whether mounting works on this machine, which device decodes, and how to fix problems.
#![forbid(unsafe_code)]

use std::io::Write;

use super::report::{self, Failure, Outcome};
use super::size;
use super::syslog;
use crate::archive::memory;
use crate::error::os_message;
use crate::format::FORMATS;
use crate::fs::doctor::{self, Severity};
use crate::gpu;
use crate::index::{self, Index, places};

pub(super) fn run(out: &mut dyn Write) -> Outcome {
    let findings = doctor::findings();
    let works = doctor::can_mount(&findings);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines = vec![("fzmfs", "", env!("CARGO_PKG_VERSION").to_owned())];
    lines.extend(findings.into_iter().map(|finding| (finding.name, word(finding.state), finding.text)));
    let (all, cache) = (size::short(memory::total()), size::short(memory::default_cache()));
    lines.push(("memory", "ok", format!("{all}, of which {cache} for decoded data unless cache= says otherwise")));
    lines.push(("threads", "ok", format!("{threads} that decode, unless threads= says otherwise")));
    lines.push(index());
    lines.push(if syslog::is_reached() {
        (
            "log",
            "ok",
            "mounts write to the system log; journalctl -t fzmfs shows it where that is the journal".to_owned(),
        )
    } else {
        ("log", "note", "no log daemon listens here, so that what mounts say is lost; give them --log FILE".to_owned())
    });
    lines.push(match gpu::open(0, None) {
        Ok(gpu) => {
            let limit = size::short(gpu.memory_limit());
            (
                "GPU",
                "ok",
                format!("{}: {}, of which {limit} unless gpu_memory= says otherwise", gpu.name(), gpu.about()),
            )
        }
        Err(why) => ("GPU", "none", format!("{why}; the CPU decodes")),
    });

    let kernels: Vec<&str> = FORMATS.iter().flat_map(|format| format.kernels).copied().collect();
    let kernels = kernels.join(", ");
    lines.push(("kernels", "", format!("{kernels}; the CPU decodes FZM files with other stages, see `fzmfs info`")));

    let width = lines.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    let print = |out: &mut dyn Write| {
        for (name, state, text) in &lines {
            writeln!(out, "{name:width$}  {state:4}  {text}")?;
        }
        writeln!(out, "{}", if works { "mounting works" } else { "mounting does not work" })?;
        out.flush()
    };
    print(out).map_err(|e| report::output(&e))?;
    if works { Ok(()) } else { Err(Failure::reported()) }
}

/// Where the index is, and how large.
fn index() -> (&'static str, &'static str, String) {
    let name = "index";
    let (Some(dir), Some(_)) = (places::index(), places::state()) else {
        return (
            name,
            "note",
            "none: neither XDG_CACHE_HOME and XDG_STATE_HOME nor HOME is set; give index=DIR".to_owned(),
        );
    };
    let most = format!("of at most {} unless index_size= says otherwise", size::short(index::SIZE));
    match dir.try_exists() {
        Ok(true) => {}
        Ok(false) => return (name, "ok", format!("{}, nothing yet {most}", dir.display())),
        Err(e) => return (name, "note", format!("{}: nothing is kept: {}", dir.display(), os_message(&e))),
    }
    match Index::of_user(dir.clone(), None).used() {
        Ok(bytes) => (name, "ok", format!("{}, {} {most}", dir.display(), size::short(bytes))),
        Err(why) => (name, "note", format!("{}: nothing is kept: {why}", dir.display())),
    }
}

fn word(state: Severity) -> &'static str {
    match state {
        Severity::Ok => "ok",
        Severity::Warn => "note",
        Severity::Fail => "BAD",
    }
}
