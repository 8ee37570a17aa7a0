//! The grammar of pipeline descriptions.
//!
//! `stage[:key=value[,key=value...]],stage...`: items are separated by commas; an item without `=`, or with
//! a `:`, begins a stage; `key=value` belongs to the stage before it. A stage reads the first output of
//! the stage before it, unless it says `from=K` (number of a stage, from 0; with `port=NAME` one of its
//! other outputs) or `from=input` (it is a source of its own: it reads the next array). Several inputs are joined by
//! `+`: `from=0.outlier_errors+0.outlier_indices+3`, where `K.NAME` is an output of stage K, and `inputK` the array of
//! that number, whether or not another stage reads it. `primary=1`: the stage is the primary source.
//!
//! | stage | keys |
//! | --- | --- |
//! | `lorenzo_quant` | `eb`, `mode=abs,noa,rel,prel`, `in`, `code`, `radius`, `cap`, `zigzag=1`, `shape=ZxYxX` or `none`, `config=44,40,32,64`, `ports=4,3`, `centering=1`, `type=1,12,13` |
//! | `quantizer` | `eb`, `mode=abs,noa,rel,prel`, `in`, `code`, `radius`, `cap`, `zigzag=1`, `threshold`, `inplace=1`, `linear=1`, `precise=1`, `dither=1`, `seed`, `strength`, `verify=1`, `pow2=1`, `config=36,28,48,52,56,72`, `ports=4,3` |
//! | `lorenzo` | `t`, `shape`, `block` (elements), `order=1,2`, `centering=1`, `config=16,20` |
//! | `difference` | `in`, `out`, `chunk` (bytes), `zigzag=1`, `config=6,1,0,7` |
//! | `rle` | `t`, `chunk` (bytes), `config=5,1,0,9` |
//! | `bitpack` | `t`, `bits`, `shift`, `base`, `adaptive=1`, `config=10,15` |
//! | `zigzag` | `t` (signed), `bytes=1`, `config=2,0,3` |
//! | `negabinary` | `t` (signed), `config=2,0` |
//! | `bitshuffle` | `w`, `block` |
//! | `rze`, `rre`, `rare`, `raze`, `clog`, `hclog` | `w` (bytes of a word; the first generation of `rze` without), `chunk` |
//! | `tupl` | `w`, `dim`, `block` |
//! | `gpulz` | `w`, `chunk`, `split=1`, `config=14,10,9` |
//! | `golomb_rice` | `t=i16,i32`, `config=9,5` |
//! | `pass_through` | |
//! | `huffman` | `t`, `bklen`, `sublen` |
//! | `adaptive_bitpack` | `t`, `block` (0 stands for 32), `select=1` |
//! | `tiled_lorenzo` | `t`, `shape`, `tile=ZxYxX` |
//! | `bitplane_rze` | `order` (a seed), `config=8,0` |
//! | `merge` | `names=0` |
//! | `adaptive_lorenzo` | `t`, `tile` (blocks of 32), `second=0`, `centre=0`, `select=1` |
//! | `szx`, `szp` | `eb`, `mode=abs,noa`, `block` (elements) |
//! | `cdf97` | `shape` |
//! | `cdf97_outlier_correct` | `eb`, `shape`; reads the field and its codes |
//! | `speck2d` | `shape` |
//! | `roibin_split` | `shape`, `peaks` (their number), `half`, `bin`, `seed` |
//! | `adm` | `t` |
//! | `ans` | |
//! | `ginterp` | `eb`, `code`, `radius`, `cap`, `alpha`, `beta`, `md`, `natural`, `reverse` (four digits, the finest level first), `shape`, `narrow=1` |
//! | `log_transform` | `eb`, `threshold`, `cap` |
//!
//! Types default to what the stage reads.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::Result;
use crate::dtype::Dtype;

/// One stage as described: its name and its keys.
#[derive(Debug, Clone)]
pub struct Item {
    /// `lorenzo_quant`.
    pub name: String,
    /// Where it gets its inputs; at least one.
    pub from: Vec<From>,
    /// Whether it is the primary source.
    pub primary: bool,
    /// All other keys.
    pub params: Params,
}

/// Where a stage gets its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// The first output of the stage before it, or the array for the first stage.
    Previous,
    /// The next array.
    Input,
    /// The array of this number.
    Array(usize),
    /// An output of a stage.
    Stage {
        /// Its number.
        stage: usize,
        /// The output's name; the first one where there is none.
        port: Option<String>,
    },
}

impl From {
    fn parse(text: &str) -> Result<Self> {
        let number = |n: &str| n.parse().map_err(|e| format!("from={text}: {e}"));
        match (text.strip_prefix("input"), text.split_once('.')) {
            (Some(""), _) => Ok(Self::Input),
            (Some(array), _) => number(array).map(Self::Array),
            (None, Some((stage, port))) => Ok(Self::Stage { stage: number(stage)?, port: Some(port.to_owned()) }),
            (None, None) => Ok(Self::Stage { stage: number(text)?, port: None }),
        }
    }
}

/// Keys and values of one stage; each is taken once, and what is left over is an error.
#[derive(Debug, Clone, Default)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    fn text(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// The value of `key`, or `default`.
    ///
    /// # Errors
    /// When the value does not parse.
    pub fn take<T: FromStr>(&mut self, key: &str, default: T) -> Result<T>
    where
        T::Err: Display,
    {
        self.text(key).map_or(Ok(default), |v| v.parse().map_err(|e| format!("{key}={v}: {e}")))
    }

    /// Whether `key` is 1.
    ///
    /// # Errors
    /// For anything but 0 and 1.
    pub fn flag(&mut self, key: &str) -> Result<bool> {
        match self.take(key, 0)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{key}={other}: must be 0 or 1")),
        }
    }

    /// The element type `key`, or `default`.
    ///
    /// # Errors
    /// For a word that is not a type.
    pub fn dtype(&mut self, key: &str, default: Dtype) -> Result<Dtype> {
        self.text(key).map_or(Ok(default), |v| Dtype::parse(&v))
    }

    /// The value of `key` if it is one of `allowed`; the first of them by default.
    ///
    /// # Errors
    /// For any other value.
    pub fn one_of(&mut self, key: &str, allowed: &[usize]) -> Result<usize> {
        let v = self.take(key, allowed[0])?;
        if allowed.contains(&v) { Ok(v) } else { Err(format!("{key}={v}: must be one of {allowed:?}")) }
    }

    /// `mode`: 0 absolute, 1 relative, 2 to the range of the values, 3 to the largest magnitude.
    ///
    /// # Errors
    /// For any other word.
    pub fn mode(&mut self) -> Result<u8> {
        match self.text("mode").as_deref() {
            None | Some("abs") => Ok(0),
            Some("rel") => Ok(1),
            Some("noa") => Ok(2),
            Some("prel") => Ok(3),
            Some(other) => Err(format!("mode={other}: must be abs, noa, rel or prel")),
        }
    }

    /// `shape`, slowest dimension first, as the format wants it: rank and x, y, z; `default` if there is none.
    ///
    /// # Errors
    /// For anything but one to three numbers, or `none`.
    pub fn dims(&mut self, default: &[u32]) -> Result<Dims> {
        match self.text("shape").as_deref() {
            None => Dims::of(default),
            Some("none") => Dims::of(&[]),
            Some(text) => Dims::of(&shape(text)?),
        }
    }

    /// All keys must have been taken.
    ///
    /// # Errors
    /// Names those that were not.
    pub fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("unknown keys {:?}", self.0.keys())) }
    }
}

/// A shape such as `1800x3600`.
///
/// # Errors
/// For anything but numbers with `x` between.
pub fn shape(text: &str) -> Result<Vec<u32>> {
    text.split('x').map(|n| n.parse().map_err(|e| format!("shape {text}: {e}"))).collect()
}

/// Dimensions as the configurations hold them.
#[derive(Debug, Clone, Copy)]
pub struct Dims {
    /// 1 to 3.
    pub rank: u8,
    /// Extents along x (fastest), y and z; x = 0 where it is not known.
    pub xyz: [u32; 3],
}

impl Dims {
    fn of(shape: &[u32]) -> Result<Self> {
        match *shape {
            [] => Ok(Self { rank: 1, xyz: [0, 1, 1] }),
            [x] => Ok(Self { rank: 1, xyz: [x, 1, 1] }),
            [y, x] => Ok(Self { rank: 2, xyz: [x, y, 1] }),
            [z, y, x] => Ok(Self { rank: 3, xyz: [x, y, z] }),
            _ => Err("a shape has at most three dimensions".into()),
        }
    }

    /// Extents of the `n` elements that a stage works on, and how many of them it predicts: a row of all of
    /// them where y and z do not matter. An x of 0 stands for as many as fit.
    ///
    /// # Errors
    /// When the shape holds more elements than there are.
    pub fn over(self, n: usize) -> Result<([usize; 3], usize)> {
        let [x, y, z] = self.xyz.map(|d| d as usize);
        let (y, z) = (y.max(1), z.max(1));
        if y == 1 && z == 1 {
            return Ok(([n, 1, 1], n));
        }
        let x = if x == 0 { n / (y * z) } else { x };
        let product = x * y * z;
        if product > n {
            Err(format!("the shape has {product} elements, the data {n}"))
        } else {
            Ok(([x, y, z], product))
        }
    }
}

/// Reads a description into its stages.
///
/// # Errors
/// Says which item is not understood.
pub fn parse(text: &str) -> Result<Vec<Item>> {
    let mut items: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for word in text.split(',').map(str::trim) {
        let (name, pair) = match word.split_once(':') {
            Some((name, pair)) => (Some(name), Some(pair)),
            None if word.contains('=') => (None, Some(word)),
            None => (Some(word), None),
        };
        if let Some(name) = name {
            items.push((name.to_owned(), BTreeMap::new()));
        }
        if let Some(pair) = pair {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair}: must be key=value"))?;
            let (_, params) = items.last_mut().ok_or_else(|| format!("{pair}: no stage before it"))?;
            params.insert(key.to_owned(), value.to_owned());
        }
    }
    items
        .into_iter()
        .map(|(name, mut keys)| {
            let port = keys.remove("port");
            let primary = keys.remove("primary").is_some_and(|v| v == "1");
            let from = match (keys.remove("from"), port) {
                (None, None) => vec![From::Previous],
                (None, Some(_)) => return Err(format!("{name}: port needs from")),
                (Some(stage), Some(port)) => vec![From::parse(&format!("{stage}.{port}"))?],
                (Some(list), None) => list.split('+').map(From::parse).collect::<Result<_>>()?,
            };
            Ok(Item { name, from, primary, params: Params(keys) })
        })
        .collect()
}
