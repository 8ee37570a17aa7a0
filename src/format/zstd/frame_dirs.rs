//! The directories of a Zstandard file: its frames, decoded (`chunks/`) and as stored (`stored/`), and what skippable frames
//! hold (`skippable/`).
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::bytes::{FileOffset, to_u64};
use crate::codec::zstd::{ContentStream, Cut, Frames, SkippableList};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Content, File, FileExtent, IndexedDir};
use crate::recent::Recent;
use crate::source::Source;

use super::frames_blob::FramesBlob;

/// `chunks/`: each frame decoded.
pub(super) struct DecodedFrames {
    frames: Arc<Frames>,
    data: Arc<FramesBlob>,
    data_ref: BlobRef,
    /// If the last frame is cut off.
    cut: Option<Cut>,
    /// Whether all frames state their sizes.
    all_known: bool,
    /// If some do not, the blobs of the frames accessed last.
    own: Recent<usize, BlobRef>,
}

/// Maximum number of frames with a blob that is kept, so that a repeated lookup finds its pieces in the cache.
const OWN: NonZeroUsize = NonZeroUsize::new(256).unwrap();

impl DecodedFrames {
    /// The frames `frames` of a file with the content `data`, which is cut off at `cut`.
    pub(super) fn new(frames: &Arc<Frames>, data: &Arc<FramesBlob>, data_ref: &BlobRef, cut: Option<&Cut>) -> Self {
        let cut = cut.filter(|cut| cut.is_frame).cloned();
        let all_known = frames.list.iter().all(|frame| frame.content.is_some()) && cut.is_none();
        let own = Recent::new(OWN);
        Self { frames: Arc::clone(frames), data: Arc::clone(data), data_ref: data_ref.clone(), cut, all_known, own }
    }

    /// Frame `index` as a separate blob: its size does not depend on the sizes of the frames before it.
    fn alone(&self, index: usize) -> BlobRef {
        let cut = self.cut.clone().filter(|_| index + 1 == self.frames.list.len());
        let make = || BlobRef::new(FramesBlob(ContentStream::new(Arc::clone(&self.frames), index, 1).with_cut(cut)));
        self.own.get_or_put(index, make)
    }
}

impl IndexedDir for DecodedFrames {
    fn count(&self) -> u64 {
        to_u64(self.frames.list.len())
    }

    fn suffix(&self) -> &'static str {
        ".raw"
    }

    fn file(&self, index: u64) -> Result<File> {
        let i = crate::bytes::to_usize(index, "frame")?;
        let frame = self.frames.entry(i)?;
        let part = || Ok(Content::Blob(self.data_ref.clone()).slice(self.data.0.range(i)?));
        let file = if !self.all_known {
            File::new(Content::Blob(self.alone(i)))
        } else if self.data.0.shares_piece(i)? {
            File::new(Content::Blob(self.alone(i))).part_of(part()?)
        } else {
            File::new(part()?)
        };
        let mut file = file
            .stored(frame.stored)
            .attr("codec", format_args!("zstd {}", frame.header.generation.name()))
            .attr("stored_size", frame.stored)
            .attr("offset", frame.at.0);
        if let Some(checksum) = frame.checksum {
            file = file.attr("checksum", format_args!("{checksum:#010x}"));
        }
        Ok(file)
    }
}

/// `stored/`: each frame as stored in the file.
pub(super) struct StoredFrames(pub(super) Arc<Frames>);

impl IndexedDir for StoredFrames {
    fn count(&self) -> u64 {
        to_u64(self.0.list.len())
    }

    fn suffix(&self) -> &'static str {
        ".bin"
    }

    fn file(&self, index: u64) -> Result<File> {
        let frame = self.0.entry(crate::bytes::to_usize(index, "frame")?)?;
        Ok(stretch(&self.0.source, frame.at, frame.stored))
    }
}

/// `skippable/`: the user data of skippable frames.
pub(super) struct SkippableFrames(pub(super) Arc<Source>, pub(super) Arc<SkippableList>);

impl IndexedDir for SkippableFrames {
    fn count(&self) -> u64 {
        to_u64(self.1.len())
    }

    fn suffix(&self) -> &'static str {
        ".bin"
    }

    fn file(&self, index: u64) -> Result<File> {
        let frame = self.1.get(crate::bytes::to_usize(index, "skippable frame")?);
        let frame = frame.ok_or_else(|| Error::new(crate::error::Kind::NotFound, "skippable frame"))?;
        let magic = 0x184D_2A50 | u32::from(frame.nibble);
        Ok(stretch(&self.0, frame.data_at(), frame.len).attr("magic", format_args!("{magic:#010x}")))
    }
}

fn stretch(source: &Arc<Source>, at: FileOffset, len: u64) -> File {
    let stored = FileExtent { source: Arc::clone(source), at, len, gate: None };
    File::new(Content::FileExtent(stored)).stored(len).attr("offset", at.0)
}
