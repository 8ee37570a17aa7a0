//! The tree of rectangles: which pixels have a code, and the highest bit of each code.
//!
//! Section A describes the tree level by level, and the nodes of a level in depth-first order. So one walk of the tree
//! needs a cursor for each level and no list of nodes: it visits the nodes of every level in the order of their bits.
//! Where a level starts is known once the levels above it have been walked, so there is one walk per level; most of
//! the nodes are in the last ones. A node without codes has no children in the section, and is not walked.
#![forbid(unsafe_code)]

use super::bits::Bits;
use crate::account::decode_budget;
use crate::error::{Error, Result};
use crate::format::fzm::stream::ByteStream;

/// Some pixels, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) w: u32,
    pub(super) h: u32,
}

impl Rectangle {
    /// Whether it is one pixel.
    fn is_pixel(self) -> bool {
        self.w == 1 && self.h == 1
    }

    /// The number of pixels.
    pub(super) fn area(self) -> u64 {
        u64::from(self.w) * u64::from(self.h)
    }

    /// The parts that it splits into, in the order of the format.
    fn children(self) -> impl Iterator<Item = Self> {
        let Self { x, y, w, h } = self;
        let (right, below) = (w / 2, h / 2);
        let (left, above) = (w - right, h - below);
        [
            Self { x: x + left, y: y + above, w: right, h: below },
            Self { x, y: y + above, w: left, h: below },
            Self { x: x + left, y, w: right, h: above },
            Self { x, y, w: left, h: above },
        ]
        .into_iter()
        .filter(|child| child.w > 0 && child.h > 0)
    }

    /// The number of levels below it.
    fn depth(self) -> usize {
        let halvings = |n: u32| (u32::BITS - (n - 1).leading_zeros()) as usize;
        halvings(self.w).max(halvings(self.h))
    }
}

/// The visits of a walk, in depth-first order.
pub(super) trait Visit {
    /// Before the children of `node`, which has a code.
    fn enter(&mut self, node: Rectangle);
    /// A pixel that has a code, and the highest bit of that.
    fn pixel(&mut self, x: u32, y: u32, onset: u32) -> Result<()>;
    /// After the children of `node`.
    fn leave(&mut self, node: Rectangle) -> Result<()>;
}

/// Counts pixels that have a code.
pub(super) struct Count(pub(super) u64);

impl Visit for Count {
    #[inline]
    fn enter(&mut self, _: Rectangle) {}

    #[inline]
    fn pixel(&mut self, _: u32, _: u32, _: u32) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    #[inline]
    fn leave(&mut self, _: Rectangle) -> Result<()> {
        Ok(())
    }
}

/// The tree of a stream.
pub(super) struct Tree<'a> {
    stream: &'a dyn ByteStream,
    root: Rectangle,
    /// The highest bit of any code.
    top: u32,
    /// Bits of section A.
    bits: u64,
    /// The position where each level starts.
    starts: Vec<u64>,
}

impl<'a> Tree<'a> {
    /// Finds the levels of the tree in the first `bits` bits of `stream`.
    ///
    /// # Errors
    /// Fails if a node is invalid, or the bits end.
    pub(super) fn new(stream: &'a dyn ByteStream, [nx, ny]: [u32; 2], top: u32, bits: u64) -> Result<Self> {
        let root = Rectangle { x: 0, y: 0, w: nx, h: ny };
        let mut tree = Self { stream, root, top, bits, starts: vec![0] };
        for level in 0..root.depth() {
            let end = tree.walk(&mut Count(0))?;
            if tree.starts.get(level) == Some(&end) {
                // No node of this level is described.
                break;
            }
            tree.starts.push(end);
        }
        Ok(tree)
    }

    /// Visits all nodes of the levels found. Returns the position after the last of these.
    ///
    /// # Errors
    /// As [`Tree::new`]; errors of `visit`.
    pub(super) fn walk(&self, visit: &mut impl Visit) -> Result<u64> {
        let level = |&start: &u64| Bits::new(self.stream, start, self.bits, "section A");
        let levels = self.starts.iter().map(level).collect::<Result<Vec<Bits>>>()?;
        let mut walk = TreeWalk { levels, nodes: 0 };
        walk.node(self.root, 0, self.top, visit)?;
        Ok(walk.levels.last().map_or(0, Bits::position))
    }
}

/// Nodes that are charged together.
const CHARGED: u64 = 1 << 12;
/// Bytes that are decoded elsewhere in the time of a node.
const COST: u64 = 32;

struct TreeWalk<'a> {
    /// The next node of each level.
    levels: Vec<Bits<'a>>,
    nodes: u64,
}

impl TreeWalk<'_> {
    /// Visits a node and its descendants; its parent's highest bit is `above`. There are at most 32 levels.
    fn node(&mut self, node: Rectangle, level: usize, above: u32, visit: &mut impl Visit) -> Result<()> {
        let Some(bits) = self.levels.get_mut(level) else { return Ok(()) };
        self.nodes += 1;
        if self.nodes.is_multiple_of(CHARGED) {
            decode_budget::charge(CHARGED * COST)?;
        }
        let within = |e: Error| e.within(format!("node {} x {} at {}, {}", node.w, node.h, node.x, node.y));
        let zeros = bits.zeros(above + 1).map_err(within)?;
        let Some(onset) = above.checked_sub(zeros) else { return Ok(()) };
        if node.is_pixel() {
            return visit.pixel(node.x, node.y, onset);
        }
        visit.enter(node);
        node.children().try_for_each(|child| self.node(child, level + 1, onset, visit))?;
        visit.leave(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_splits_into_quarters_from_the_last_to_the_first() {
        let rectangle = |x, y, w, h| Rectangle { x, y, w, h };
        let parts = |r: Rectangle| r.children().collect::<Vec<_>>();
        assert_eq!(
            parts(rectangle(10, 20, 5, 3)),
            [rectangle(13, 22, 2, 1), rectangle(10, 22, 3, 1), rectangle(13, 20, 2, 2), rectangle(10, 20, 3, 2)]
        );
        assert_eq!(parts(rectangle(0, 0, 1, 3)), [rectangle(0, 2, 1, 1), rectangle(0, 0, 1, 2)]);
        for (w, h, depth) in [(1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 4, 2), (5, 2, 3), (1, (1 << 31) - 1, 31)] {
            assert_eq!(rectangle(0, 0, w, h).depth(), depth, "{w} x {h}");
        }
    }
}
