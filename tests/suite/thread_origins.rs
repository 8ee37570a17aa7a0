//! Where threads come from: a few places, each for a reason.

use std::fs;
use std::path::Path;

use crate::layers::{sources, without_tests};

/// Where threads come from, and for what.
const ORIGINS: &[(&str, &str)] = &[
    ("src/pool.rs", "jobs: the threads of a pool, which end when they are idle"),
    ("src/parallel.rs", "the helpers of a caller, which end before it returns"),
    ("src/fs/serve.rs", "a mount: its session, and those that look at killed readers and at changed files"),
    ("src/fs/loops.rs", "the event loops, which fuser starts: tried out before the mount"),
    ("src/serve/mod.rs", "connections of a server: tokio"),
    ("src/source/remote/session.rs", "connections to servers: tokio"),
];

#[test]
fn threads_come_from_the_places_of_the_table() {
    const STARTS: [&str; 4] = ["thread::spawn(", "thread::scope(", "thread::Builder::", "Builder::new_multi_thread("];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found: Vec<String> = sources(&root.join("src"))
        .into_iter()
        .map(|path| (path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), path))
        .filter(|(file, _)| !file.contains("/tests"))
        .filter(|(_, path)| {
            let source = without_tests(&fs::read_to_string(path).unwrap());
            STARTS.iter().any(|start| source.contains(start))
        })
        .map(|(file, _)| file)
        .collect();
    let mut table: Vec<&str> = ORIGINS.iter().map(|origin| origin.0).collect();
    table.sort_unstable();
    assert_eq!(found, table, "a thread of a new kind needs a reason in the table of this test");
}
