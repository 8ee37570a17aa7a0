//! Tests that need what a machine lacks.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Says loudly that a test was not run: one line for each test and what it lacks. Call it on the thread of the test,
/// which has its name.
pub(crate) fn skip(what: &str, why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("SKIPPED {}: {what}: {why}\n", std::thread::current().name().unwrap_or("a test"));
    if !SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        return;
    }
    // Past the harness, which keeps what tests print.
    if let Ok(mut terminal) = std::fs::OpenOptions::new().append(true).open("/proc/self/fd/2") {
        std::io::Write::write_all(&mut terminal, line.as_bytes()).ok();
    }
}
