//! Every stage type over configurations and streams of any bytes: no panic, no memory beyond the account, an end.
//!
//! The cases come from the rows of [`STAGES`], so that a new stage is tested without another line.

use std::sync::Arc;

use super::config::FieldKind;
use super::testing::{Memory, Random};
use super::{Context, STAGES, StageType, parse};
use crate::account::{Account, decode_budget};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::format::fzm::stream::ByteStream;
use crate::limits::Limits;

/// Memory and disk space of a case.
const MEMORY: u64 = 8 << 20;
const SPILL: u64 = 8 << 20;
/// Cases of each size of a configuration.
const CASES: usize = 150;
/// The longest window.
const WINDOW: u64 = 64 << 10;

/// A number that a field may hold: small, a size of the format, or extreme.
fn number(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.below(64),
        3 => (1 << random.below(33)) - 1,
        4 => [16384, 4096, 1024, 128, 32][random.below(5) as usize],
        5 => random.next(),
        _ => random.below(70),
    }
}

/// A configuration of `len` bytes: mostly values that parse, so that most cases get to the streams.
fn config(row: &StageType, len: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for field in row.layout.fields.iter().filter(|field| field.is_in(len)) {
        let value = match field.kind {
            FieldKind::Zero(_) => 0,
            FieldKind::Hole(_) => random.next(),
            FieldKind::ElementType => random.below(10),
            FieldKind::Mode => random.below(4),
            FieldKind::Flag | FieldKind::Boolean => random.below(2),
            FieldKind::F32 if random.below(4) > 0 => u64::from(0.01_f32.to_bits()),
            FieldKind::F64 if random.below(4) > 0 => 0.01_f64.to_bits(),
            _ => number(random),
        };
        let value = value.to_le_bytes();
        let n = field.size().min(value.len());
        bytes[field.at..field.at + n].copy_from_slice(&value[..n]);
    }
    bytes
}

/// A stream: random, sparse, or numbers as headers have them.
fn stream(random: &mut Random) -> Vec<u8> {
    let len = random.below(600) as usize;
    match random.below(3) {
        0 => random.bytes(len),
        1 => (0..len).map(|_| if random.below(8) == 0 { random.next() as u8 } else { 0 }).collect(),
        _ => (0..len / 4).flat_map(|_| (number(random) as u32).to_le_bytes()).collect(),
    }
}

/// Inverts a stage of type `row` with `config`, and reads some windows.
fn run(row: &StageType, config: &[u8], random: &mut Random, account: &Account) {
    let cursor = Cursor::new(config, FileOffset(0));
    let cx = Context { account: account.clone(), limits: Limits::default(), stored: 4096 };
    for (inputs, outputs) in (1..=3).flat_map(|inputs| (1..=4).map(move |outputs| (inputs, outputs))) {
        let Ok(stage) = parse(0, row.code, &cursor, inputs, outputs) else { return };
        if stage.unknown().is_some() {
            continue;
        }
        let ports = (0..outputs).map(|_| Arc::new(Memory(stream(random))) as Arc<dyn ByteStream>).collect();
        let Ok(inverses) = decode_budget::build(account, 64 << 20, || stage.invert(ports, &cx)) else { continue };
        assert_eq!(inverses.len(), inputs, "{}", row.name);
        for inverse in inverses.iter().filter(|inverse| !inverse.is_empty()) {
            for _ in 0..3 {
                let at = random.below(inverse.len());
                let len = (inverse.len() - at).min(1 + random.below(WINDOW));
                let mut dst = vec![0; len as usize];
                // Broken bytes are an error, and nothing else.
                drop(decode_budget::request(account, to_u64(dst.len()), || inverse.read(at, &mut dst)));
            }
        }
    }
}

#[test]
fn any_configuration_over_any_streams_ends_within_the_account() {
    for row in STAGES {
        let account = Account::new(MEMORY, SPILL);
        let mut random = Random(u64::from(row.code) + 1);
        let sizes = if row.layout.sizes.is_empty() { &[1, 5, 9, 17, 128] } else { row.layout.sizes };
        for &len in sizes {
            for _ in 0..CASES {
                let config = config(row, len, &mut random);
                run(row, &config, &mut random, &account);
            }
        }
        let peaks = account.peaks();
        assert!(peaks.memory <= MEMORY && peaks.disk <= SPILL, "{}: {peaks:?}", row.name);
        assert_eq!((account.memory().used(), account.disk().used()), (0, 0), "{}", row.name);
    }
}
