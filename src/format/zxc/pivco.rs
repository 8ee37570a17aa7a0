//! `PivCo` sections: Huffman codes with bits stored by tree node, not by symbol (version 7 on).
//!
//! Reference: section 9 of the ZXC reference.
//!
//! Every inner node of the code tree has a run of bits, one for each symbol that passes through it, that says whether
//! the symbol goes left or right. Decoding merges from the leaves up: the symbols of a node are those of its children,
//! in the order given by its bits. A subtree with all leaves at the same depth D >= 2 (a *flat root*) has a single run
//! of D bits per symbol instead.
//!
//! The tree needs no pointers: codes are canonical, so on each level the leaves come first, and the
//! children of inner node `j` are nodes `2j` and `2j + 1` of the next level.
#![forbid(unsafe_code)]

use crate::codec::bitmap_merge::{self, Side};

use super::decode_error::DecodeError;
use super::huffman_lengths::{HuffmanLengths, MAX_BITS};

const SHORT: DecodeError = DecodeError::new("a run extends past the end of the section", "PivCo section");
const NO_SUCH_SYMBOL: DecodeError = DecodeError::new("a code without a symbol", "PivCo section");

/// A node of the code tree.
#[derive(Debug, Clone, Copy, Default)]
struct CodeNode {
    /// Number of symbols that pass through it.
    count: usize,
    /// Start of its run in the section or of its symbols in the buffer of the level, depending on the pass.
    run: usize,
    /// Start of its symbols among the symbols of its level.
    start: usize,
    /// The depth of its leaves, if all have the same.
    flat: Option<u8>,
    /// Whether it is below a flat root, and so has neither a run nor symbols.
    covered: bool,
}

/// One level of the tree: first `leaves` leaves, then inner nodes.
#[derive(Debug, Clone, Copy, Default)]
struct CodeLevel {
    first: usize,
    leaves: usize,
    /// Index of the first leaf in code order.
    symbol: usize,
}

/// The tree of a code: at most 256 leaves and 255 inner nodes.
struct CodeTree {
    nodes: [CodeNode; 512],
    levels: [CodeLevel; MAX_BITS + 2],
    depth: usize,
}

impl CodeTree {
    /// Builds the tree of a complete code of at least two symbols.
    fn new(lengths: &HuffmanLengths) -> Self {
        let mut levels = [CodeLevel::default(); MAX_BITS + 2];
        let (mut first, mut width, mut symbol, mut depth) = (0, 1, 0, 0);
        for (d, level) in levels.iter_mut().enumerate() {
            let leaves = if d <= MAX_BITS { lengths.count(d) } else { 0 };
            *level = CodeLevel { first, leaves, symbol };
            if width > 0 {
                depth = d;
            }
            (first, symbol) = (first + width, symbol + leaves);
            width = 2 * (width - leaves);
        }
        let mut tree = Self { nodes: [CodeNode::default(); 512], levels, depth };
        for d in (0..=depth).rev() {
            for i in tree.level(d) {
                tree.nodes[i].flat = match tree.children(d, i) {
                    None => Some(0),
                    Some((l, r)) => match (tree.nodes[l].flat, tree.nodes[r].flat) {
                        (Some(a), Some(b)) if a == b => Some(a + 1),
                        _ => None,
                    },
                };
            }
        }
        tree
    }

    /// The range of nodes of level `d`.
    fn level(&self, d: usize) -> std::ops::Range<usize> {
        self.levels[d].first..self.levels[d + 1].first
    }

    /// The children of node `i` on level `d`; `None` for a leaf.
    fn children(&self, d: usize, i: usize) -> Option<(usize, usize)> {
        let inner = i.checked_sub(self.levels[d].first + self.levels[d].leaves)?;
        let left = self.levels[d + 1].first + 2 * inner;
        Some((left, left + 1))
    }

    /// Locates the run of every node, from the root down, for `n` symbols.
    fn count(&mut self, runs: &[u8], n: usize) -> Result<(), DecodeError> {
        self.nodes[0].count = n;
        let mut at = 0;
        for d in 0..=self.depth {
            let mut start = 0;
            for i in self.level(d) {
                let Some((l, r)) = self.children(d, i) else { continue };
                let node = self.nodes[i];
                if node.covered || node.flat.is_some_and(|depth| depth >= 2) {
                    self.nodes[l].covered = true;
                    self.nodes[r].covered = true;
                }
                if node.covered {
                    continue;
                }
                let bits = match node.flat {
                    Some(depth @ 2..) => node.count * usize::from(depth),
                    _ => node.count,
                };
                let run = runs.get(at..).and_then(|r| r.get(..bits.div_ceil(8))).ok_or(SHORT.plus(runs.len()))?;
                if bits == node.count {
                    let ones = bitmap_merge::ones(run, bits);
                    self.nodes[l].count = bits - ones;
                    self.nodes[r].count = ones;
                }
                (self.nodes[i].run, self.nodes[i].start) = (at, start);
                at += run.len();
                start += node.count;
            }
        }
        Ok(())
    }
}

/// Decodes `runs`, the section after its code lengths, into `dst`. The two buffers are scratch space and may grow.
///
/// # Errors
/// Fails if a run exceeds the section, or if there is a single symbol and a bit is not 0.
pub(super) fn decode(
    lengths: &HuffmanLengths,
    runs: &[u8],
    dst: &mut [u8],
    buffers: &mut [Vec<u8>; 2],
) -> Result<(), DecodeError> {
    let symbols = lengths.symbols();
    if lengths.is_single() {
        let bits = runs.get(..dst.len().div_ceil(8)).ok_or(SHORT.plus(runs.len()))?;
        if bitmap_merge::ones(bits, dst.len()) != 0 {
            return Err(NO_SUCH_SYMBOL);
        }
        dst.fill(symbols[0]);
        return Ok(());
    }
    let mut tree = CodeTree::new(lengths);
    tree.count(runs, dst.len())?;
    for buffer in buffers.iter_mut() {
        buffer.resize(buffer.len().max(dst.len()), 0);
    }
    let [mut below, mut here] = buffers.each_mut();
    for d in (0..tree.depth).rev() {
        let out: &mut [u8] = if d == 0 { &mut *dst } else { here };
        for i in tree.level(d) {
            let (node, Some((l, r))) = (tree.nodes[i], tree.children(d, i)) else { continue };
            if node.covered || node.count == 0 {
                continue;
            }
            let out = &mut out[node.start..][..node.count];
            if let Some(depth @ 2..) = node.flat {
                let leaf = first_leaf(&tree, d, i, depth);
                let table = &symbols[leaf..][..1 << depth];
                bitmap_merge::unpack(&runs[node.run..], u32::from(depth), table, out);
                continue;
            }
            let side = |child: usize| {
                let (level, node) = (tree.levels[d + 1], tree.nodes[child]);
                match child - level.first {
                    leaf if leaf < level.leaves => Side::Byte(symbols[level.symbol + leaf]),
                    _ => Side::Bytes(&below[node.start..][..node.count]),
                }
            };
            bitmap_merge::merge(&runs[node.run..], side(l), side(r), out);
        }
        (below, here) = (here, below);
    }
    Ok(())
}

/// Index in code order of the leftmost leaf `depth` levels below node `i` of level `d`.
fn first_leaf(tree: &CodeTree, d: usize, i: usize, depth: u8) -> usize {
    let mut node = i;
    for level in d..d + usize::from(depth) {
        node = tree.children(level, node).map_or(node, |(left, _)| left);
    }
    let bottom = tree.levels[d + usize::from(depth)];
    bottom.symbol + (node - bottom.first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::zxc::huffman_lengths::BYTES;

    fn lengths(codes: &[(u8, u8)]) -> HuffmanLengths {
        let mut nibbles = [0_u8; BYTES];
        for &(symbol, bits) in codes {
            nibbles[usize::from(symbol) / 2] |= bits << (4 * (symbol & 1));
        }
        HuffmanLengths::parse(&nibbles, 11).unwrap()
    }

    fn check(codes: &[(u8, u8)], runs: &[u8], n: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0xAA; n];
        decode(&lengths(codes), runs, &mut dst, &mut Default::default()).map(|()| dst)
    }

    #[test]
    fn the_example_of_the_reference_decodes() {
        let codes = [(b'A', 1), (b'B', 3), (b'C', 3), (b'D', 3), (b'R', 3)];
        assert_eq!(check(&codes, &[0x56, 0x03, 0x6C, 0x0C], 11).unwrap(), b"ABRACADABRA");
        assert_eq!(check(&codes, &[0x56, 0x03, 0x6C], 11), Err(SHORT.plus(3)));
        assert_eq!(check(&codes, &[0x56], 11), Err(SHORT.plus(1)));
    }

    #[test]
    fn a_single_symbol_takes_zero_bits_only() {
        assert_eq!(check(&[(b'x', 1)], &[0, 0], 9).unwrap(), [b'x'; 9]);
        assert_eq!(check(&[(b'x', 1)], &[0, 2], 9).unwrap(), [b'x'; 9]);
        assert_eq!(check(&[(b'x', 1)], &[0, 1], 9), Err(NO_SUCH_SYMBOL));
        assert_eq!(check(&[(b'x', 1)], &[0], 9), Err(SHORT.plus(1)));
    }

    #[test]
    fn a_chain_and_a_pair_of_leaves_decode() {
        // a = 0, b = 10, c = 110, d = 111: no flat root, three bitmap nodes.
        let codes = [(b'a', 1), (b'b', 2), (b'c', 3), (b'd', 3)];
        // "abcd": root 0 1 1 1; below 0 1 1; below 0 1.
        assert_eq!(check(&codes, &[0b1110, 0b110, 0b10], 4).unwrap(), b"abcd");
        assert_eq!(check(&[(b'y', 1), (b'z', 1)], &[0b101], 3).unwrap(), b"zyz");
    }
}
