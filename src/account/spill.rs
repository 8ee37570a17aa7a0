//! Memory for large decoded data: heap, or a mapped unnamed temporary file.
//!
//! Measured against pread and pwrite on ext4, in processor time: reading through a mapping costs as much for 1 MiB,
//! half for 4 KiB, and a tenth or less for a small record; writing 1 MiB through it costs seven to ten times as much.
//! So bytes that are complete are written with pwrite, and pieces that are only read whole ([`Pieces`](super::Pieces))
//! are not mapped.
//!
//! The file is created in `$TMPDIR` or `/var/tmp` and disappears with the process. Its blocks are allocated before it
//! is mapped, so a full disk is an error here and not a SIGBUS later; no other process can open it to truncate it. On
//! copy-on-write file systems (Btrfs, bcachefs), the file is marked to be written in place. ZFS neither allocates nor
//! writes in place, and has no SIGBUS: there, pages that do not fit on a full disk stay in memory.
#![expect(unsafe_code, reason = "mapping a file is unsafe because it may be truncated; ours has no name and one owner")]

use std::ffi::OsString;
use std::ops::{Deref, DerefMut, Range};
use std::path::PathBuf;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::{Charge, zeroed};
use crate::paging::mapped_at_once;
use crate::platform::{self, FileExt, allocate, unnamed, write_in_place};

/// Bytes that are charged to an [`Account`](super::Account) until they are dropped.
pub struct Buffer {
    bytes: Bytes,
    _charge: Charge,
}

enum Bytes {
    Heap(Vec<u8>),
    Mapped(Arc<MmapRaw>),
}

/// A handle to the pages of a [`Buffer`], for releasing them while the bytes are borrowed.
#[derive(Clone, Default)]
pub struct Pages(Option<Arc<MmapRaw>>);

impl Buffer {
    /// `len` zero bytes on the heap.
    pub(super) fn heap(len: u64, charge: Charge, what: &'static str) -> Result<Self> {
        Ok(Self { bytes: Bytes::Heap(zeroed(len, what)?), _charge: charge })
    }

    /// A copy of `bytes` on the heap.
    pub(super) fn heap_of(bytes: &[u8], charge: Charge, what: &'static str) -> Result<Self> {
        let mut copy = zeroed(to_u64(bytes.len()), what)?;
        copy.copy_from_slice(bytes);
        Ok(Self { bytes: Bytes::Heap(copy), _charge: charge })
    }

    /// `len` bytes in a file: `bytes`, then zeros.
    pub(super) fn mapped(len: u64, bytes: &[u8], charge: Charge, what: &'static str) -> Result<Self> {
        let map = || {
            let file = unnamed(&directory())?;
            write_in_place(&file);
            allocate(&file, len)?;
            file.write_all_at(bytes, 0)?;
            // The file has no name, and its only descriptor is dropped here: no other process can truncate or write it.
            // All of its blocks are allocated.
            MmapOptions::new().map_raw(&file)
        };
        let bytes = if len == 0 {
            Bytes::Heap(Vec::new())
        } else {
            Bytes::Mapped(Arc::new(map().map_err(|e| Error::io(e, what))?))
        };
        Ok(Self { bytes, _charge: charge })
    }

    /// Whether the bytes are in a file.
    pub fn is_spilled(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }

    /// Unmaps the pages of `range` if they are in a file. The file keeps the bytes; the next access maps them again.
    /// This bounds the resident memory while a large buffer is filled sequentially.
    pub fn release(&self, range: Range<usize>) {
        if let Bytes::Mapped(map) = &self.bytes {
            release(map, range);
        }
    }

    /// Like [`Buffer::release`], with the bytes around `range` that reading it mapped: a later reader of the neighbouring
    /// bytes maps them again.
    pub fn release_around(&self, range: Range<usize>) {
        let around = mapped_at_once();
        self.release(range.start.saturating_sub(around)..range.end.saturating_add(around).min(self.len()));
    }

    /// A handle to its pages, for decoders that borrow its bytes.
    pub fn pages(&self) -> Pages {
        match &self.bytes {
            Bytes::Heap(_) => Pages(None),
            Bytes::Mapped(map) => Pages(Some(Arc::clone(map))),
        }
    }
}

impl Pages {
    /// Like [`Buffer::release`], for all bytes.
    pub fn release(&self) {
        if let Some(map) = &self.0 {
            release(map, 0..map.len());
        }
    }
}

/// The part of `range` of a mapping of `len` bytes that has its pages for itself, in units that the system maps at once.
fn whole_pages(range: Range<usize>, len: usize) -> Range<usize> {
    let unit = mapped_at_once();
    let end = if range.end >= len { len } else { range.end - range.end % unit };
    range.start.next_multiple_of(unit)..end
}

fn release(map: &MmapRaw, range: Range<usize>) {
    let Range { start, end } = whole_pages(range, map.len());
    if start < end
        && let Err(e) = platform::release(map, start..end)
    {
        tracing::debug!("pages of a temporary file stay mapped: {e}");
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Heap(bytes) => bytes,
            // SAFETY: all `len` bytes stay mapped while `map` lives, and only this buffer writes them.
            Bytes::Mapped(map) => unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) },
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Heap(bytes) => bytes,
            // SAFETY: as above; `&mut self` makes this the only reference, and `Pages` gives no access to the bytes.
            Bytes::Mapped(map) => unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr(), map.len()) },
        }
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({})", self.0.as_ref().map_or(0, |map| map.len()))
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes, {})", self.len(), if self.is_spilled() { "file" } else { "heap" })
    }
}

/// The directory for large temporary files: `TMPDIR`, or `/var/tmp`, because `/tmp` may be a tmpfs.
pub fn directory() -> PathBuf {
    directory_for(std::env::var_os("TMPDIR"))
}

fn directory_for(own: Option<OsString>) -> PathBuf {
    let own = own.filter(|dir| !dir.is_empty()).map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from("/var/tmp")).filter(|dir| dir.is_dir())).unwrap_or_else(std::env::temp_dir)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::paging::tests::with_each_page_size;

    #[test]
    fn temporary_files_go_to_the_directory_of_the_environment_if_it_names_one() {
        assert_eq!(directory_for(Some("/x/y".into())), Path::new("/x/y"));
        assert_eq!(directory_for(Some(OsString::new())), directory_for(None));
        assert!(directory_for(None).is_dir());
    }

    #[test]
    fn only_pages_that_lie_within_the_range_are_released() {
        const KIB: usize = 1 << 10;
        with_each_page_size(|page| {
            for (start, end) in [(0, 64), (1, 200), (60, 70), (64, 128), (100, 300), (0, 300), (290, 300), (65, 66)] {
                let within = whole_pages(start * KIB..end * KIB, 300 * KIB);
                assert!(within.is_empty() || (within.start >= start * KIB && within.end <= end * KIB), "{within:?}");
                assert!(within.start.is_multiple_of(page), "{within:?}");
                assert!(within.is_empty() || within.end.is_multiple_of(page) || within.end == 300 * KIB, "{within:?}");
            }
            assert_eq!(whole_pages(0..300 * KIB, 300 * KIB), 0..300 * KIB);
            assert_eq!(whole_pages(KIB..200 * KIB, 300 * KIB), 64 * KIB..192 * KIB);
        });
    }

    /// Bytes of the mapping of a buffer that this process has in memory; `None` on systems that do not tell.
    fn resident(buffer: &Buffer) -> Option<u64> {
        let at = buffer.as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut lines = maps.lines().skip_while(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bound = |text| usize::from_str_radix(text, 16);
            !range.is_some_and(|(start, end)| bound(start).is_ok_and(|s| s <= at) && bound(end).is_ok_and(|e| at < e))
        });
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        Some(rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10)
    }

    #[test]
    fn what_is_released_is_no_longer_in_memory() {
        const LEN: usize = 4 << 20;
        let account = crate::account::Account::new(0, 8 << 20);
        let mut buffer = account.buffer(LEN as u64, "bytes").unwrap();
        buffer.fill(1);
        let Some(all) = resident(&buffer) else { return };
        assert_eq!(all, LEN as u64);
        buffer.release(0..LEN / 2);
        assert_eq!(resident(&buffer), Some(LEN as u64 / 2));
        buffer.release_around(LEN / 2..LEN - mapped_at_once());
        assert_eq!(resident(&buffer), Some(0));
        buffer.fill(2);
        buffer.pages().release();
        assert_eq!(resident(&buffer), Some(0));
        assert!(buffer.iter().all(|&byte| byte == 2));
    }

    #[test]
    fn released_bytes_are_read_again() {
        let account = crate::account::Account::new(0, 1 << 20);
        let mut buffer = account.buffer(300_001, "bytes").unwrap();
        assert!(buffer.is_spilled());
        for (i, byte) in buffer.iter_mut().enumerate() {
            *byte = (i % 251) as u8;
        }
        with_each_page_size(|page| {
            buffer.release(page - 1..200_000);
            buffer.release_around(150_000..150_001);
            buffer.pages().release();
            assert!(buffer.iter().enumerate().all(|(i, &byte)| byte == (i % 251) as u8), "pages of {page} bytes");
        });
    }
}
