//! Writes the description of an FSE table, as a dictionary has it.
//!
//! Reference: section 2.4, "FSE description".
#![forbid(unsafe_code)]

/// The description of the table of `2^accuracy` cells with the probabilities `counts`, which fill it.
pub(super) fn describe(counts: &[i16], accuracy: u32) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.push(accuracy - 5, 4);
    let mut left: u32 = (1 << accuracy) + 1;
    let mut counts = counts;
    while let Some((&count, rest)) = counts.split_first().filter(|_| left > 1) {
        let n = left.ilog2() + 1;
        let short = (1 << n) - 1 - left;
        let value = u32::from((count + 1).unsigned_abs());
        if value < short {
            bits.push(value, n - 1);
        } else if value < 1 << (n - 1) {
            bits.push(value, n);
        } else {
            bits.push(value + short, n);
        }
        left -= u32::from(count.unsigned_abs());
        counts = rest;
        if count == 0 {
            let mut zeros = counts.iter().take_while(|&&count| count == 0).count();
            counts = &counts[zeros..];
            while zeros >= 3 {
                bits.push(3, 2);
                zeros -= 3;
            }
            bits.push(zeros as u32, 2);
        }
    }
    bits.bytes
}

/// Writes bits from the lowest one of each byte on.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    used: u32,
}

impl BitWriter {
    fn push(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            let is_set = value >> bit & 1 != 0;
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= u8::from(is_set) << (self.used % 8);
            }
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::entropy::{CodeTable, read_distribution};
    use super::*;

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let mut cases: Vec<(Vec<i16>, u32)> = CodeTable::ALL
            .map(CodeTable::predefined)
            .map(|(counts, accuracy)| (counts.to_vec(), accuracy))
            .into_iter()
            .collect();
        cases.push((vec![32], 5));
        cases.push((vec![0, 0, 0, 0, 0, 0, 0, 31, 0, 0, -1], 5));
        cases.push((vec![0, 30, 0, 0, 0, 1, 0, 1], 5));
        cases.push((vec![300, 0, 200, -1, -1, 10], 9));
        for (counts, accuracy) in cases {
            let mut bytes = describe(&counts, accuracy);
            let len = bytes.len();
            bytes.extend([0xA5; 8]);
            let (read, read_accuracy, rest) = read_distribution(&bytes, 255, 9, "table").unwrap();
            assert_eq!((&read, read_accuracy, bytes.len() - rest.len()), (&counts, accuracy, len));
        }
    }
}
