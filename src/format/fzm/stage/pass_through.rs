//! `PassThrough` (type 4, section 5.11): the identity; only readers before 2026-04-18 accept it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::config::{Config, ConfigLayout};
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::error::Result;
use crate::format::fzm::stream::ByteStream;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 4,
    name: "pass_through",
    family: Family::Shuffler,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(PassThrough { config })),
};

const LAYOUT: ConfigLayout = ConfigLayout { sizes: &[0], fields: &[] };

/// The identity.
struct PassThrough {
    config: Config,
}

impl Stage for PassThrough {
    fn input_type(&self, _input: usize) -> DataType {
        DataType::Opaque
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        Vec::new()
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [output] = exactly(outputs)?;
        Ok(vec![output])
    }
}
