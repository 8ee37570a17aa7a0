//! Loops compiled twice: for any processor, and for those with wider vectors.
//!
//! A kernel is plain safe code that the compiler turns into vectors by itself; [`run`] takes the copy that was
//! compiled for AVX2 where the processor has it. Both do the same operations, so both give the same bits.
#![forbid(unsafe_code)]

/// A loop and what it works on.
pub trait Kernel {
    /// What it gives.
    type Output;

    /// Runs it. Has to be `#[inline(always)]`, and so has what it calls in its loops: only what becomes part
    /// of the caller is compiled for the caller's vectors.
    fn run(self) -> Self::Output;
}

/// Runs `kernel` in the widest vectors that this processor has and we compile for.
///
/// # Examples
/// ```
/// use fzmfs::codec::kernel::{Kernel, run};
///
/// struct Sum<'a>(&'a [u32]);
///
/// impl Kernel for Sum<'_> {
///     type Output = u32;
///
///     #[inline(always)]
///     fn run(self) -> u32 {
///         self.0.iter().fold(0, |sum, n| sum.wrapping_add(*n))
///     }
/// }
/// assert_eq!(run(Sum(&[1, 2, 3])), 6);
/// ```
#[inline]
pub fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernels) = super::avx2::Kernels::get() {
        return kernels.run(kernel);
    }
    kernel.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in every element and adds up in order: neither may differ.
    struct Scaled<'a>(&'a mut [f32]);

    impl Kernel for Scaled<'_> {
        type Output = f32;

        #[inline(always)]
        #[allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
        fn run(self) -> f32 {
            for x in &mut *self.0 {
                *x = *x * 0.1 + 0.3;
            }
            self.0.iter().sum()
        }
    }

    #[test]
    fn both_copies_of_a_kernel_give_the_same_bits() {
        let numbers: Vec<f32> = (0..1001_u16).map(|i| f32::from(i) * 1.7).collect();
        let (mut wide, mut plain) = (numbers.clone(), numbers);
        let sums = [run(Scaled(&mut wide)), Scaled(&mut plain).run()];
        assert_eq!(sums[0].to_bits(), sums[1].to_bits());
        assert!(wide.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
