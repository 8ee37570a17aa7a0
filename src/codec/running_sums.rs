//! Running sums of numbers in spans: every span starts again from its first number.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of kernels")]

/// Shorter spans are summed number by number.
const LONG: usize = 64;

/// Replaces `numbers` by their running sums by `add`, which restart every `span` numbers (at least 1).
#[inline(always)]
pub fn portable<T: Copy>(numbers: &mut [T], span: usize, add: impl Fn(T, T) -> T) {
    for span in numbers.chunks_mut(span.max(1)) {
        let part = span.len() / 4;
        if span.len() < LONG || !span.len().is_multiple_of(4) {
            sum_up(span, &add);
            continue;
        }
        // Four parts at a time: no sum waits for another part.
        let (front, back) = span.split_at_mut(2 * part);
        let ((a, b), (c, d)) = (front.split_at_mut(part), back.split_at_mut(part));
        let mut sums: Option<[T; 4]> = None;
        for (((a, b), c), d) in a.iter_mut().zip(&mut *b).zip(&mut *c).zip(&mut *d) {
            let own = match sums {
                Some([e, f, g, h]) => [add(e, *a), add(f, *b), add(g, *c), add(h, *d)],
                None => [*a, *b, *c, *d],
            };
            ([*a, *b, *c, *d], sums) = (own, Some(own));
        }
        let Some([a, e, f, _]) = sums else { continue };
        let (e, f) = (add(a, e), add(add(a, e), f));
        for (before, part) in [(a, b), (e, c), (f, d)] {
            for own in part {
                *own = add(before, *own);
            }
        }
    }
}

#[inline(always)]
fn sum_up<T: Copy>(span: &mut [T], add: impl Fn(T, T) -> T) {
    let Some((&mut first, rest)) = span.split_first_mut() else { return };
    let mut sum = first;
    for own in rest {
        sum = add(sum, *own);
        *own = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::cases;
    use super::super::simd_dispatch::{Portable, SimdLoop, SimdOps, run, run_widest};

    struct Sums<'a>(&'a mut [i32], &'a mut [i64], usize);

    impl SimdLoop for Sums<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self, vectors: impl SimdOps) {
            vectors.running_sums(self.0, self.2);
            vectors.running_sums64(self.1, self.2);
        }
    }

    #[test]
    fn sums_restart_with_every_span() {
        for len in cases([0, 1, 7, 8, 15, 16, 17, 64, 100, 1023, 1024, 3000], 4) {
            let numbers: Vec<i32> = (0..len).map(|i: i32| (i + 1).wrapping_mul(0x4321_9876)).collect();
            for span in cases([1, 3, 8, 16, 24, 32, 48, 64, 100, 256, 1024, 5000], 3) {
                let mut want = numbers.clone();
                for span in want.chunks_mut(span) {
                    for i in 1..span.len() {
                        span[i] = span[i].wrapping_add(span[i - 1]);
                    }
                }
                let long: Vec<i64> = numbers.iter().map(|n| i64::from(*n)).collect();
                let [mut plain, mut some, mut wide] = [0; 3].map(|_| (numbers.clone(), long.clone()));
                Sums(&mut plain.0, &mut plain.1, span).run(Portable);
                run(Sums(&mut some.0, &mut some.1, span));
                run_widest(Sums(&mut wide.0, &mut wide.1, span));
                for (sums, long) in [plain, some, wide] {
                    assert!(sums == want && long.iter().map(|n| *n as i32).eq(sums), "{len} in spans of {span}");
                }
            }
        }
    }
}
