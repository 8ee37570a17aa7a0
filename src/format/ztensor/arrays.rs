//! The dense tensors as arrays.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::{Arrays, File, Found, NamedArray, Tiles};

use super::byte_swapped::swap_width;
use super::content::TensorFile;
use super::manifest::Encoding;
use super::quoted::quoted;
use super::tree::{dense, known_len, typed};

/// The dense tensors, by the number of the tensor.
pub(super) struct Dense(pub(super) Arc<TensorFile>);

impl Arrays for Dense {
    fn count(&self) -> u64 {
        to_u64(self.0.manifest.len())
    }

    fn find(&self, index: u64) -> Result<Found> {
        let tensor = self.0.manifest.tensor(to_usize(index, "tensor")?)?;
        let name = tensor.name.as_bytes().to_vec();
        let Some(part) = tensor.component("data").filter(|_| tensor.is_dense()) else {
            let why = format!("it has the layout {}: its components are files", quoted(&tensor.layout));
            return Ok(Found::LeftOut(name, why.into()));
        };
        let type_name = part.logical.as_deref().unwrap_or(&part.dtype);
        let Some(array) = typed(part, &tensor.shape) else {
            let why = format!("NumPy has no element type for {}", quoted(type_name));
            return Ok(Found::LeftOut(name, why.into()));
        };
        if let Encoding::Unknown(encoding) = &part.encoding {
            return Ok(Found::LeftOut(name, format!("the encoding {} is unknown", quoted(encoding)).into()));
        }
        if let Err(unknown) = swap_width(part) {
            return Ok(Found::LeftOut(name, unknown.to_string().into()));
        }
        if known_len(&tensor, part).is_none() {
            return Ok(Found::LeftOut(name, "it cannot be decoded".into()));
        }
        Ok(Found::Array(NamedArray {
            name,
            array,
            type_name: Some(type_name.to_owned()),
            tiles: Tiles::default(),
            stored: part.len,
            dimensions: None,
        }))
    }

    fn file(&self, index: u64) -> Result<File> {
        let index = to_usize(index, "tensor")?;
        let tensor = self.0.manifest.tensor(index)?;
        let place = TensorFile::role(&tensor, "data").ok_or_else(|| Error::new(Kind::NotFound, "component"))?;
        dense(&self.0, index, &tensor, place)
    }
}
