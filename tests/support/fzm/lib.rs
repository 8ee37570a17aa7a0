//! A writer of FZM files, for tests and benchmarks: any pipeline of the format, from arrays in memory.
//!
//! It shares no code with the decoder. Beside the file it gives what decoding has to yield: a stage that
//! loses nothing yields its input; the others (`LorenzoQuant`, Quantizer, Difference of floats) are
//! inverted here by plain scalar loops that follow the summation order of the format word by word.
//!
//! [`Pipeline::parse`] reads a chain such as `lorenzo_quant:eb=1e-3,bitshuffle:w=2,rze` (grammar: [`spec`]),
//! [`Pipeline::run`] encodes, [`Run::file`] lays the file out as a [`Form`] says, and
//! [`Run::restore`] gives the expected content of every buffer.
#![forbid(unsafe_code)]

mod container;
mod dtype;
mod elements;
pub mod field;
mod pipeline;
mod presets;
pub mod spec;
mod stage;

pub use container::{Form, Generation, Image};
pub use dtype::Dtype;
pub use pipeline::{Pipeline, Run, Source, Step};
pub use presets::PRESETS;

/// What goes wrong is the caller's description of a pipeline: a text says what.
pub type Result<T> = std::result::Result<T, String>;

/// A small generator of random numbers (xorshift64*), the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `n`; 0 for `n` = 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
