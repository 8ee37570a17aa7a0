//! The mount as programs see it: real mounts, real programs, and what can go wrong with either.
//!
//! They need root and `/dev/fuse`; without, each says in one line that it was skipped.

mod archives;
mod arrays;
mod changes;
mod checksums;
mod directories;
mod ending;
mod faults;
mod held;
mod idle;
mod index;
mod invocations;
mod killed;
mod limits;
mod list;
mod listing;
mod logs;
mod making;
mod moved;
mod pictures;
mod reading;
mod rights;
mod swaps;
mod tensors;
mod users;
mod verify;
mod waiting;
mod zarr;
