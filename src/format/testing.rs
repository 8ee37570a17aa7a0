//! In-memory blobs and a plain fetcher, for the tests of the layers above.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::bytes::to_u64;
use crate::checksum::ChecksumGate;
use crate::error::{Error, Result};

use super::{Batched, Blob, BlobRef, Fetch, Fragmented, InOrder, Layout, Measured, OnDevice, Piece};

/// A blob with ranges of bytes in memory as its pieces; counts its decodes.
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) decodes: AtomicU64,
    /// Pieces that fail, and pieces that panic.
    pub(crate) broken: Vec<u64>,
    pub(crate) panics: Vec<u64>,
    /// Whether the length is known without decoding.
    pub(crate) known: bool,
    /// The batch size, and the first piece and length of each batch decoded.
    pub(crate) batch: u64,
    pub(crate) batches: Mutex<Vec<(u64, usize)>>,
    /// Whether each piece continues the one before it.
    pub(crate) is_run: bool,
    /// The pieces decoded so far, and the thread of each.
    pub(crate) decoded: Mutex<Vec<(u64, std::thread::ThreadId)>>,
    /// How long a decode takes.
    pub(crate) takes: std::time::Duration,
    /// The gate before its bytes.
    pub(crate) gate: Option<ChecksumGate>,
    /// The size of a fragment, and the pieces and offsets of the broken ones.
    pub(crate) fragment: Option<u64>,
    pub(crate) broken_fragments: Vec<(u64, u64)>,
}

impl Memory {
    pub(crate) fn new(bytes: Vec<u8>, piece: u64) -> Self {
        let layout = Layout::Uniform { len: to_u64(bytes.len()), piece };
        Self {
            bytes,
            layout,
            decodes: AtomicU64::new(0),
            broken: Vec::new(),
            panics: Vec::new(),
            known: true,
            batch: 1,
            batches: Mutex::default(),
            is_run: false,
            decoded: Mutex::default(),
            takes: std::time::Duration::ZERO,
            gate: None,
            fragment: None,
            broken_fragments: Vec::new(),
        }
    }

    pub(crate) fn blob(self) -> (BlobRef, Arc<Self>) {
        let this = Arc::new(self);
        (BlobRef::shared(this.clone()), this)
    }
}

impl Blob for Memory {
    fn layout(&self) -> Result<Layout> {
        Ok(self.layout.clone())
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        ChecksumGate::shut(self.gate.as_ref(), piece + 1 == self.layout.count())
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        ChecksumGate::wait_before(self.gate.as_ref(), piece + 1 == self.layout.count())?;
        self.decodes.fetch_add(1, Ordering::Relaxed);
        self.decoded.lock().unwrap().push((piece, std::thread::current().id()));
        if !self.takes.is_zero() {
            std::thread::sleep(self.takes);
        }
        assert!(!self.panics.contains(&piece), "as the test wants it");
        if self.broken.contains(&piece) || self.broken_fragments.iter().any(|(broken, _)| *broken == piece) {
            return Err(Error::corrupt("broken on purpose", "piece"));
        }
        let range = self.layout.range(piece);
        dst.copy_from_slice(&self.bytes[range.start as usize..range.end as usize]);
        Ok(())
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }

    fn fragmented(&self) -> Option<&dyn Fragmented> {
        Some(self)
    }

    fn batched(&self) -> Option<&dyn Batched> {
        Some(self)
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }
}

impl Measured for Memory {
    fn known_len(&self) -> Option<u64> {
        self.known.then(|| self.layout.len())
    }
}

impl Fragmented for Memory {
    fn fragments(&self) -> Option<Layout> {
        self.layout.divided(self.fragment?)
    }

    fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        ChecksumGate::wait_before(self.gate.as_ref(), piece + 1 == self.layout.count())?;
        if self.broken_fragments.contains(&(piece, at)) {
            return Err(Error::corrupt("broken on purpose", "fragment"));
        }
        let start = (self.layout.range(piece).start + at) as usize;
        dst.copy_from_slice(&self.bytes[start..start + dst.len()]);
        Ok(())
    }
}

impl InOrder for Memory {
    fn is_run(&self, _: u64) -> bool {
        self.is_run
    }
}

impl Batched for Memory {
    fn on_device(&self) -> Option<OnDevice> {
        None
    }

    fn batch(&self) -> u64 {
        self.batch
    }

    fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()> {
        self.batches.lock().unwrap().push((first, pieces.len()));
        (first..).zip(pieces).try_for_each(|(piece, dst)| self.decode(piece, dst))
    }
}

/// Bytes that differ from their neighbors and from the bytes at nearby powers of two.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    (0..to_u64(len)).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Decodes on every call.
pub(crate) struct Plain;

impl Fetch for Plain {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let range = blob.layout()?.range(piece);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        blob.decode(piece, &mut bytes)?;
        Ok(Arc::new(bytes))
    }
}
