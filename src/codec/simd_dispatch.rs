//! Loops compiled several times: for any processor, and for processors with wider vectors.
//!
//! A kernel is plain safe code that the compiler vectorizes; [`run`] uses the copy compiled for AVX2 or NEON if the
//! processor has it, and [`run_widest`] also has one for AVX-512. All copies perform the same operations and give the same bits.
#![forbid(unsafe_code)]

pub use super::simd_ops::{Portable, SimdLoop, SimdOps};

/// Runs `kernel` with vectors of up to 32 bytes.
///
/// # Examples
/// ```
/// use fzmfs::codec::simd_dispatch::{SimdLoop, SimdOps, run};
///
/// struct Sum<'a>(&'a [u32]);
///
/// impl SimdLoop for Sum<'_> {
///     type Output = u32;
///
///     #[inline(always)]
///     fn run(self, _: impl SimdOps) -> u32 {
///         self.0.iter().fold(0, |sum, n| sum.wrapping_add(*n))
///     }
/// }
/// assert_eq!(run(Sum(&[1, 2, 3])), 6);
/// ```
#[inline]
pub fn run<K: SimdLoop>(kernel: K) -> K::Output {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = super::vectors::Kernels::get() {
        return kernels.run(kernel);
    }
    kernel.run(Portable)
}

/// Runs `kernel` with the widest vectors of this processor: for long loops over numbers. Compiled once more than for
/// [`run`].
#[inline]
pub fn run_widest<K: SimdLoop>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernels) = super::avx512::Kernels::get() {
        return kernels.run(kernel);
    }
    run(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds every element and sums in order: neither may differ between the copies.
    struct Scaled<'a>(&'a mut [f32]);

    impl SimdLoop for Scaled<'_> {
        type Output = f32;

        #[inline(always)]
        #[allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
        fn run(self, _: impl SimdOps) -> f32 {
            for x in &mut *self.0 {
                *x = *x * 0.1 + 0.3;
            }
            self.0.iter().sum()
        }
    }

    /// The results of both repetitions of one period.
    struct Repeated<'a>(&'a [u8; 32], usize);

    impl SimdLoop for Repeated<'_> {
        type Output = ([u8; 32], [u8; 16]);

        #[inline(always)]
        #[allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
        fn run(self, vectors: impl SimdOps) -> Self::Output {
            let (bytes, front) = (self.0, self.0.first_chunk().unwrap());
            (vectors.repeat(bytes, self.1), vectors.repeat16(front, self.1))
        }
    }

    #[test]
    fn periods_repeat_with_and_without_vectors() {
        let bytes: [u8; 32] = std::array::from_fn(|i| (i * 7 + 1) as u8);
        for period in 1..32 {
            let want: [u8; 32] = std::array::from_fn(|i| bytes[i % period]);
            let repeated = || Repeated(&bytes, period);
            for (whole, half) in [run(repeated()), run_widest(repeated()), repeated().run(Portable)] {
                assert_eq!((whole, half), (want, *want.first_chunk().unwrap()), "period {period}");
            }
        }
    }

    #[test]
    fn all_copies_of_a_kernel_give_the_same_bits() {
        let numbers: Vec<f32> = (0..1001_u16).map(|i| f32::from(i) * 1.7).collect();
        let [mut widest, mut wide, mut plain] = [0; 3].map(|_| numbers.clone());
        let sums = [run_widest(Scaled(&mut widest)), run(Scaled(&mut wide)), Scaled(&mut plain).run(Portable)];
        assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()));
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let plain = bits(plain);
        assert!(bits(widest) == plain && bits(wide) == plain);
    }
}
