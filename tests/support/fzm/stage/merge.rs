//! Merge (type 11): several buffers as one.

use std::borrow::Cow;

use super::{Encoded, Reads, Stage};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::Record;
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct Merge {
    names: Vec<&'static str>,
    /// Whether the configuration has the names.
    is_named: bool,
}

impl Merge {
    pub(crate) fn new(p: &mut Params, inputs: &[Reads]) -> Result<Self> {
        let is_named = p.take("names", 1)? == 1;
        Ok(Self { names: inputs.iter().map(|input| input.name).collect(), is_named })
    }
}

impl Stage for Merge {
    fn kind(&self) -> u16 {
        11
    }

    fn name(&self) -> &'static str {
        "merge"
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode_all(&self, inputs: &[&[u8]], _: &[bool]) -> Result<Encoded> {
        let sizes = inputs.iter().map(|input| input.len() as u32);
        let mut config = sizes.fold(Record::default().u8(inputs.len() as u8), Record::u32).0;
        if self.is_named {
            self.names.iter().for_each(|name| {
                config.push(name.len() as u8);
                config.extend(name.as_bytes());
            });
        }
        if inputs.len() > 8 || config.len() > 128 {
            return Err("more inputs, or longer names, than a configuration holds".into());
        }
        Ok(Encoded::one(config, inputs.concat()))
    }

    fn inverse_all<'a>(&self, inputs: &[&'a [u8]], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Vec<Cow<'a, [u8]>>> {
        let mut from = 0;
        let piece = |input: &&'a [u8]| {
            let at = from;
            from += input.len();
            match ports {
                None => Cow::Borrowed(*input),
                Some(ports) => Cow::Owned(ports[0][at..from].to_vec()),
            }
        };
        Ok(inputs.iter().map(piece).collect())
    }
}
