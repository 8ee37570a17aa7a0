//! The tree of the members: one node for each, in lists that spill.
//!
//! Limits: 40 bytes for a node, and its name, charged to the account. At most [`DEPTH`] directories above a member; names
//! of at most 16 KiB.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::{Account, Records, Text};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};

use super::node::{NONE, NodeKind, TarNode, halves};

/// Maximum number of directories above a member.
pub(super) const DEPTH: usize = 256;
/// The longest name or target.
pub(super) const NAME: usize = 16 << 10;
/// Name of the lists in errors.
pub(super) const WHAT: &str = "members of the archive";
/// The root, which is the first node.
pub(super) const ROOT: u32 = 0;
/// The members of an archive as a tree.
#[derive(Debug)]
pub(super) struct Index {
    nodes: Records<4>,
    /// The name of each node.
    names: Text,
    /// The targets of symbolic links.
    targets: Text,
    /// How many members there are.
    pub(super) members: u64,
    /// Of these, how many are not shown.
    pub(super) left_out: u64,
    /// Bytes of all files.
    pub(super) bytes: u64,
    /// Why there may be more members.
    pub(super) damage: Option<Error>,
}

impl Index {
    /// Without nodes yet.
    pub(super) fn new(account: &Account) -> Self {
        let (names, targets) = (Text::new(account, WHAT), Text::new(account, WHAT));
        let nodes = Records::new(account, WHAT);
        Self { nodes, names, targets, members: 0, left_out: 0, bytes: 0, damage: None }
    }

    /// Adds a node.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn push(&mut self, node: &TarNode, name: &[u8]) -> Result<()> {
        self.names.push(name)?;
        self.nodes.push(node.encode())
    }

    /// Adds the target of a symbolic link; returns its number.
    ///
    /// # Errors
    /// As [`Index::push`].
    pub(super) fn push_target(&mut self, target: &[u8]) -> Result<u64> {
        self.targets.push(target).map(|()| to_u64(self.targets.len()).saturating_sub(1))
    }

    /// Marks it as complete.
    ///
    /// # Errors
    /// As [`Index::push`].
    pub(super) fn finish(&mut self) -> Result<()> {
        self.nodes.finish()?;
        self.names.finish()?;
        self.targets.finish()
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Node `number`.
    pub(super) fn node(&self, number: u32) -> Option<TarNode> {
        self.nodes.get(usize::try_from(number).ok()?).map(TarNode::decode)
    }

    pub(super) fn name(&self, number: u32) -> &[u8] {
        usize::try_from(number).ok().and_then(|number| self.names.bytes(number)).unwrap_or_default()
    }

    /// The target of the symbolic link `node`.
    pub(super) fn target(&self, node: &TarNode) -> &[u8] {
        usize::try_from(node.at).ok().and_then(|number| self.targets.bytes(number)).unwrap_or_default()
    }

    /// The children of the directory `dir`, in the order of the archive.
    pub(super) fn children(&self, dir: u32) -> impl Iterator<Item = (u32, TarNode)> {
        let mut at = self.node(dir).filter(|node| node.kind == NodeKind::Dir).map_or(NONE, |node| halves(node.at).0);
        std::iter::from_fn(move || {
            let (number, node) = (at, self.node(at)?);
            at = node.next;
            Some((number, node))
        })
    }

    /// How many directories are above the node `number`.
    pub(super) fn depth(&self, number: u32) -> usize {
        let mut at = number;
        let up = || {
            let parent = self.node(at).filter(|_| at != ROOT)?.parent;
            at = parent;
            Some(parent)
        };
        std::iter::from_fn(up).take(DEPTH.saturating_add(1)).count()
    }

    pub(super) fn set(&mut self, number: u32, node: &TarNode) -> Result<()> {
        self.nodes.set(to_usize(number.into(), WHAT)?, node.encode())
    }
}

/// Whether a node of this name is shown as a directory.
pub(super) type IsDir<'a> = &'a dyn Fn(&TarNode, &[u8]) -> bool;
