//! All that is to be known of a GPU, in one call of less than ten minutes: steps, each with a limit, a log and a
//! verdict.
//!
//! A step passes if its program ends in time with exit code 0, whatever it prints. One whose program is not on this
//! machine did not run, and is named. Everything is written to the folder `OUT`, or to `out` beside this program.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "part of a program that prints")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use super::children::{self, End};

/// Where tests were built to find their files.
const BUILT_FOR: &str = "/tmp/fzmfs-gpu";
/// MiB of the array whose bytes are compared.
const COMPARED: usize = 64;
/// Lines of a log that the report repeats where the step has failed.
const TAIL: usize = 40;

/// Prints what `fzmfs doctor` finds, and fails if that is not a GPU. Whether anything can be mounted does not matter here.
pub(crate) fn doctor() -> ExitCode {
    let program = folder().map(|folder| folder.join("fzmfs"));
    let output = program.and_then(|program| Command::new(program).arg("doctor").output());
    let text = output.map_or_else(|why| why.to_string(), |out| String::from_utf8_lossy(&out.stdout).into_owned());
    println!("{text}");
    let found = text.lines().any(|line| line.starts_with("GPU") && line.split_whitespace().nth(1) == Some("ok"));
    if found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What to run.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) seconds: u64,
    /// File name of its log, which steps may share.
    pub(crate) log: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Whether the report repeats its output.
    pub(crate) shown: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    NotRun(String),
}

/// A program on the path, or where toolkits are installed.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/local/cuda/bin".into(), "/usr/local/nvidia/bin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The steps, for a folder with the programs. Their limits add up to less than ten minutes.
pub(crate) fn steps(folder: &Path) -> Vec<Step> {
    let mib: Option<usize> = std::env::var("FZMFS_BENCH_MIB").ok().and_then(|mib| mib.parse().ok());
    let compared = mib.map_or(COMPARED, |mib| mib.min(COMPARED)).to_string();
    let mib = mib.map(|mib| mib.to_string()).unwrap_or_default();
    let step = |name, seconds, log, program: PathBuf, args: &[&str], shown| {
        let args = args.iter().filter(|arg| !arg.is_empty()).map(|&arg| arg.to_owned()).collect();
        Step { name, seconds, log, program, args, shown }
    };
    let own = |name: &str| folder.join(name);
    // Looked up when it runs.
    let named = |name: &str| tool(name).unwrap_or_else(|| name.into());
    let facts = "--query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit";
    let gpu = own("gpu").display().to_string();
    let suite = own("suite").display().to_string();
    let counters = [
        "gpu__time_duration.sum",
        "sm__inst_executed.sum",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "launch__registers_per_thread",
    ]
    .join(",");
    let mut all = vec![
        step("machine", 10, "machine.txt", named("nvidia-smi"), &[facts, "--format=csv"], true),
        step("doctor", 10, "machine.txt", own("gpu"), &["doctor"], true),
        step("smoke", 45, "smoke.txt", own("gpu"), &["smoke", &compared], true),
        step("kernels", 150, "kernels.txt", own("gpu"), &["time", &mib], true),
        step("tests", 120, "tests.txt", own("suite"), &["fzm_device::", "gpu_driver::", "gpu_resident::"], false),
        step(
            "counters",
            50,
            "counters.txt",
            named("ncu"),
            &["--csv", "--clock-control", "none", "--launch-count", "40", "--metrics", &counters, &gpu, "smoke", "32"],
            false,
        ),
    ];
    let sanitizers: [(&str, u64, [&str; 3]); 5] = [
        ("memcheck", 35, [&gpu, "smoke", "4"]),
        ("memcheck", 35, [&suite, "--test-threads=1", "fzm_device::kernels_reject"]),
        ("racecheck", 30, [&gpu, "smoke", "4"]),
        ("initcheck", 25, [&gpu, "smoke", "4"]),
        ("synccheck", 25, [&gpu, "smoke", "4"]),
    ];
    for (n, (which, seconds, program)) in sanitizers.into_iter().enumerate() {
        let args = [&["--tool", which, "--error-exitcode", "9", "--target-processes", "all"][..], &program].concat();
        let name = if n == 1 { "memcheck-broken" } else { which };
        all.push(step(name, seconds, "sanitizers.txt", named("compute-sanitizer"), &args, false));
    }
    all
}

/// Runs a step, its output behind what is in `log`.
fn run_step(step: &Step, log: &Path, cache: &Path) -> Verdict {
    if !step.program.is_file() {
        return Verdict::NotRun(format!("{} is not here", step.program.display()));
    }
    let mut file = match File::options().create(true).append(true).open(log) {
        Ok(file) => file,
        Err(why) => return Verdict::Failed(format!("{}: {why}", log.display())),
    };
    let _ = writeln!(file, "==> {} {}", step.program.display(), step.args.join(" "));
    let mut command = Command::new(&step.program);
    // Every process compiles what is not shipped for this GPU only once.
    command.args(&step.args).env("FZMFS_REQUIRE_GPU", "1").env("CUDA_CACHE_PATH", cache);
    verdict(children::run(&mut command, Duration::from_secs(step.seconds), &file), step.seconds)
}

fn verdict(end: End, seconds: u64) -> Verdict {
    match end {
        End::Exited(status) if status.success() => Verdict::Passed,
        End::Exited(status) => Verdict::Failed(status.to_string()),
        End::TimedOut => Verdict::Failed(format!("not done after {seconds} s")),
        End::NotStarted(why) => Verdict::Failed(format!("cannot be started: {why}")),
    }
}

/// What the step that began at byte `from` of its log has written.
fn output(log: &Path, from: u64) -> String {
    let all = fs::read(log).unwrap_or_default();
    let own = all.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
    String::from_utf8_lossy(own).into_owned()
}

/// The folder of the programs: that of this one.
fn folder() -> io::Result<PathBuf> {
    // Where /proc is not mounted, as it was called.
    let own = std::env::current_exe().or_else(|why| std::env::args_os().next().map(PathBuf::from).ok_or(why))?;
    own.parent().map(Path::to_owned).ok_or_else(|| io::Error::other("no folder"))
}

/// Links the folder to where the tests look for it.
fn link(folder: &Path) -> io::Result<()> {
    let at = Path::new(BUILT_FOR);
    if at.canonicalize().is_ok_and(|at| Some(at) == folder.canonicalize().ok()) {
        return Ok(());
    }
    let _ = fs::remove_file(at);
    fs::create_dir_all("/tmp")?;
    std::os::unix::fs::symlink(folder, at)
}

pub(crate) fn run() -> ExitCode {
    let folder = match folder().and_then(|folder| link(&folder).map(|()| folder)) {
        Ok(folder) => folder,
        Err(why) => {
            eprintln!("gpu report: {why}");
            return ExitCode::FAILURE;
        }
    };
    let out = std::env::var_os("OUT").map_or_else(|| folder.join("out"), PathBuf::from);
    let cache = std::env::temp_dir().join("fzmfs-gpu-cache");
    children::adopt_orphans();
    let steps = steps(&folder);
    match report(&steps, &out, &cache) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("gpu report: {}: {why}", out.display());
            ExitCode::FAILURE
        }
    }
}

/// Runs all steps and writes the report; returns whether none has failed.
pub(crate) fn report(steps: &[Step], out: &Path, cache: &Path) -> io::Result<bool> {
    fs::create_dir_all(out)?;
    let mut file = File::create(out.join("report.txt"))?;
    let mut say = |text: &str| -> io::Result<()> {
        println!("{text}");
        writeln!(file, "{text}")?;
        file.flush()
    };
    for step in steps {
        let _ = fs::remove_file(out.join(step.log));
    }
    let mut verdicts = Vec::new();
    for step in steps {
        let (log, start) = (out.join(step.log), Instant::now());
        let from = fs::metadata(&log).map_or(0, |meta| meta.len());
        let verdict = run_step(step, &log, cache);
        let text = output(&log, from);
        if step.shown {
            say(text.trim_end())?;
        } else if matches!(verdict, Verdict::Failed(_)) {
            let lines: Vec<&str> = text.lines().collect();
            say(&lines[lines.len().saturating_sub(TAIL)..].join("\n"))?;
        }
        say(&line(step.name, &verdict, start.elapsed()))?;
        verdicts.push((step.name, verdict));
    }
    say("")?;
    for text in summary(&verdicts) {
        say(&text)?;
    }
    Ok(!verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Failed(_))))
}

fn line(name: &str, verdict: &Verdict, time: Duration) -> String {
    match verdict {
        Verdict::Passed => format!("VERDICT {name}: passed, {:.1} s\n", time.as_secs_f64()),
        Verdict::Failed(why) => format!("VERDICT {name}: FAILED, {why}, {:.1} s\n", time.as_secs_f64()),
        Verdict::NotRun(why) => format!("VERDICT {name}: DID NOT RUN, {why}\n"),
    }
}

/// The last lines: how many steps passed, and which others there are.
pub(crate) fn summary(verdicts: &[(&str, Verdict)]) -> Vec<String> {
    let names = |which: fn(&Verdict) -> bool| -> Vec<&str> {
        verdicts.iter().filter(|(_, verdict)| which(verdict)).map(|(name, _)| *name).collect()
    };
    let passed = names(|verdict| *verdict == Verdict::Passed).len();
    let (failed, not_run) = (
        names(|verdict| matches!(verdict, Verdict::Failed(_))),
        names(|verdict| matches!(verdict, Verdict::NotRun(_))),
    );
    let mut lines = vec![format!("VERDICT of all: {passed} of {} steps passed", verdicts.len())];
    if !failed.is_empty() {
        lines.push(format!("FAILED: {}", failed.join(", ")));
    }
    if !not_run.is_empty() {
        lines.push(format!("DID NOT RUN: {}", not_run.join(", ")));
    }
    lines
}
