//! An input of a merge by a bitmap.
#![forbid(unsafe_code)]

/// One of the two sequences of a merge.
#[derive(Debug, Clone, Copy)]
pub enum Side<'a> {
    /// The same byte repeated.
    Byte(u8),
    /// These bytes in order.
    Bytes(&'a [u8]),
}
