//! The alphabets of sequences: literal lengths, offsets, match lengths; the values of their codes, and the predefined
//! distributions.
//!
//! Reference: section 2.4, "Sequences section".
#![forbid(unsafe_code)]

use super::fse::CodeInfo;

/// An alphabet of codes: maximum code, maximum accuracy, predefined distribution.
pub(super) struct Alphabet {
    pub(super) name: &'static str,
    pub(super) max_code: u8,
    pub(super) max_accuracy: u32,
    pub(super) predefined: &'static [i16],
    pub(super) accuracy: u32,
    pub(super) meaning: fn(u8) -> CodeInfo,
}

pub(super) const LITERALS: Alphabet = Alphabet {
    name: "literal length table",
    max_code: 35,
    max_accuracy: 9,
    predefined: &[
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
    ],
    accuracy: 6,
    meaning: |code| of_codes(&LITERAL_CODES, code),
};
pub(super) const OFFSETS: Alphabet = Alphabet {
    name: "offset table",
    max_code: 28,
    max_accuracy: 8,
    predefined: &[1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1],
    accuracy: 5,
    meaning: |code| CodeInfo { base: 1 << (code & 31), extra: code & 31 },
};
pub(super) const MATCHES: Alphabet = Alphabet {
    name: "match length table",
    max_code: 52,
    max_accuracy: 9,
    predefined: &[
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ],
    accuracy: 6,
    meaning: |code| of_codes(&MATCH_CODES, code),
};

/// Baseline and extra bits of each literal length code.
const LITERAL_CODES: [(u32, u32); 36] =
    lengths(0, &[1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 16);
/// Baseline and extra bits of each match length code.
const MATCH_CODES: [(u32, u32); 53] =
    lengths(3, &[1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 32);

/// Codes below `direct` stand for themselves plus `base`. Each later code starts where the previous one ends, except
/// for one jump: from the code with 6 extra bits (7 for matches) on, baselines are powers of two (plus `base`).
const fn lengths<const N: usize>(base: u32, extra: &[u32], direct: usize) -> [(u32, u32); N] {
    let mut codes = [(0, 0); N];
    let mut i = 0;
    let mut next = base;
    while i < N {
        let bits = if i < direct { 0 } else { extra[i - direct] };
        if bits >= 6 && next < base + (1 << bits) {
            next = base + (1 << bits);
        }
        codes[i] = (next, bits);
        next += 1 << bits;
        i += 1;
    }
    codes
}

/// The value of a code, from a table of baselines and extra bits.
fn of_codes(codes: &[(u32, u32)], code: u8) -> CodeInfo {
    let (base, extra) = codes.get(usize::from(code)).copied().unwrap_or_default();
    CodeInfo { base, extra: extra as u8 }
}

#[cfg(test)]
mod tests {
    use super::super::fse::FseTable;
    use super::*;

    #[test]
    fn codes_have_the_baselines_of_the_reference() {
        let direct: Vec<u32> = LITERAL_CODES[..16].iter().map(|c| c.0).collect();
        assert_eq!(direct, (0..16).collect::<Vec<_>>());
        let literal: Vec<u32> = LITERAL_CODES[16..].iter().map(|c| c.0).collect();
        assert_eq!(literal[..10], [16, 18, 20, 22, 24, 28, 32, 40, 48, 64]);
        assert_eq!(literal[10..], [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]);
        let matched: Vec<u32> = MATCH_CODES[32..].iter().map(|c| c.0).collect();
        assert_eq!(matched[..12], [35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131]);
        assert_eq!(matched[12..], [259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539]);
    }

    #[test]
    fn predefined_distributions_fill_their_tables() {
        for a in [LITERALS, OFFSETS, MATCHES] {
            assert!(FseTable::new(a.predefined, a.accuracy, a.name, a.meaning).is_ok(), "{}", a.name);
            assert_eq!(a.predefined.len(), usize::from(a.max_code) + 1, "{}", a.name);
        }
    }
}
