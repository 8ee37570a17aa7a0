//! A number that tells what a part of the server does or holds.
#![forbid(unsafe_code)]

/// A figure: its name, whether it only grows, its value, and what it is.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) grows: bool,
    pub(super) value: u64,
    pub(super) what: &'static str,
}
