//! The report of scripts/gpu: steps keep their limits, and nothing but an exit code makes them pass.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::alone::alone;

#[allow(dead_code, reason = "the program uses it")]
#[path = "../bench/gpu/children.rs"]
mod children;
#[allow(dead_code, reason = "the program uses it")]
#[path = "../bench/gpu/report.rs"]
mod report;

use report::{Step, Verdict};

/// A step that runs a shell script.
fn step(name: &'static str, seconds: u64, script: &str) -> Step {
    let args = vec!["-c".to_owned(), script.to_owned()];
    Step { name, seconds, log: "log.txt", program: "/bin/sh".into(), args, shown: false }
}

/// Alone in a process: the report ends all children of its own.
#[test]
fn steps_pass_by_their_exit_code_and_within_their_limit() {
    alone("gpu_report::steps_pass_by_their_exit_code_and_within_their_limit", &[], report_of_steps);
}

fn report_of_steps() {
    children::adopt_orphans();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    // A child in a session of its own, which ignores a request to end and keeps the log open.
    let left =
        format!("setsid sh -c 'trap \"\" TERM; echo $$ >{}/pid; sleep 300; sleep 300' & sleep 0.3", out.display());
    let steps = [
        step("fine", 20, "echo well, and this is not supported"),
        step("broken", 20, "echo unable to, not supported; exit 9"),
        step("slow", 1, "trap '' TERM; while :; do sleep 0.1; done"),
        step("leaves-a-child", 60, &left),
        step("killed", 20, "kill -9 $$"),
        Step { program: "/nonexistent/tool".into(), ..step("absent", 20, "") },
    ];
    assert!(!report::report(&steps, out, &out.join("cache")).unwrap());
    let text = fs::read_to_string(out.join("report.txt")).unwrap();
    for line in [
        "VERDICT fine: passed",
        "VERDICT broken: FAILED, exit status: 9",
        "VERDICT slow: FAILED, not done after 1 s",
        "VERDICT leaves-a-child: passed",
        "VERDICT killed: FAILED, signal: 9",
        "VERDICT absent: DID NOT RUN, /nonexistent/tool is not here",
        "VERDICT of all: 2 of 6 steps passed",
        "FAILED: broken, slow, killed",
        "DID NOT RUN: absent",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let log = fs::read_to_string(out.join("log.txt")).unwrap();
    assert!(log.contains("well, and this") && log.contains("unable to, not"), "{log}");
    let left = fs::read_to_string(out.join("pid")).unwrap();
    assert!(!Path::new("/proc").join(left.trim()).exists(), "a child was left behind");
    // Only what passes is a success.
    assert!(report::report(&steps[..1], out, &out.join("cache")).unwrap());
    assert!(report::report(&steps[5..], out, &out.join("cache")).unwrap());
}

#[test]
fn all_steps_end_within_nine_minutes_and_write_few_files() {
    let steps = report::steps(Path::new("/folder"));
    let names: std::collections::BTreeSet<_> = steps.iter().map(|step| step.name).collect();
    let logs: std::collections::BTreeSet<_> = steps.iter().map(|step| step.log).collect();
    let sum: u64 = steps.iter().map(|step| step.seconds).sum();
    assert!(Duration::from_secs(sum) <= Duration::from_secs(540), "{sum}");
    // With the report: what comes back from a borrowed machine is counted.
    assert!(names.len() == steps.len() && logs.len() <= 7, "{logs:?}");
    assert_eq!(report::summary(&[("a", Verdict::Passed)]), ["VERDICT of all: 1 of 1 steps passed"]);
}
