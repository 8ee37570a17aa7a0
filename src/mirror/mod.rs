//! A directory of containers as one tree: which files are containers, how they are named, and how they are opened.
//!
//! Other files are passed through. Containers are recognized by name, so that listing a directory opens no file; their
//! format is detected when they are entered. A file with the name of a container that cannot be opened as one is a
//! directory with the reason and the stored file.
//!
//! Nothing here knows about the kernel: the mount (`fs::directory`) and the commands share it.
#![forbid(unsafe_code)]

mod alone;
mod candidates;
mod directory;
mod flat;
mod flat_names;
mod glob;
mod members;
mod opening;
mod reshaped;
mod rules;

pub use alone::plain;
pub use candidates::{is_candidate, stat_container, who_may_read};
pub use directory::open_directory;
pub use flat::{Shown, ShownFile, shown};
pub use flat_names::FlatNames;
pub use glob::Glob;
pub use opening::{Containers, FAR, Found, Look, Opened};
pub use rules::{Layout, Rules, Target};
