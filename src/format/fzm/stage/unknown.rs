//! A stage that this version cannot invert: of an unknown type, or of a known one with an unknown configuration.
//!
//! It has a place in the graph and the tree; any use of its inverse fails with the error that names the unknown part.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::config::{Config, ConfigLayout};
use super::{Context, DataType, Stage};
use crate::bytes::Cursor;
use crate::error::{Error, Result};
use crate::format::fzm::stream::ByteStream;

/// Names of the outputs, in port order: the file does not name them.
const PORTS: [&str; 8] = ["output", "output1", "output2", "output3", "output4", "output5", "output6", "output7"];

/// Nothing is known of its configuration.
const LAYOUT: ConfigLayout = ConfigLayout { sizes: &[], fields: &[] };

/// The stage.
pub(super) struct Unknown {
    inputs: usize,
    outputs: usize,
    config: Config,
    why: Error,
}

impl Unknown {
    /// The stage called `name`, which cannot be inverted because of `why`.
    ///
    /// # Errors
    /// Never fails with a layout without fields.
    pub(super) fn new(name: &'static str, config: &Cursor, inputs: usize, outputs: usize, why: Error) -> Result<Self> {
        Ok(Self { inputs, outputs, config: Config::read(name, &LAYOUT, config, outputs)?, why })
    }
}

impl Stage for Unknown {
    fn config(&self) -> &Config {
        &self.config
    }

    fn ports(&self) -> &[&'static str] {
        PORTS.get(..self.outputs).unwrap_or(&PORTS)
    }

    fn inputs(&self) -> usize {
        self.inputs
    }

    fn input_type(&self, _input: usize) -> DataType {
        DataType::Opaque
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn summary(&self) -> Vec<String> {
        vec!["unknown".to_owned()]
    }

    fn unknown(&self) -> Option<&Error> {
        Some(&self.why)
    }

    fn invert(&self, _outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        Err(self.why.clone())
    }
}
