//! Manifest checks that need no tensor data: names, shapes, ranges, layouts.
//!
//! Reference: sections 3, 6.4 and 10, the rules of stage "open".
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::limits::Limits;

use crate::format::ztensor::dtype::TensorElement;
use crate::format::ztensor::footer::{Dialect, FOOTER_2, Footer};
use crate::format::ztensor::syntax::{digest_2, name_2};

use super::tensor::{Component, Tensor};
use crate::format::ztensor::quoted::quoted;
use crate::format::ztensor::sort::Sorter;

/// Finds a shard by name; returns its index and size in bytes.
pub(super) type FindShard<'f> = &'f dyn Fn(&str) -> Result<Option<(usize, u64)>>;

/// Checks tensors one by one as they are parsed, and rules across tensors at the end.
pub(super) struct Rules {
    dialect: Dialect,
    data_end: u64,
    /// Non-empty ranges: file (0 for the container itself, else 1 + the shard index), start, end.
    ranges: Sorter<3>,
}

impl Rules {
    /// The rules of a file; the ranges compared at the end are charged to `account`.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn new(footer: &Footer, account: &Account) -> Result<Self> {
        let mut ranges = Sorter::new(account, "ranges of components");
        if footer.dialect == Dialect::V2 {
            ranges.push([0, footer.at.0, footer.at.0.saturating_add(footer.len)])?;
        }
        Ok(Self { dialect: footer.dialect, data_end: footer.data_end, ranges })
    }

    /// Checks one tensor.
    pub(super) fn tensor(&mut self, tensor: &Tensor<'_>, shards: FindShard<'_>) -> Result<()> {
        self.name(&tensor.name, "name")?;
        let count = tensor.count().ok_or_else(|| Error::corrupt("the number of elements exceeds 64 bits", "shape"))?;
        if tensor.layout == "dense" {
            let element = tensor.components.iter().find(|p| p.role == "data").and_then(Component::element);
            if element.is_some_and(|e| e.bytes(count).is_none()) {
                return Err(Error::corrupt("the number of bytes exceeds 64 bits", "shape"));
            }
        }
        for part in &tensor.components {
            self.name(&part.role, "role")?;
            self.component(part, shards).map_err(|e| e.at(part.described_at).within(quoted(&part.role)))?;
        }
        if self.dialect == Dialect::V2 {
            layout_2(tensor, count)?;
        }
        Ok(())
    }

    fn name(&self, name: &str, what: &'static str) -> Result<()> {
        if self.dialect == Dialect::V2 {
            return name_2(name, what);
        }
        Limits::check(to_u64(name.len()), 65535, what).map(drop)
    }

    fn component(&mut self, part: &Component<'_>, shards: FindShard<'_>) -> Result<()> {
        let (file, end) = match &part.shard {
            None => (0, self.data_end),
            // In key order the table of shards precedes the tensors.
            Some(name) => match shards(name)? {
                Some((number, size)) => (to_u64(number).saturating_add(1), size.saturating_sub(FOOTER_2)),
                None => return Err(Error::corrupt(format!("{} is not in the table of shards", quoted(name)), "shard")),
            },
        };
        let stop = part.at.0.checked_add(part.len).filter(|&stop| stop <= end).ok_or_else(|| {
            let why = format!("{} bytes at {:#x} do not end before byte {end:#x}", part.len, part.at.0);
            Error::corrupt(why, "offset")
        })?;
        if self.dialect == Dialect::V2 {
            if part.at.0 < 4096 || !part.at.0.is_multiple_of(4096) {
                return Err(Error::corrupt(format!("{:#x} is not a positive multiple of 4096", part.at.0), "blob"));
            }
            component_2(part)?;
        } else if part.len > 0 && part.at.0 < 8 {
            return Err(Error::corrupt("the range covers the magic number", "offset"));
        }
        if part.len > 0 {
            self.ranges.push([file, part.at.0, stop])?;
        }
        Ok(())
    }

    /// Checks across tensors: ranges may be identical, but must not overlap otherwise.
    pub(super) fn finish(self) -> Result<()> {
        let mut last = [0; 3];
        self.ranges.finish(&mut |range| {
            let ([last_file, _, end], [file, start, _]) = (last, range);
            if range != last && file == last_file && start < end {
                return Err(
                    Error::corrupt("two ranges overlap without being identical", "offset").at(FileOffset(start))
                );
            }
            last = range;
            Ok(())
        })
    }
}

fn component_2(part: &Component<'_>) -> Result<()> {
    if let Some(digest) = &part.digest {
        digest_2(digest)?;
    }
    let stored =
        TensorElement::stored(&part.dtype).filter(|e| e.name == part.dtype && e.name != "bool" && e.name.len() <= 4);
    if stored.is_none() {
        return Err(Error::corrupt(format!("{} is not a stored type", quoted(&part.dtype)), "dtype"));
    }
    match part.logical.as_deref().and_then(TensorElement::logical) {
        Some(logical) if logical.storage != part.dtype => {
            let why = format!("{} is stored as {}, not as {}", logical.name, logical.storage, part.dtype);
            Err(Error::corrupt(why, "type"))
        }
        _ => Ok(()),
    }
}

/// Checks the components of the layouts of dialect 2 that are checked at open.
fn layout_2(tensor: &Tensor<'_>, count: u64) -> Result<()> {
    if tensor.components.is_empty() {
        return Err(Error::corrupt("there are none", "parts"));
    }
    let size = |part: &Component<'_>| part.decoded.unwrap_or(part.len);
    let fits = |part: &Component<'_>, count: u64| match part.element() {
        Some(element) => element.bytes(count) == Some(size(part)),
        None => true,
    };
    match &*tensor.layout {
        "dense" => {
            let [data] = tensor.components.as_slice() else {
                return Err(Error::corrupt("a dense tensor must have one part, data", "parts"));
            };
            if data.role != "data" {
                return Err(Error::corrupt("a dense tensor must have one part, data", "parts"));
            }
            if !fits(data, count) {
                return Err(Error::corrupt(format!("{} bytes for {count} elements", size(data)), "blob"));
            }
            Ok(())
        }
        "zt.sparse_csr/1" => csr_2(tensor, &size, &fits),
        _ => Ok(()),
    }
}

fn csr_2(
    tensor: &Tensor<'_>,
    size: &dyn Fn(&Component<'_>) -> u64,
    fits: &dyn Fn(&Component<'_>, u64) -> bool,
) -> Result<()> {
    let wrong = |why: &'static str| Err(Error::corrupt(why, "parts"));
    let &[rows, _] = tensor.shape.as_slice() else { return wrong("sparse rows must have rank 2") };
    let (Some(values), Some(indices), Some(indptr), 3) =
        (tensor.component("values"), tensor.component("indices"), tensor.component("indptr"), tensor.components.len())
    else {
        return wrong("sparse rows must have the parts values, indices and indptr");
    };
    let width = match &*indices.dtype {
        "u32" => 4,
        "u64" => 8,
        _ => return wrong("indices must be u32 or u64"),
    };
    if indices.logical.is_some() || indptr.logical.is_some() || indptr.dtype != indices.dtype {
        return wrong("indices and indptr must have the same stored type and no logical type");
    }
    if rows.checked_add(1).and_then(|n| n.checked_mul(width)) != Some(size(indptr)) {
        return wrong("indptr does not have rows + 1 elements");
    }
    if !size(indices).is_multiple_of(width) || !fits(values, size(indices).checked_div(width).unwrap_or(0)) {
        return wrong("values and indices do not have the same number of elements");
    }
    Ok(())
}
