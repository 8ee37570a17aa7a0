//! `<name>.npz`: a compressed-sparse-row tensor in the format of `scipy.sparse.load_npz`.
//!
//! A ZIP file with stored members: `data.npy`, `indices.npy`, `indptr.npy`, `shape.npy`, `format.npy`. Its headers
//! contain CRC-32 sums of the members, which are computed when first read, and kept; the members' data are the decoded
//! components. Sizes are always written as ZIP64.
//!
//! Limits: one piece of a component in memory at a time. Reading a local header decodes its member; reading the central
//! directory decodes every member not decoded before, and the indices a second time. Later reads decode nothing.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::to_u64;
use crate::checksum::{ChecksumGate, Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::format::{Array, Blob, BlobRef, Content, Layout, npy};

use super::content::{Direct, TensorFile, each, len};
use super::manifest::{Component, Tensor};
use super::sparse;

/// The tensor of an archive.
#[derive(Clone)]
struct Owner {
    store: Arc<TensorFile>,
    index: usize,
}

/// One member of the archive.
struct NpzMember {
    name: &'static str,
    /// Its `.npy` header, followed by its data for small members.
    head: Vec<u8>,
    body: Option<Content>,
    len: u64,
    /// Offset of its local header.
    at: u64,
}

/// 1 January 1980, the ZIP epoch.
const DATE: u16 = 0x21;
/// Version needed for ZIP64.
const VERSION: u16 = 45;
const LOCAL: u64 = 30 + 20;

impl NpzMember {
    fn new(name: &'static str, head: Vec<u8>, body: Option<Content>) -> Result<Self> {
        let len = body.as_ref().map_or(Ok(0), len)?.saturating_add(to_u64(head.len()));
        Ok(Self { name, head, body, len, at: 0 })
    }

    fn crc(&self, owner: &Owner) -> Result<u32> {
        owner.store.sums.crc(owner.index, self.name, || {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&self.head);
            if let Some(body) = &self.body {
                each(body, &Direct, &mut |chunk| {
                    hasher.update(chunk);
                    Ok(())
                })?;
            }
            Ok(hasher.finalize())
        })
    }

    fn local_len(&self) -> u64 {
        LOCAL + to_u64(self.name.len())
    }

    /// Writes the fields that the local header and the central directory share, from the version needed on.
    fn common(&self, crc: u32, extra: u16, out: &mut Vec<u8>) {
        for field in [VERSION, 0, 0, 0, DATE] {
            out.extend(field.to_le_bytes());
        }
        out.extend(crc.to_le_bytes());
        out.extend([0xFF; 8]);
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend(extra.to_le_bytes());
    }

    fn local(&self, owner: &Owner) -> Result<Vec<u8>> {
        let mut out = b"PK\x03\x04".to_vec();
        self.common(self.crc(owner)?, 20, &mut out);
        out.extend(self.name.as_bytes());
        out.extend([1, 0, 16, 0]);
        out.extend(self.len.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        Ok(out)
    }

    fn directory(&self, owner: &Owner, out: &mut Vec<u8>) -> Result<()> {
        out.extend(b"PK\x01\x02");
        out.extend(VERSION.to_le_bytes());
        self.common(self.crc(owner)?, 28, out);
        out.extend([0; 10]);
        out.extend([0xFF; 4]);
        out.extend(self.name.as_bytes());
        out.extend([1, 0, 24, 0]);
        out.extend(self.len.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        out.extend(self.at.to_le_bytes());
        Ok(())
    }
}

/// Whether `scipy.sparse` supports the types of `tensor`'s components.
pub(super) fn fits(tensor: &Tensor<'_>) -> bool {
    let numeric = |role: &str| {
        let element = tensor.component(role).and_then(Component::element);
        element.is_some_and(|e| !e.descr.is_empty() && !e.descr.contains('V'))
    };
    tensor.is_csr() && tensor.shape.len() == 2 && ["values", "indices", "indptr"].into_iter().all(numeric)
}

/// The archive of tensor `index`, for which [`fits`] holds.
///
/// # Errors
/// Fails if a component cannot be decoded.
pub(super) fn content(store: &Arc<TensorFile>, index: usize) -> Result<Content> {
    let tensor = store.manifest.tensor(index)?;
    let array = |role: &str, name: &'static str| {
        let place = TensorFile::role(&tensor, role).ok_or_else(|| Error::new(Kind::NotFound, "component"))?;
        let element = tensor.components.get(place).and_then(Component::element);
        let element = element.ok_or_else(|| Error::new(Kind::NotFound, "element type"))?;
        let body = store.content(index, place)?;
        let count = len(&body)? / element.width();
        // SciPy expects signed indices; the indices of a consistent matrix fit.
        let descr = match (role, element.descr) {
            ("indices" | "indptr", "'<u8'") => "'<i8'",
            ("indices" | "indptr", "'<u4'") if tensor.shape.iter().all(|&n| n < 1 << 31) && count < 1 << 31 => "'<i4'",
            (_, descr) => descr,
        };
        let array = Array { descr: descr.into(), itemsize: element.width(), shape: vec![count] };
        NpzMember::new(name, npy::header(&array), Some(body))
    };
    let small = |name, descr: &str, shape: Vec<u64>, data: &[u8]| {
        let array = Array { descr: descr.into(), itemsize: 8, shape };
        NpzMember::new(name, [npy::header(&array), data.to_vec()].concat(), None)
    };
    let shape: Vec<u8> = tensor.shape.iter().flat_map(|n| n.to_le_bytes()).collect();
    let mut members = [
        array("indices", "indices.npy")?,
        array("indptr", "indptr.npy")?,
        small("format.npy", "'|S3'", Vec::new(), b"csr")?,
        small("shape.npy", "'<i8'", vec![2], &shape)?,
        array("values", "data.npy")?,
    ];
    let mut at = 0_u64;
    for member in &mut members {
        member.at = at;
        at = at.saturating_add(member.local_len()).saturating_add(member.len);
    }
    let members = Arc::new(members);
    let owner = Owner { store: Arc::clone(store), index };
    let mut parts = Vec::new();
    for i in 0..members.len() {
        let Some(member) = members.get(i) else { continue };
        let (all, own) = (Arc::clone(&members), owner.clone());
        let make = move || all.get(i).map_or(Ok(Vec::new()), |m| m.local(&own));
        parts.push(computed(member.local_len(), &store.options.threads, make));
        parts.push(Content::bytes(member.head.clone()));
        parts.extend(member.body.clone());
    }
    parts.push(end(owner, &members, at));
    Ok(Content::Join(parts.into()))
}

/// The central directory and its end records; computed only if the matrix is consistent.
fn end(owner: Owner, members: &Arc<[NpzMember; 5]>, at: u64) -> Content {
    let directory: u64 = members.iter().map(|m| 46 + 28 + to_u64(m.name.len())).sum();
    let members = Arc::clone(members);
    let threads = owner.store.options.threads.clone();
    let make = move || {
        let Owner { store, index } = &owner;
        store.sums.sparse(*index, || sparse::check(store, *index, &Direct))?;
        let mut out = Vec::new();
        members.iter().try_for_each(|m| m.directory(&owner, &mut out))?;
        let (count, size) = (to_u64(members.len()), to_u64(out.len()));
        // The ZIP64 end record, its locator, and the end record for older readers.
        out.extend(b"PK\x06\x06");
        out.extend(44_u64.to_le_bytes());
        out.extend([VERSION.to_le_bytes(), VERSION.to_le_bytes()].concat());
        out.extend([0; 8]);
        for field in [count, count, size, at] {
            out.extend(field.to_le_bytes());
        }
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(at.saturating_add(size).to_le_bytes());
        out.extend(1_u32.to_le_bytes());
        out.extend(b"PK\x05\x06\0\0\0\0");
        out.extend([(count as u16).to_le_bytes(), (count as u16).to_le_bytes()].concat());
        out.extend((size as u32).to_le_bytes());
        out.extend([0xFF; 4]);
        out.extend([0, 0]);
        Ok(out)
    };
    computed(directory + 56 + 20 + 22, &threads, make)
}

/// `len` computed bytes; the computation reads whole components. A gate runs it, so that a reader can wait without
/// blocking a thread.
fn computed(len: u64, threads: &Threads, make: impl Fn() -> Result<Vec<u8>> + Send + Sync + 'static) -> Content {
    let make = Arc::new(make);
    let first = Arc::clone(&make);
    // Independent of `verify=`: without the computation there are no bytes.
    let gate = ChecksumGate::new(&Verify::First, 0, threads, move || first().map(drop));
    Content::Blob(BlobRef::new(Computed { len, gate, make }))
}

/// See [`computed`].
struct Computed {
    len: u64,
    gate: ChecksumGate,
    /// Fast once the gate is open: expensive results are kept.
    make: Arc<dyn Fn() -> Result<Vec<u8>> + Send + Sync>,
}

impl Blob for Computed {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.len, piece: self.len })
    }

    fn gate(&self, _: u64) -> Option<ChecksumGate> {
        ChecksumGate::shut(Some(&self.gate), true)
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        self.gate.check()?;
        let bytes = (self.make)()?;
        if bytes.len() != dst.len() {
            return Err(Error::corrupt("its length differs from the announced one", "computed header"));
        }
        dst.copy_from_slice(&bytes);
        Ok(())
    }
}
