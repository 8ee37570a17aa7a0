//! `<name>.npz`: a compressed-sparse-row tensor as `scipy.sparse.load_npz` opens it.
//!
//! A ZIP file with stored members: `data.npy`, `indices.npy`, `indptr.npy`, `shape.npy`, `format.npy`. Its
//! headers hold CRC-32 sums of the members, which are computed when they are first read; the members
//! themselves are the components, served as they are. Sizes are written as ZIP64, whatever they are.
#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use crate::bytes::wide;
use crate::error::{Error, Kind, Result};
use crate::format::{Array, Content, Fetch, Make, npy};

use super::content::{Store, each, len};
use super::manifest::{Part, Tensor};
use super::sparse;

/// One member of the archive.
struct Member {
    name: &'static str,
    /// Its header, and for small members its data.
    head: Vec<u8>,
    body: Option<Content>,
    len: u64,
    /// Where its local header starts.
    at: u64,
    crc: OnceLock<u32>,
}

/// 1 January 1980, which ZIP counts from.
const DATE: u16 = 0x21;
/// Version that understands ZIP64.
const VERSION: u16 = 45;
const LOCAL: u64 = 30 + 20;

impl Member {
    fn new(name: &'static str, head: Vec<u8>, body: Option<Content>) -> Result<Self> {
        let len = body.as_ref().map_or(Ok(0), len)?.saturating_add(wide(head.len()));
        Ok(Self { name, head, body, len, at: 0, crc: OnceLock::new() })
    }

    fn crc(&self, fetch: &dyn Fetch) -> Result<u32> {
        if let Some(crc) = self.crc.get() {
            return Ok(*crc);
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.head);
        if let Some(body) = &self.body {
            each(body, fetch, &mut |chunk| {
                hasher.update(chunk);
                Ok(())
            })?;
        }
        Ok(*self.crc.get_or_init(|| hasher.finalize()))
    }

    fn local_len(&self) -> u64 {
        LOCAL + wide(self.name.len())
    }

    /// The fields that local header and directory have in common, from the version needed on.
    fn common(&self, crc: u32, extra: u16, out: &mut Vec<u8>) {
        for field in [VERSION, 0, 0, 0, DATE] {
            out.extend(field.to_le_bytes());
        }
        out.extend(crc.to_le_bytes());
        out.extend([0xFF; 8]);
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend(extra.to_le_bytes());
    }

    fn local(&self, fetch: &dyn Fetch) -> Result<Vec<u8>> {
        let mut out = b"PK\x03\x04".to_vec();
        self.common(self.crc(fetch)?, 20, &mut out);
        out.extend(self.name.as_bytes());
        out.extend([1, 0, 16, 0]);
        out.extend(self.len.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        Ok(out)
    }

    fn directory(&self, fetch: &dyn Fetch, out: &mut Vec<u8>) -> Result<()> {
        out.extend(b"PK\x01\x02");
        out.extend(VERSION.to_le_bytes());
        self.common(self.crc(fetch)?, 28, out);
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

/// Whether `scipy.sparse` can hold the values of `tensor`.
pub(super) fn fits(tensor: &Tensor<'_>) -> bool {
    let numeric = |role: &str| {
        let element = tensor.part(role).and_then(Part::element);
        element.is_some_and(|e| !e.descr.is_empty() && !e.descr.contains('V'))
    };
    tensor.is_csr() && tensor.shape.len() == 2 && ["values", "indices", "indptr"].into_iter().all(numeric)
}

/// The archive of tensor `index`, which [`fits`].
///
/// # Errors
/// When a component cannot be decoded at all.
pub(super) fn content(store: &Arc<Store>, index: usize) -> Result<Content> {
    let tensor = store.manifest.tensor(index)?;
    let array = |role: &str, name: &'static str| {
        let place = Store::role(&tensor, role).ok_or_else(|| Error::new(Kind::NotFound, "component"))?;
        let element = tensor.parts.get(place).and_then(Part::element);
        let element = element.ok_or_else(|| Error::new(Kind::NotFound, "element type"))?;
        let body = store.content(index, place)?;
        let count = len(&body)? / element.width();
        // SciPy wants signed indices; those of a matrix that holds together are no larger.
        let descr = match (role, element.descr) {
            ("indices" | "indptr", "'<u8'") => "'<i8'",
            ("indices" | "indptr", "'<u4'") if tensor.shape.iter().all(|&n| n < 1 << 31) && count < 1 << 31 => "'<i4'",
            (_, descr) => descr,
        };
        let array = Array { descr: descr.into(), itemsize: element.width(), shape: vec![count] };
        Member::new(name, npy::header(&array), Some(body))
    };
    let small = |name, descr: &str, shape: Vec<u64>, data: &[u8]| {
        let array = Array { descr: descr.into(), itemsize: 8, shape };
        Member::new(name, [npy::header(&array), data.to_vec()].concat(), None)
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
    let mut parts = Vec::new();
    for i in 0..members.len() {
        let Some(member) = members.get(i) else { continue };
        let all = Arc::clone(&members);
        let make: Make = Arc::new(move |fetch| all.get(i).map_or(Ok(Vec::new()), |m| m.local(fetch)));
        parts.push(Content::Made { len: Some(member.local_len()), make });
        parts.push(Content::bytes(member.head.clone()));
        parts.extend(member.body.clone());
    }
    parts.push(end(store, index, &members, at));
    Ok(Content::Join(parts.into()))
}

/// The directory and what follows it; made only if the matrix holds together.
fn end(store: &Arc<Store>, index: usize, members: &Arc<[Member; 5]>, at: u64) -> Content {
    let directory: u64 = members.iter().map(|m| 46 + 28 + wide(m.name.len())).sum();
    let (store, members) = (Arc::clone(store), Arc::clone(members));
    let make: Make = Arc::new(move |fetch| {
        sparse::check(&store, index, fetch)?;
        let mut out = Vec::new();
        members.iter().try_for_each(|m| m.directory(fetch, &mut out))?;
        let (count, size) = (wide(members.len()), wide(out.len()));
        // The end of a ZIP64 directory, where it is, and the end of a directory for older readers.
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
    });
    Content::Made { len: Some(directory + 56 + 20 + 22), make }
}
