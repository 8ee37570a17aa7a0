//! The directories of a mount, reached as the kernel knows them.
#![forbid(unsafe_code)]

use std::ffi::OsString;

use fuser::Errno;

use super::MirroredDir;
use super::nodes::Mark;
use super::outer::errno;
use crate::source::{Below, Seen};

impl MirroredDir {
    /// The mirrored directory `number`, if it is still the one whose rights the kernel has checked.
    pub(super) fn below(&self, number: u64) -> Result<Below, Errno> {
        let (path, marks) = self.state().nodes.chain(number).ok_or(Errno::ESTALE)?;
        let below = self.containers.top.below(&path).map_err(|e| errno(&e))?;
        let seen = below.stat_itself().map_err(|e| errno(&e))?;
        self.are_known(&[seen], marks.last().as_slice()).map(|()| below)
    }

    /// As [`MirroredDir::below`], if each directory on the way is too.
    pub(super) fn below_known(&self, number: u64) -> Result<Below, Errno> {
        let (path, marks) = self.state().nodes.chain(number).ok_or(Errno::ESTALE)?;
        let (below, seen) = self.containers.top.below_seeing(&path).map_err(|e| errno(&e))?;
        self.are_known(&seen, &marks.iter().collect::<Vec<_>>()).map(|()| below)
    }

    /// Fails unless the directories that were `seen` are the ones that `marks` identify.
    fn are_known(&self, seen: &[Seen], marks: &[&Mark]) -> Result<(), Errno> {
        let state = self.state();
        let mut all = seen.iter().zip(marks);
        let are_known = all.all(|(seen, mark)| state.nodes.mark(seen.identity(), seen.rights) == **mark);
        if are_known { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// The number of the directory that contains an inode of the mirrored one, and its name there.
    pub(super) fn around(&self, number: u64) -> Result<(u64, OsString), Errno> {
        let path = self.path(number)?;
        Ok((self.state().nodes.parent(number), path.file_name().unwrap_or_default().to_owned()))
    }
}
