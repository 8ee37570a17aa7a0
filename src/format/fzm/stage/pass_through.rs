//! `PassThrough` (type 4, section 5.11): the identity; only readers before 2026-04-18 accept it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Context, DataType, Stage, exactly};
use crate::error::Result;
use crate::format::fzm::stream::ByteStream;

/// The identity.
pub(super) struct PassThrough;

impl Stage for PassThrough {
    fn name(&self) -> &'static str {
        "pass_through"
    }

    fn input_type(&self) -> DataType {
        DataType::Opaque
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn fields(&self) -> Map<String, Value> {
        Map::new()
    }

    fn summary(&self) -> Vec<String> {
        Vec::new()
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Arc<dyn ByteStream>> {
        let [output] = exactly(outputs)?;
        Ok(output)
    }
}
