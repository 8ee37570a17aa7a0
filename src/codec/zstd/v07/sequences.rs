//! The sequences section of a compressed block: tables, codes, and the stream of sequences.
//!
//! Reference: section 2.4, "Sequences section".
#![forbid(unsafe_code)]

use std::sync::{Arc, LazyLock};

use crate::error::{Error, Result};

use super::bits::Backward;
use super::fse::{Cell, Meaning, SEQUENCES, Table, read_distribution};

const WHAT: &str = "sequences section";

/// One alphabet of codes: how far it goes, how accurate its tables may be, its predefined distribution.
struct Alphabet {
    which: Which,
    name: &'static str,
    max_code: u8,
    max_accuracy: u32,
    predefined: &'static [i16],
    accuracy: u32,
    meaning: fn(u8) -> Meaning,
}

/// The tables of the predefined distributions: literal lengths, offsets, match lengths.
static PREDEFINED: LazyLock<[Result<Arc<Table>>; 3]> = LazyLock::new(|| {
    [LITERALS, OFFSETS, MATCHES].map(|a| Table::new(a.predefined, a.accuracy, a.name, a.meaning).map(Arc::new))
});

/// Which of [`PREDEFINED`] an alphabet has.
#[derive(Debug, Clone, Copy)]
enum Which {
    Literals = 0,
    Offsets = 1,
    Matches = 2,
}

/// What a code means, by its table of baselines and extra bits.
fn of_codes(codes: &[(u32, u32)], code: u8) -> Meaning {
    let (base, extra) = codes.get(usize::from(code)).copied().unwrap_or_default();
    Meaning { base, extra: extra as u8 }
}

const LITERALS: Alphabet = Alphabet {
    which: Which::Literals,
    name: "literal length table",
    max_code: 35,
    max_accuracy: 9,
    predefined: &[
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
    ],
    accuracy: 6,
    meaning: |code| of_codes(&LITERAL_CODES, code),
};
const OFFSETS: Alphabet = Alphabet {
    which: Which::Offsets,
    name: "offset table",
    max_code: 28,
    max_accuracy: 8,
    predefined: &[1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1],
    accuracy: 5,
    meaning: |code| Meaning { base: 1 << (code & 31), extra: code & 31 },
};
const MATCHES: Alphabet = Alphabet {
    which: Which::Matches,
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

/// Codes below `direct` stand for themselves plus `base`; the rest follow on with extra bits each, but for
/// one jump: from the code of 6 (7 for matches) bits on, a baseline is a power of two (plus `base`).
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

/// The three tables that a block may repeat from the one before.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    pub(super) literals: Option<Arc<Table>>,
    pub(super) offsets: Option<Arc<Table>>,
    pub(super) matches: Option<Arc<Table>>,
}

impl Tables {
    /// Reads the three descriptions of a dictionary, which come offsets first.
    ///
    /// # Errors
    /// When one is broken.
    pub(super) fn of_dictionary(src: &[u8]) -> Result<(Self, &[u8])> {
        let (offsets, src) = described(&OFFSETS, src)?;
        let (matches, src) = described(&MATCHES, src)?;
        let (literals, src) = described(&LITERALS, src)?;
        let [literals, offsets, matches] = [literals, offsets, matches].map(|table| Some(Arc::new(table)));
        Ok((Self { literals, offsets, matches }, src))
    }
}

fn described<'a>(alphabet: &Alphabet, src: &'a [u8]) -> Result<(Table, &'a [u8])> {
    let (counts, accuracy, rest) =
        read_distribution(src, usize::from(alphabet.max_code), alphabet.max_accuracy, alphabet.name)?;
    Ok((Table::new(&counts, accuracy, alphabet.name, alphabet.meaning)?, rest))
}

fn table<'a>(mode: u8, alphabet: &Alphabet, slot: &mut Option<Arc<Table>>, src: &'a [u8]) -> Result<&'a [u8]> {
    let (table, rest) = match mode {
        0 => {
            let [literals, offsets, matches] = &*PREDEFINED;
            let table = match alphabet.which {
                Which::Literals => literals,
                Which::Offsets => offsets,
                Which::Matches => matches,
            };
            (table.clone()?, src)
        }
        1 => {
            let (&code, rest) =
                src.split_first().ok_or_else(|| Error::corrupt("its code is missing", alphabet.name))?;
            if code > alphabet.max_code {
                return Err(Error::corrupt(format!("code {code}, at most {}", alphabet.max_code), alphabet.name));
            }
            (Arc::new(Table::constant((alphabet.meaning)(code))), rest)
        }
        2 if slot.is_some() => return Ok(src),
        2 => return Err(Error::corrupt("repeats a table that was never given", alphabet.name)),
        _ => {
            let (table, rest) = described(alphabet, src)?;
            (Arc::new(table), rest)
        }
    };
    *slot = Some(table);
    Ok(rest)
}

/// One step of execution: copy literals, then copy from `offset` back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) literals: usize,
    pub(super) matched: usize,
    pub(super) offset: usize,
}

/// The last three offsets used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recent(pub(super) [usize; 3]);

impl Recent {
    /// What a frame starts with.
    pub(super) const INITIAL: Self = Self([1, 4, 8]);

    /// Turns an offset value (at least 1) into an offset.
    #[inline]
    fn resolve(&mut self, value: usize, without_literals: bool) -> usize {
        let [a, b, c] = self.0;
        let entry = match value {
            1 | 2 if without_literals => 3 - value,
            _ => value,
        };
        self.0 = match entry {
            1 => [a, b, c],
            2 => [b, a, c],
            3 => [c, a, b],
            _ => [value - 3, a, b],
        };
        self.0[0]
    }
}

/// Reads the section and hands each sequence to `run`, which says whether to go on; gives the sequence at which it
/// did not.
///
/// # Errors
/// When the section is broken.
pub(super) fn read(
    src: &[u8],
    tables: &mut Tables,
    recent: &mut Recent,
    mut run: impl FnMut(Sequence) -> bool,
) -> Result<Option<Sequence>> {
    let short = || Error::corrupt("it runs past the end of the block", WHAT);
    let (&first, rest) = src.split_first().ok_or_else(short)?;
    let (count, rest) = match first {
        0..128 => (usize::from(first), rest),
        128..255 => {
            let (&low, rest) = rest.split_first().ok_or_else(short)?;
            ((usize::from(first) - 128) << 8 | usize::from(low), rest)
        }
        255 => {
            let (bytes, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
            (usize::from(u16::from_le_bytes(*bytes)) + 0x7F00, rest)
        }
    };
    if count == 0 {
        return Ok(None);
    }
    let (&modes, rest) = rest.split_first().ok_or_else(short)?;
    let rest = table(modes >> 6, &LITERALS, &mut tables.literals, rest)?;
    let rest = table(modes >> 4 & 3, &OFFSETS, &mut tables.offsets, rest)?;
    let rest = table(modes >> 2 & 3, &MATCHES, &mut tables.matches, rest)?;
    let (Some(literals), Some(offsets), Some(matches)) = (&tables.literals, &tables.offsets, &tables.matches) else {
        return Err(short());
    };
    let (Some(literal_cells), Some(offset_cells), Some(match_cells)) =
        (literals.cells(), offsets.cells(), matches.cells())
    else {
        return Err(short());
    };
    // A state is below the size of its table by construction; the mask says so to the compiler.
    let cell = |cells: &[Cell; SEQUENCES], state: usize| cells[state & (SEQUENCES - 1)];
    let mut bits = Backward::new(rest, WHAT)?;
    bits.refill();
    let mut ll = literals.start(&mut bits);
    let mut of = offsets.start(&mut bits);
    let mut ml = matches.start(&mut bits);
    let mut history = *recent;
    for left in (0..count).rev() {
        let (l, o, m) = (cell(literal_cells, ll), cell(offset_cells, of), cell(match_cells, ml));
        bits.refill();
        let value = o.meaning.base as usize + bits.read(u32::from(o.meaning.extra)) as usize;
        let matched = m.meaning.base as usize + bits.read(u32::from(m.meaning.extra)) as usize;
        // 28 + 16 bits at most; 16 more and 26 of the states may need another look.
        if o.meaning.extra + m.meaning.extra + l.meaning.extra > 30 {
            bits.refill();
        }
        let run_of = l.meaning.base as usize + bits.read(u32::from(l.meaning.extra)) as usize;
        if left > 0 {
            ll = l.next(&mut bits);
            ml = m.next(&mut bits);
            of = o.next(&mut bits);
        }
        if bits.is_overread() {
            return Err(Error::corrupt("the stream of sequences ends early", WHAT));
        }
        let sequence = Sequence { literals: run_of, matched, offset: history.resolve(value, run_of == 0) };
        if !run(sequence) {
            return Ok(Some(sequence));
        }
    }
    *recent = history;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_have_the_baselines_of_the_reference() {
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
    fn the_predefined_distributions_fill_their_tables() {
        for a in [LITERALS, OFFSETS, MATCHES] {
            assert!(Table::new(a.predefined, a.accuracy, a.name, a.meaning).is_ok(), "{}", a.name);
            assert_eq!(a.predefined.len(), usize::from(a.max_code) + 1, "{}", a.name);
        }
    }

    #[test]
    fn offsets_come_back_as_the_draft_says() {
        // value, without literals, offset, history afterwards (before: 1 4 8)
        for (value, bare, offset, after) in [
            (10, false, 7, [7, 1, 4]),
            (1, false, 1, [1, 4, 8]),
            (2, false, 4, [4, 1, 8]),
            (3, false, 8, [8, 1, 4]),
            (1, true, 4, [4, 1, 8]),
            (2, true, 1, [1, 4, 8]),
            (3, true, 8, [8, 1, 4]),
        ] {
            let mut recent = Recent::INITIAL;
            assert_eq!((recent.resolve(value, bare), recent.0), (offset, after), "{value} {bare}");
        }
    }

    #[test]
    fn broken_sections_are_refused() {
        let cases: &[(&str, &[u8])] = &[
            ("nothing", &[]),
            ("half a count", &[200]),
            ("no modes", &[1]),
            ("an offset code of 200", &[1, 0b0101_0100, 0, 200, 0, 1]),
            ("a repeated table", &[1, 0b1000_0000, 1]),
            ("no stream", &[1, 0]),
            ("a stream that ends early", &[1, 0, 1]),
        ];
        for (name, src) in cases {
            assert!(read(src, &mut Tables::default(), &mut Recent::INITIAL.clone(), |_| true).is_err(), "{name}");
        }
        assert!(read(&[0], &mut Tables::default(), &mut Recent::INITIAL.clone(), |_| true).is_ok());
    }
}
