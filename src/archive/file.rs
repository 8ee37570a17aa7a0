//! A file of an archive, readable at any offset from any thread.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::copy::{SequentialFetch, parts, steps};
use super::direct::Direct;
use super::{Archive, Array, CopyError, contained};
use crate::bytes::{to_u64, to_usize};
use crate::cache::{Cache, Readahead, announce};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Content, Need, npy};
use crate::limits::zeroed;
use crate::tree::{Ino, OpenFile};
use crate::view::{Extent, View};

/// An open file of an archive. Clones share state; it can be read from any number of threads at once.
///
/// [`Read`] and [`Seek`] read it from a position that a clone does not share, for any code that takes a reader:
///
/// ```
/// use std::io::{BufRead, BufReader, Seek, SeekFrom};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fzm/lq1d_f32_noa_rle.fzm");
/// let mut file = fzmfs::Archive::open(path, &fzmfs::Options::default())?.file("info.json")?;
/// file.seek(SeekFrom::Start(2))?;
/// assert_eq!(BufReader::new(file).lines().next().unwrap()?, "  \"format\": \"fzm\",");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct File {
    inner: Arc<FileInner>,
    /// Position of the next [`Read`].
    position: u64,
}

struct FileInner {
    archive: Archive,
    path: String,
    open: Arc<OpenFile>,
    view: Arc<View>,
    /// Predicts the next reads from earlier ones.
    ahead: Mutex<Readahead>,
}

impl File {
    pub(super) fn open(archive: &Archive, ino: Ino, path: &str) -> Result<Self> {
        let cache = archive.cache();
        let open = archive.tree().file(ino)?;
        let view = open.view(&**cache)?;
        let ahead = Mutex::new(Readahead::new(cache.workers(), cache.budget()));
        let inner = Arc::new(FileInner { archive: archive.clone(), path: path.to_owned(), open, view, ahead });
        Ok(Self { inner, position: 0 })
    }

    /// The path the file was opened by.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.inner.view.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads from `offset` into `buffer` and returns the number of bytes read: less than the buffer's length only at
    /// the end of the file, and 0 past the end. Decodes only the pieces that the range needs, and of them, if the
    /// format allows, only parts for a short range that does not continue the previous read; decodes on all threads if
    /// the range spans many pieces or continues the previous read, and straight into the buffer if there are many
    /// pieces of one stream.
    ///
    /// # Errors
    /// Fails if the data in the range is broken (the error names the field and the byte of the container), or with
    /// [`Kind::Changed`]. The contents of the buffer are then unspecified.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.len().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let (buffer, _) = buffer.split_at_mut(count);
        self.read_exact_at(offset.min(self.len()), buffer).map(|()| count)
    }

    /// Reads exactly `buffer.len()` bytes, otherwise as [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`]; [`Kind::Truncated`] if the file ends before the buffer is full.
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (need, have) = (to_u64(buffer.len()), self.len().saturating_sub(offset));
        if need > have {
            return Err(Error::new(Kind::Truncated { need, have }, "range of a file"));
        }
        self.read_range(offset, buffer)?;
        self.inner.archive.confirm_shared()
    }

    fn read_range(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let FileInner { archive, view, ahead, .. } = &*self.inner;
        let (cache, need) = (archive.cache(), to_u64(buffer.len()));
        // An error is found again, and then reported as for every other read.
        if let Some(direct) = Direct::new(view, &(offset..offset + need))
            && announce_missing(cache, view, offset..offset + need, Need::Now).is_ok()
            && direct.decode(archive, buffer.get_mut(direct.bytes.clone()).unwrap_or_default()).is_ok()
        {
            let (head, rest) = buffer.split_at_mut(direct.bytes.start);
            let (_, tail) = rest.split_at_mut(direct.bytes.end - direct.bytes.start);
            fill(cache, view, offset, head, ahead, true)?;
            return fill(cache, view, offset + to_u64(direct.bytes.end), tail, ahead, true);
        }
        let is_random = ahead.lock().unwrap_or_else(PoisonError::into_inner).is_random(&(offset..offset + need));
        fill(cache, view, offset, buffer, ahead, is_random)
    }

    /// The file as its format describes it.
    pub(super) fn described(&self) -> &format::File {
        &self.inner.open.file
    }

    /// Fills `buffer` with all of `content`, which describes a part of this file and has the length of the buffer.
    pub(super) fn read_content(&self, content: &Content, buffer: &mut [u8]) -> Result<()> {
        let cache = self.inner.archive.cache();
        let view = contained("file", || View::new(content, &**cache).map(Arc::new))?;
        if view.len() != to_u64(buffer.len()) {
            return Err(Error::corrupt("the buffer has another length", "part of a file"));
        }
        let ahead = Mutex::new(Readahead::new(cache.workers(), cache.budget()));
        if view.len() > AT_ONCE.start {
            // The caller decodes the first piece meanwhile.
            let mut hints = cache.prefetch_batch();
            let mut is_first = true;
            view.pieces(0..view.len().min(AT_ONCE.end), &mut |blob, piece, size| {
                std::mem::take(&mut is_first) || hints.add(blob, piece, size)
            })?;
        }
        fill(cache, &view, 0, buffer, &ahead, true)?;
        self.inner.archive.confirm_shared()
    }

    /// Bytes that it takes in the container; 0 if it shares all of them with other files.
    pub fn stored(&self) -> u64 {
        self.inner.open.file.stored
    }

    /// The container's attribute `name` of it, as the extended attributes of a mounted file have it.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let attrs = &self.inner.open.file.attrs;
        attrs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    #[cfg(feature = "serve")]
    pub(super) fn archive(&self) -> &Archive {
        &self.inner.archive
    }

    /// The content, as the container describes it.
    pub(super) fn content(&self) -> &Content {
        &self.inner.open.file.content
    }

    /// Reads the whole file; for small files.
    ///
    /// # Errors
    /// As [`File::read_at`]; [`Kind::TooLarge`] if allocation fails.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = zeroed(self.len(), "file")?;
        self.read_exact_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the whole file to `out`, decoding ahead on all threads, then runs [`Archive::check`].
    ///
    /// # Errors
    /// [`CopyError::Archive`] if the data is broken; nothing past the error is written. [`CopyError::Write`] if writing
    /// to `out` fails.
    pub fn copy_to(&self, out: &mut (impl Write + ?Sized)) -> Result<u64, CopyError> {
        self.stream(&mut |bytes| out.write_all(bytes))
    }

    /// As [`File::copy_to`], but passes the bytes to a function.
    pub(crate) fn stream(&self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<u64, CopyError> {
        let FileInner { archive, view, .. } = &*self.inner;
        let cache = archive.cache();
        let ahead = Mutex::new(Readahead::new(cache.workers(), cache.budget()));
        let fetch = SequentialFetch::new(cache);
        // Without it, they are only slower.
        announce_missing(cache, view, 0..view.len(), Need::Now).ok();
        let read = |part: Range<u64>| contained("file", || view.get(part, &fetch));
        steps(view, 0..view.len(), &ahead, cache, &mut |step| {
            let bytes = read(step.clone());
            let error = match bytes {
                Ok(bytes) => return sink(&bytes).map_err(CopyError::Write),
                Err(error) => error,
            };
            // Pass on the pieces of this step before the broken one.
            for part in parts(view, step) {
                let Ok(bytes) = read(part) else { break };
                sink(&bytes).map_err(CopyError::Write)?;
            }
            Err(error.into())
        })?;
        archive.check()?;
        Ok(view.len())
    }

    /// The array, for a `.raw` or `.npy` file of known element type and shape.
    pub fn array(&self) -> Option<Array> {
        let array = self.inner.open.file.array.clone()?;
        // The elements follow the header in a .npy file, and start at offset 0 in a .raw file.
        let header = to_u64(npy::header(&array).len());
        let bytes = array.byte_len()?;
        let is_npy = Path::new(&self.inner.path).extension() == Some(OsStr::new("npy"))
            && bytes.checked_add(header) == Some(self.len());
        let start = if is_npy { header } else { 0 };
        let fits = start.checked_add(bytes).is_some_and(|end| end <= self.len());
        fits.then(|| Array::new(self.clone(), array, start))
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, buffer)?;
        self.position = self.position.saturating_add(to_u64(count));
        Ok(count)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a position before the start"))?;
        Ok(self.position)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.inner.path).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Parts of a file longer than the first are decoded on several threads from their beginning, up to the second number
/// of bytes; readahead continues there.
const AT_ONCE: Range<u64> = 256 << 10..8 << 20;
/// Maximum number of bytes of pieces that are announced at once: a source fetches as many as it has room for.
const ANNOUNCED: u64 = 1 << 30;

/// Fills `buffer` from offset `offset` of `view`; `ahead` are the reads so far, and `is_random` says whether this one
/// is likely to be the only one of its kind.
fn fill(
    cache: &Cache,
    view: &Arc<View>,
    offset: u64,
    buffer: &mut [u8],
    ahead: &Mutex<Readahead>,
    is_random: bool,
) -> Result<()> {
    let range = offset..offset + to_u64(buffer.len());
    let fragments = is_random.then(|| view.by_fragments(&range, &|blob, piece| cache.is_known(blob, piece)));
    let need = if is_random { Need::Now } else { Need::Ahead };
    let mut read = |reading: &View| {
        announce_missing(cache, reading, range.clone(), need)?;
        let mut rest = &mut *buffer;
        steps(view, range.clone(), ahead, cache, &mut |step| {
            let len = to_usize(step.end - step.start, "range of a file")?;
            let split = std::mem::take(&mut rest).split_at_mut_checked(len);
            let (head, tail) = split.ok_or_else(|| Error::corrupt("a step is past the range", "file"))?;
            rest = tail;
            reading.read(step.start, head, cache)
        })?;
        stored_unchanged(view, range.clone())
    };
    let reading = fragments.flatten().unwrap_or(view);
    contained("file", || match read(reading) {
        // The part of a broken piece that is needed may be intact.
        Err(e) if e.is_lasting() && Arc::ptr_eq(reading, view) => {
            view.by_fragments(&range, &|_, _| false).map_or(Err(e), |fragments| read(fragments))
        }
        result => result,
    })
}

/// Announces the pieces that `range` of `view` needs and that are far and not in the cache.
fn announce_missing(cache: &Cache, view: &View, range: Range<u64>, need: Need) -> Result<()> {
    let (mut missing, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0_u64);
    view.pieces(range, &mut |blob, piece, size| {
        if blob.is_far() && seen.insert((blob.id(), piece)) && !cache.is_known(blob, piece) {
            missing.push((blob.clone(), piece));
            bytes = bytes.saturating_add(size);
        }
        blob.is_far() && bytes < ANNOUNCED
    })?;
    announce(&missing, need);
    Ok(())
}

/// Fails if the container changed since it was opened, for ranges of `view` that are served as stored. The cache checks
/// decoded pieces.
fn stored_unchanged(view: &View, range: Range<u64>) -> Result<()> {
    view.extents(range, &mut |extent| match extent {
        Extent::FileExtent { stored, .. } => stored.source.check(),
        _ => Ok(()),
    })
}
