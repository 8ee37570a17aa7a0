//! The entropy-coded parts of a compressed block, in 0.7 and in modern frames: Huffman streams of literals, FSE tables, the
//! bit stream of sequences.
//!
//! Reference: sections 2.4 and 3 (RFC 8878, 4). The generations differ in numbers and limits: see [`Dialect`].
//!
//! `bits`: bit streams. `fse`, `alphabet`, `tables`: the tables of sequences. `sequences`: their stream. `huffman`:
//! literals.
//!
//! Invariants: no I/O; nothing beyond a block is allocated.
#![forbid(unsafe_code)]

mod alphabet;
mod bits;
mod fse;
mod huffman;
mod sequences;
mod tables;

#[cfg(test)]
pub(super) use fse::read_distribution;
pub(super) use huffman::HuffmanTable;
pub(super) use sequences::{History, Sequences, ZstdSequence, count as sequence_count};
pub(super) use tables::{CodeTable, Dialect, Tables};
