//! Coded chunks of words: RZE and RRE, RARE and RAZE, CLOG and HCLOG.

use crate::elements::{load, signed, zigzag};

/// A bitmap, lowest bit first: one bit for every item that `keep` says yes to; and the kept items.
pub(super) fn sift(bytes: &[u8], keep: impl Fn(usize, u8) -> bool) -> (Vec<u8>, Vec<u8>) {
    let mut map = vec![0; bytes.len().div_ceil(8)];
    let mut kept = Vec::new();
    for (i, &byte) in bytes.iter().enumerate() {
        if keep(i, byte) {
            map[i / 8] |= 1 << (i % 8);
            kept.push(byte);
        }
    }
    (map, kept)
}

/// Marks and keeps the bytes that differ from the one before; the one before the first is 0.
pub(super) fn changes(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    sift(bytes, |i, byte| byte != if i == 0 { 0 } else { bytes[i - 1] })
}

/// The stored form of a bitmap of `marks` for a full chunk of `chunk` bytes; nothing if it has no last level.
fn levels(marks: &[bool], chunk: usize, word: usize) -> Option<Vec<u8>> {
    let mut bits = vec![0; chunk / 8 / word];
    for (i, _) in marks.iter().enumerate().filter(|(_, mark)| **mark) {
        bits[i / 8] |= 1 << (i % 8);
    }
    let mut kept = Vec::new();
    for _ in 0..if word == 8 { 2 } else { 3 } {
        if bits.len() < 8 {
            return None;
        }
        let (map, own) = changes(&bits);
        kept.extend(own);
        bits = map;
    }
    Some([kept, bits].concat())
}

/// The whole words of a chunk, and the bytes after them.
fn words(chunk: &[u8], word: usize) -> (Vec<u64>, &[u8]) {
    let (whole, extra) = chunk.split_at(chunk.len() / word * word);
    (whole.chunks_exact(word).map(|bytes| load(bytes, word)).collect(), extra)
}

/// The words that `marks` keeps.
fn kept_words(words: &[u64], marks: &[bool], word: usize) -> Vec<u8> {
    let kept = words.iter().zip(marks).filter(|(_, mark)| **mark);
    kept.flat_map(|(x, _)| x.to_le_bytes()[..word].to_vec()).collect()
}

/// The length of a chunk.
fn tag(chunk: &[u8]) -> Vec<u8> {
    (chunk.len() as u16).to_le_bytes().to_vec()
}

/// Without words that are 0 (RZE), or like the one before (RRE).
pub(super) fn kept(chunk: &[u8], full: usize, word: usize, zeros: bool) -> Option<Vec<u8>> {
    let (words, extra) = words(chunk, word);
    if words.iter().all(|&x| x == 0) {
        return Some([extra, &tag(chunk)].concat());
    }
    let before = |i: usize| if i == 0 || zeros { 0 } else { words[i - 1] };
    let marks: Vec<bool> = (0..words.len()).map(|i| words[i] != before(i)).collect();
    Some([kept_words(&words, &marks, word), levels(&marks, full, word)?, extra.to_vec(), tag(chunk)].concat())
}

/// Numbers of a few bits, lowest bit first.
#[derive(Default)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    used: usize,
}

impl Bits {
    pub(super) fn push(&mut self, value: u64, width: u32) {
        for i in 0..width {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> i & 1) as u8) << (self.used % 8);
            }
            self.used += 1;
        }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn length(x: u64) -> u32 {
    64 - x.leading_zeros()
}

/// Short words have only their lower bits, if their upper bits are those of the word before (RARE), or 0 (RAZE).
pub(super) fn rare(chunk: &[u8], full: usize, word: usize, same: bool) -> Option<Vec<u8>> {
    let (words, extra) = words(chunk, word);
    let bits = 8 * word as u32;
    let need: Vec<u32> =
        (0..words.len()).map(|i| length(words[i] ^ if i == 0 || !same { 0 } else { words[i - 1] })).collect();
    if need.iter().all(|&n| n == 0) {
        return Some([extra, &[bits as u8 + 1], &tag(chunk)].concat());
    }
    let saved = |k: u32| u64::from(bits - k) * need.iter().filter(|&&n| n <= k).count() as u64;
    let most = (0..bits).map(saved).max().filter(|&most| most > 0)?;
    let keep = (0..bits).find(|&k| saved(k) == most)?;
    let marks: Vec<bool> = need.iter().map(|&n| n > keep).collect();
    let mut short = Bits::default();
    words.iter().zip(&marks).filter(|(_, mark)| !**mark).for_each(|(x, _)| short.push(*x, keep));
    let full_words = kept_words(&words, &marks, word);
    let levels = levels(&marks, full, word)?;
    Some([full_words, short.bytes(), levels, extra.to_vec(), vec![keep as u8], tag(chunk)].concat())
}

/// 32 groups, each with the width of its largest word; with `flags`, zigzag coded where that is shorter.
pub(super) fn clog(chunk: &[u8], word: usize, flags: bool) -> Vec<u8> {
    let (words, extra) = words(chunk, word);
    let mask = u64::MAX >> (64 - 8 * word);
    let groups: Vec<(bool, u32, Vec<u64>)> = (0..32)
        .map(|g| {
            let own = &words[g * words.len() / 32..(g + 1) * words.len() / 32];
            let width = own.iter().map(|x| length(*x)).max().unwrap_or(0);
            let coded: Vec<u64> = own.iter().map(|x| zigzag(signed(*x, word)) & mask).collect();
            let short = coded.iter().map(|x| length(*x)).max().unwrap_or(0);
            if flags && short < width { (true, short, coded) } else { (false, width, own.to_vec()) }
        })
        .collect();
    let mut out = Bits::default();
    if flags {
        for (flag, ..) in &groups {
            out.push(u64::from(*flag), 1);
        }
    }
    out.push(chunk.len() as u64, 16);
    for (_, width, _) in &groups {
        out.push(u64::from(*width), 4 + word.ilog2());
    }
    for (_, width, words) in &groups {
        for x in words {
            out.push(*x, *width);
        }
    }
    [out.bytes(), extra.to_vec()].concat()
}
