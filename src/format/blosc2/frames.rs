//! A frame, and the frames that follow it in the same file.
//!
//! Limits: at most [`FRAMES`] frames in a file; all but the first are opened on first use.
#![forbid(unsafe_code)]

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde_json::Value;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::format::{
    Array, ArrayList, Arrays, Check, Container, Content, Directory, Entry, File, Found, Info, Node, Options,
    numbered_dimensions,
};
use crate::once::Once;
use crate::recent::Recent;
use crate::source::{Folder, Source};

use super::attributes;
use super::dimensions::dimensions;
use super::entries::{self, DecodedFrame};
use super::frame::{self, Frame};
use super::info;
use super::memory::ContainerMemory;
use super::metalayers::{self, Metalayers};

/// Maximum number of frames in one file.
const FRAMES: usize = 10_000;

/// The frames of a container that were opened last, by a number that the container gives them.
pub(super) type OpenFrames = Recent<u64, Arc<OpenFrame>>;

/// Frames that stay open, of some kilobytes each.
pub(super) const OPEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// A frame and its decoded content.
pub(super) struct OpenFrame {
    pub(super) frame: Arc<Frame>,
    pub(super) decoded: DecodedFrame,
}

impl OpenFrame {
    pub(super) fn new(frame: Frame) -> Self {
        let (chunks, array, gate) = (frame.chunks.clone(), frame.array.clone(), frame.gate.clone());
        let decoded = DecodedFrame::new(chunks, frame.header.typesize, array, frame.stored(), gate);
        let frame = Arc::new(frame);
        Self { decoded: decoded.about(attributes::about(&frame), attributes::is_of_mlarray(&frame)), frame }
    }

    /// As [`OpenFrame::new`], for [`OpenFrames`].
    pub(super) fn shared(frame: Frame) -> Arc<Self> {
        Arc::new(Self::new(frame))
    }

    /// `data.raw`, typed as the frame says.
    pub(super) fn data(&self) -> Result<File> {
        Ok(self.decoded.data(self.decoded.own_array())?.principal())
    }

    /// The array in it, called `name`.
    pub(super) fn found(&self, name: &[u8]) -> Result<Found> {
        Ok(Found::of(name.to_vec(), dimensions(&self.frame), &self.data()?))
    }

    /// Its entries; `array` is that of `data.npy`.
    fn entries(&self, array: Option<Array>) -> Result<Vec<Entry>> {
        let mut entries = self.decoded.entries(array)?;
        entries.extend(Metalayers::entries_of(&self.frame));
        Ok(entries)
    }

    /// Its checks; `name` is a prefix for messages.
    pub(super) fn checks(&self, name: &str) -> Vec<Check> {
        let mut checks = self.decoded.data.checks(name);
        for (part, error) in self.frame.unknown() {
            let run = Box::new(move || Err(error.clone()));
            checks.push(Check::Run { name: format!("{name}{part}"), bytes: 0, run });
        }
        for layer in self.frame.vlmetalayers.iter().flatten() {
            let (source, layer) = (self.frame.source.clone(), layer.clone());
            let name = format!("{name}metalayer {:?}", String::from_utf8_lossy(&layer.name));
            let memory = Arc::clone(&self.frame.chunks.item().memory);
            let run = move || {
                let value = metalayers::value_of(&source, &layer, &memory)?;
                value.verify(0, 0..value.total(), 1 << 20)
            };
            checks.push(Check::Run { name, bytes: 0, run: Box::new(run) });
        }
        checks
    }
}

/// A frame, and the frames that follow it in the same file.
pub(super) struct Frames {
    first: OpenFrame,
    /// The array of `data.npy` of the first frame.
    array: Option<Array>,
    memory: Arc<ContainerMemory>,
    rest: Once<Rest>,
}

/// The frames after the first.
#[derive(Default)]
struct Rest {
    frames: Vec<Arc<OpenFrame>>,
    /// Why no more frames can be found, if one is of an unknown version.
    unknown: Option<Error>,
}

impl Frames {
    /// Opens the container that starts with `frame`.
    pub(super) fn new(frame: Frame, options: &Options, memory: Arc<ContainerMemory>) -> Result<Self> {
        let first = OpenFrame::new(frame);
        let array = first.decoded.array(options)?;
        Ok(Self { first, array, memory, rest: Once::new() })
    }

    /// Whether a frame starts at `at`.
    ///
    /// # Errors
    /// Fails if that cannot be read now; the end of the file is not an error.
    pub(super) fn is_frame(source: &Source, at: FileOffset) -> Result<bool> {
        let mut magic = [0; frame::MAGIC.len()];
        match source.read(at, &mut magic, "magic") {
            Err(e) if e.is_lasting() => Ok(false),
            read => read.map(|()| magic == frame::MAGIC),
        }
    }

    fn has_more(&self) -> Result<bool> {
        Ok(!self.first.frame.header.sparse && Self::is_frame(&self.first.frame.source, self.first.frame.end())?)
    }

    /// The frames after the first, opened on first use.
    fn rest(&self) -> Result<&Rest> {
        let open = || {
            let mut frames: Vec<Arc<OpenFrame>> = Vec::new();
            let mut unknown = None;
            let source = &self.first.frame.source;
            let mut at = self.first.frame.end();
            while self.has_more()? && Self::is_frame(source, at)? {
                if frames.len() >= FRAMES {
                    let limit = to_u64(FRAMES);
                    return Err(Error::new(Kind::TooLarge { value: limit + 1, limit }, "number of frames").at(at));
                }
                let number = frames.len() + 1;
                match Frame::contiguous(source, at, &self.memory).map_err(|e| e.within(format_args!("frame {number}")))
                {
                    Err(e) if e.is_unknown() => {
                        unknown = Some(e);
                        break;
                    }
                    frame => {
                        let frame = frame?;
                        at = frame.end();
                        frames.push(Arc::new(OpenFrame::new(frame)));
                    }
                }
            }
            Ok(Rest { frames, unknown })
        };
        self.rest.get(open)
    }
}

/// `frames/N/`: the directory of a frame after the first, or of one in an archive.
pub(super) struct FrameDir(pub(super) Arc<OpenFrame>);

impl Directory for FrameDir {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.0.entries(self.0.decoded.own_array())?;
        let info = Value::Object(info::frame(&self.0.frame, &self.0.decoded));
        entries.insert(0, Entry::own("info.json", File::new(Content::json(&info))));
        Ok(entries)
    }
}

impl Container for Frames {
    fn info(&self) -> Info {
        let OpenFrame { frame, decoded } = &self.first;
        let mut details = info::frame(frame, decoded);
        if self.has_more().unwrap_or(true) {
            let count = |rest: &Rest| rest.unknown.is_none().then(|| rest.frames.len() + 1);
            let count = self.rest().map_or(Value::Null, |rest| count(rest).into());
            details.insert("frames".into(), count);
        }
        let file_size = if frame.header.sparse { frame.stored() } else { frame.source.len() };
        info::container(frame.header.version.to_string(), (file_size, decoded.len()), None, details)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.first.entries(self.array.clone())?;
        if self.has_more()? {
            let Rest { frames, unknown } = self.rest()?;
            let known = frames.iter().map(|frame| Node::Dir(Arc::new(FrameDir(frame.clone()))));
            let unknown = unknown.iter().map(entries::unknown_directory);
            let named = (1..).zip(known.chain(unknown)).map(|(i, dir)| Entry::named(format!("{i:06}"), "", dir));
            entries.push(Entry::own("frames", Node::dir(Vec::new(), named.collect())));
        }
        Ok(entries)
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        let rest = if self.has_more()? { &*self.rest()?.frames } else { &[] };
        let rank = self.array.as_ref().map_or(0, |array| array.shape.len());
        let names = dimensions(&self.first.frame).unwrap_or_else(|| numbered_dimensions(rank));
        let mut all = vec![(b"data".to_vec(), Some(names), self.first.decoded.data(self.array.clone())?.principal())];
        for (frame, number) in rest.iter().zip(1..) {
            let name = format!("frames/{number:06}").into_bytes();
            all.push((name, dimensions(&frame.frame), frame.data()?));
        }
        Ok(Some(Arc::new(ArrayList::new(all))))
    }

    fn checks(&self) -> Vec<Check> {
        let failed = |e: Error| Check::Run { name: "frames".into(), bytes: 0, run: Box::new(move || Err(e.clone())) };
        let mut checks = self.first.checks("");
        match self.rest() {
            Ok(rest) => {
                for (i, frame) in rest.frames.iter().enumerate() {
                    checks.extend(frame.checks(&format!("frame {}: ", i + 1)));
                }
                checks.extend(rest.unknown.clone().map(failed));
            }
            Err(e) => checks.push(failed(e)),
        }
        checks
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        vec![self.first.frame.source.clone()]
    }

    fn folder(&self) -> Option<Arc<Folder>> {
        self.first.frame.chunks.store().files()
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({:?})", self.first.frame.source.path())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::account::Account;
    use crate::platform::os_error;
    use crate::source::Origin;

    /// A file that cannot be read from `from` on for a while.
    #[derive(Debug)]
    struct Failing {
        bytes: Vec<u8>,
        from: u64,
        fails: Arc<AtomicBool>,
    }

    impl Origin for Failing {
        fn len(&self) -> u64 {
            to_u64(self.bytes.len())
        }

        fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
            if at.0 >= self.from && self.fails.load(Ordering::Relaxed) {
                return Err(Error::io(os_error(libc::EIO), what));
            }
            dst.copy_from_slice(&self.bytes[at.0 as usize..][..dst.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_frame_that_cannot_be_read_now_is_not_taken_for_none() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/blosc2/f01_blosclz_l1_nofilter_ts1.b2frame");
        let one = std::fs::read(path).unwrap();
        let (from, fails) = (to_u64(one.len()), Arc::new(AtomicBool::new(true)));
        let source = Source::of("two frames", Failing { bytes: one.repeat(2), from, fails: fails.clone() });
        let memory = ContainerMemory::new(Account::new(64 << 20, 0), 1 << 30, Arc::default());
        let first = Frame::contiguous(&source, FileOffset(0), &memory).unwrap();
        let frames = Frames::new(first, &Options::default(), memory).unwrap();

        assert!(matches!(frames.entries().err().unwrap().kind(), Kind::Io(_)));
        assert!(matches!(frames.arrays().err().unwrap().kind(), Kind::Io(_)));
        assert_eq!(frames.info().details["frames"], Value::Null);
        let is_failing = |check: &Check| matches!(check, Check::Run { run, .. } if run().is_err());
        assert!(frames.checks().iter().any(is_failing));

        fails.store(false, Ordering::Relaxed);
        assert_eq!(frames.info().details["frames"], 2);
        assert_eq!(frames.rest().unwrap().frames.len(), 1);
        assert!(frames.entries().is_ok() && !frames.checks().iter().any(is_failing));
    }
}
