//! GPULZ (section 5 of the LC stages): words and repetitions, in small chunks.

use crate::Result;
use crate::dtype::Dtype;
use crate::elements::Record;
use crate::spec::Params;
use crate::stage::{Encoded, Stage};

#[derive(Debug)]
pub(crate) struct Gpulz {
    chunk: usize,
    word: usize,
    split: bool,
    config: usize,
}

impl Gpulz {
    pub(crate) fn new(p: &mut Params) -> Result<Self> {
        let stage = Self {
            chunk: p.one_of("chunk", &[2048, 1024, 4096])?,
            word: p.one_of("w", &[4, 1, 2, 8])?,
            split: p.flag("split")?,
            config: p.one_of("config", &[14, 10, 9])?,
        };
        if stage.split && stage.config == 9 { Err("the first configuration knows no split".into()) } else { Ok(stage) }
    }

    /// The items of a chunk: literals, and lengths and distances of matches.
    fn items<'a>(&self, chunk: &'a [u8]) -> Vec<Item<'a>> {
        let words: Vec<&[u8]> = chunk.chunks_exact(self.word).collect();
        let shortest = if self.word == 1 { 2 } else { 1 };
        let most = if self.config == 9 { 32 } else { 255 };
        let (mut items, mut at) = (Vec::new(), 0);
        while at < words.len() {
            let length = |by: usize| (at..words.len()).take(most).take_while(|&i| words[i] == words[i - by]).count();
            let best = (1..=at.min(32)).map(|by| (length(by), by)).max_by_key(|&(n, by)| (n, usize::MAX - by));
            if let Some((n, by)) = best.filter(|&(n, _)| n >= shortest) {
                items.push(Item::Match([n as u8, by as u8]));
                at += n;
            } else {
                items.push(Item::Literal(words[at]));
                at += 1;
            }
        }
        items
    }
}

#[derive(Clone, Copy)]
enum Item<'a> {
    Literal(&'a [u8]),
    Match([u8; 2]),
}

/// The outputs in split mode.
#[derive(Default)]
struct Parts {
    literals: Vec<u8>,
    lengths: Vec<u8>,
    offsets: Vec<u8>,
    table: Vec<u8>,
    flags: Vec<u8>,
    /// Everything in one sequence, when not split.
    bodies: Vec<u8>,
}

impl Parts {
    fn add(&mut self, stage: &Gpulz, chunk: &[u8]) {
        let entry = |flags: u32, data: usize| Record::default().u32(flags).u32(data as u32).0;
        if stage.config != 9 && chunk.iter().all(|&byte| byte == 0) {
            return self.table.extend(entry(0, 0));
        }
        let items = stage.items(chunk);
        let mut flags = vec![0; items.len().div_ceil(8)];
        let mut data = Vec::new();
        for (i, item) in items.iter().enumerate() {
            match item {
                Item::Literal(word) => data.extend(*word),
                Item::Match(pair) => {
                    flags[i / 8] |= 1 << (i % 8);
                    data.extend(pair);
                }
            }
        }
        if flags.len() + data.len() >= chunk.len() {
            self.table.extend(entry(1 << 31, chunk.len()));
            self.literals.extend(chunk);
            return self.bodies.extend(chunk);
        }
        self.table.extend(entry(flags.len() as u32, data.len()));
        self.bodies.extend(&flags);
        self.bodies.extend(&data);
        self.flags.extend(flags);
        for item in items {
            match item {
                Item::Literal(word) => self.literals.extend(word),
                Item::Match([length, offset]) => {
                    self.lengths.push(length);
                    self.offsets.push(offset);
                }
            }
        }
    }
}

/// Pads to whole 32-bit words.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

impl Stage for Gpulz {
    fn kind(&self) -> u16 {
        32
    }

    fn name(&self) -> &'static str {
        "gpulz"
    }

    fn output(&self) -> Dtype {
        Dtype::U8
    }

    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        let names: &[&str] = if self.split { &["literals", "lengths", "offsets", "meta"] } else { &["output"] };
        names.iter().map(|name| (*name, Dtype::U8)).collect()
    }

    fn alignment(&self) -> usize {
        if self.config == 14 { 1 } else { self.chunk }
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let total = input.len().next_multiple_of(self.chunk);
        if self.config != 14 && total != input.len() {
            return Err("not whole chunks".into());
        }
        let mut config = Record::default().u32(self.chunk as u32).u8(self.word as u8).u32(total as u32);
        config = config.u8(u8::from(self.split)).u32(input.len() as u32);
        config.0.truncate(self.config);
        let mut parts = Parts::default();
        let whole = [input, &vec![0; total - input.len()]].concat();
        whole.chunks_exact(self.chunk).for_each(|chunk| parts.add(self, chunk));
        let head = match total {
            0 => Vec::new(),
            _ => [Record::default().u32(total as u32).u32((total / self.chunk) as u32).0, parts.table].concat(),
        };
        let ports = if self.split {
            vec![parts.literals, parts.lengths, parts.offsets, [head, parts.flags].concat()]
        } else {
            vec![[head, parts.bodies].concat()]
        };
        Ok(Encoded { config: config.0, ports: ports.into_iter().map(|port| padded(port).into()).collect() })
    }
}
