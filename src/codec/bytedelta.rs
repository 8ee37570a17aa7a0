//! Running sums of bytes: the inverse of differences between neighbours.
#![forbid(unsafe_code)]

/// Replaces each byte by the sum, modulo 256, of it and all bytes before it.
///
/// # Examples
/// ```
/// let mut run = [1, 1, 254, 5];
/// fzmfs::codec::bytedelta::undo(&mut run);
/// assert_eq!(run, [1, 2, 0, 5]);
/// ```
pub fn undo(run: &mut [u8]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = super::vectors::Kernels::get() {
        let (done, sum) = kernels.running_sum(run);
        scalar(&mut run[done..], sum);
        return;
    }
    scalar(run, 0);
}

fn scalar(run: &mut [u8], mut sum: u8) {
    for byte in run {
        sum = sum.wrapping_add(*byte);
        *byte = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::noise;
    use super::*;

    #[test]
    fn the_kernel_agrees_with_the_portable_form() {
        for len in (0..100).chain([1000, 4097]) {
            let mut want = noise(len);
            let mut got = want.clone();
            scalar(&mut want, 0);
            undo(&mut got);
            assert_eq!(got, want, "{len} bytes");
        }
    }
}
