//! Zstandard against the official encoder: any data, level, window and dictionary; frames with and without sizes and
//! checksums, mixed with skippable frames, as pzstd writes them, followed by a seek table.

use std::io::{Read as _, Write as _};
use std::sync::OnceLock;

use ::zstd::stream::{read, write};
use fzm_writer::Random;
use fzmfs::account::{Account, Pieces};
use fzmfs::format::Options;
use fzmfs::view::View;
use proptest::prelude::*;
use proptest::sample::Index;
use xxhash_rust::xxh64::xxh64;

use crate::support::opened::{self as support, Plain, numbered};

/// Bytes of one of five kinds.
fn data(kind: u8, len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let noise = |random: &mut Random, len| (0..len).map(|_| random.bits() as u8).collect::<Vec<u8>>();
    match kind {
        0 => noise(&mut random, len),
        1 => vec![seed as u8; len],
        // Few symbols, some of them rare.
        2 => (0..len).map(|_| b"aaaaaaaaeeeeettt  rn\n"[random.below(21)]).collect(),
        // Repetitions at short and long distances.
        3 => {
            let mut out = noise(&mut random, 64.min(len));
            while out.len() < len {
                let back = random.below(out.len()) + 1;
                let n = (random.below(200) + 3).min(len - out.len());
                let from = out.len() - back;
                (0..n).for_each(|i| out.push(out[from + i]));
                out.push(random.bits() as u8);
            }
            out.truncate(len);
            out
        }
        // Noise that repeats at a long distance.
        _ => noise(&mut random, len / 3 + 1).into_iter().cycle().take(len).collect(),
    }
}

/// What all frames of a file are compressed with.
#[derive(Debug, Clone, Copy)]
enum Dictionary {
    None,
    Trained,
    Raw,
}

impl Dictionary {
    fn bytes(self) -> &'static [u8] {
        static MADE: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
        let [trained, raw] = MADE.get_or_init(|| {
            let samples: Vec<Vec<u8>> = (0..300).map(|i| data(2, 300, i % 40)).collect();
            [::zstd::dict::from_samples(&samples, 8000).unwrap(), data(2, 5000, 7)]
        });
        match self {
            Self::None => &[],
            Self::Trained => trained,
            Self::Raw => raw,
        }
    }
}

/// What precedes a frame.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    Skippable {
        nibble: u8,
        len: usize,
    },
    /// The size of the frame, as pzstd writes it.
    Size,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the header")]
struct Frame {
    kind: u8,
    len: usize,
    seed: u64,
    level: i32,
    window: u32,
    long: bool,
    has_size: bool,
    has_checksum: bool,
    /// Whether it names its dictionary.
    has_id: bool,
    before: Before,
}

impl Frame {
    fn compress(&self, content: &[u8], dictionary: Dictionary) -> Vec<u8> {
        let mut encoder = write::Encoder::with_dictionary(Vec::new(), self.level, dictionary.bytes()).unwrap();
        encoder.window_log(self.window).unwrap();
        encoder.long_distance_matching(self.long).unwrap();
        encoder.include_checksum(self.has_checksum).unwrap();
        encoder.include_dictid(self.has_id).unwrap();
        encoder.include_contentsize(self.has_size).unwrap();
        encoder.set_pledged_src_size(self.has_size.then_some(content.len() as u64)).unwrap();
        // In two writes: without a size, the first one ends a block.
        let (head, tail) = content.split_at(content.len() / 3);
        encoder.write_all(head).unwrap();
        encoder.flush().unwrap();
        encoder.write_all(tail).unwrap();
        encoder.finish().unwrap()
    }
}

fn frame(len: std::ops::Range<usize>, level: std::ops::RangeInclusive<i32>) -> impl Strategy<Value = Frame> {
    let before = prop_oneof![
        3 => Just(Before::Nothing),
        // One of 4 bytes would be a size as pzstd writes it.
        1 => (0..16_u8, 5..40_usize).prop_map(|(nibble, len)| Before::Skippable { nibble, len }),
        1 => Just(Before::Size),
    ];
    let of_data = (0..5_u8, len, any::<u64>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (of_data, level, 10..25_u32, flags, before).prop_map(
        |((kind, len, seed), level, window, (long, has_size, has_checksum, has_id), before)| {
            // The memory of an encoder grows with level and window.
            let window = if level > 15 { window.min(19) } else { window };
            Frame { kind, len, seed, level, window, long, has_size, has_checksum, has_id, before }
        },
    )
}

/// A file and its expected content.
struct Computed {
    file: Vec<u8>,
    contents: Vec<Vec<u8>>,
    stored: Vec<Vec<u8>>,
    skipped: Vec<Vec<u8>>,
}

fn skippable(nibble: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x50 | nibble, 0x2A, 0x4D, 0x18], &(payload.len() as u32).to_le_bytes()[..], payload].concat()
}

/// Concatenates frames; `table`: followed by a seek table, with checksums or without.
fn make(frames: &[Frame], dictionary: Dictionary, table: Option<bool>) -> Computed {
    let mut made = Computed { file: Vec::new(), contents: Vec::new(), stored: Vec::new(), skipped: Vec::new() };
    let mut rows = Vec::new();
    let mut row = |stored: usize, content: &[u8]| {
        rows.extend([stored as u32, content.len() as u32].map(u32::to_le_bytes).concat());
        if table == Some(true) {
            rows.extend((xxh64(content, 0) as u32).to_le_bytes());
        }
    };
    for frame in frames {
        let content = data(frame.kind, frame.len, frame.seed);
        let stored = frame.compress(&content, dictionary);
        let payload = match frame.before {
            Before::Nothing => None,
            Before::Skippable { nibble, len } => Some((nibble, data(0, len, frame.seed))),
            Before::Size => Some((0, (stored.len() as u32).to_le_bytes().to_vec())),
        };
        if let Some((nibble, payload)) = payload {
            made.file.extend(skippable(nibble, &payload));
            row(payload.len() + 8, &[]);
            made.skipped.push(payload);
        }
        made.file.extend(&stored);
        row(stored.len(), &content);
        made.stored.push(stored);
        made.contents.push(content);
    }
    if let Some(checksums) = table {
        let count = rows.len() / if checksums { 12 } else { 8 };
        rows.extend((count as u32).to_le_bytes());
        rows.extend([u8::from(checksums) << 7, 0xB1, 0xEA, 0x92, 0x8F]);
        made.file.extend(skippable(0xE, &rows));
        made.skipped.push(rows);
    }
    made
}

/// The order in which windows are read.
#[derive(Debug, Clone, Copy)]
enum Order {
    Forward,
    Backward,
    Random,
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Forward), Just(Order::Backward), Just(Order::Random)]
}

/// Windows of `len` bytes.
fn windows(of: &[(Index, usize)], order: Order, len: usize) -> Vec<std::ops::Range<usize>> {
    let window = |(at, n): &(Index, usize)| {
        let at = at.index(len + 1);
        at..at + n % (len - at + 1)
    };
    let mut windows: Vec<_> = of.iter().map(window).collect();
    match order {
        Order::Forward => windows.sort_by_key(|w| w.start),
        Order::Backward => windows.sort_by_key(|w| std::cmp::Reverse(w.start)),
        Order::Random => {}
    }
    windows
}

/// Opens the file and reads it in several orders.
fn check(
    made: &Computed,
    dictionary: Dictionary,
    mut options: Options,
    at: &[(Index, usize)],
    order: Order,
    has_table: bool,
) -> Result<(), TestCaseError> {
    let place = tempfile::tempdir().unwrap();
    if !matches!(dictionary, Dictionary::None) {
        options.dicts.push(place.path().join("dict"));
        std::fs::write(&options.dicts[0], dictionary.bytes()).unwrap();
    }
    let whole = made.contents.concat();
    let mut official = Vec::new();
    let mut decoder = read::Decoder::with_dictionary(&*made.file, dictionary.bytes()).unwrap();
    decoder.read_to_end(&mut official).unwrap();
    prop_assert!(official == whole);
    let container = support::open(made.file.clone(), &options).unwrap();
    prop_assert_eq!(container.info().details.get("seek_table").is_some_and(|t| t["frames"].is_u64()), has_table);
    let read = |file: &fzmfs::format::File| support::read(file).unwrap();
    // Windows first: nothing has been decoded yet.
    let file = support::file(&*container, "data.raw").unwrap();
    let view = View::new(&file.content, &Plain).unwrap();
    prop_assert_eq!(view.len(), whole.len() as u64);
    for window in windows(at, order, whole.len()) {
        let mut got = vec![0xA5; window.len()];
        view.read(window.start as u64, &mut got, &Plain).unwrap();
        prop_assert!(got == whole[window.clone()], "{:?}", window);
        let range = window.start as u64..window.end as u64;
        if let Some(fragments) = view.by_fragments(&range, &|_, _| false) {
            got.fill(0x5A);
            fragments.read(range.start, &mut got, &Plain).unwrap();
            prop_assert!(got == whole[window.clone()], "fragments of {:?}", window);
        }
    }
    prop_assert!(read(&file) == whole, "data.raw");
    for (dir, want) in [("chunks", &made.contents), ("stored", &made.stored), ("skippable", &made.skipped)] {
        let files = numbered(&*container, dir);
        prop_assert_eq!(files.len(), want.len(), "{}", dir);
        for (number, (file, want)) in files.iter().zip(want).enumerate() {
            prop_assert!(read(file.as_ref().unwrap()) == *want, "{} {}", dir, number);
        }
    }
    support::verify(&*container).map_err(|e| TestCaseError::fail(e.to_string()))
}

fn cases(usual: u32) -> ProptestConfig {
    ProptestConfig { cases: crate::support::cases(usual), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(48))]

    /// Frames of up to a few blocks, several in a piece.
    #[test]
    fn files_of_the_official_encoder_decode(
        frames in prop::collection::vec(frame(0..200_000, -5..=22), 1..7),
        dictionary in prop_oneof![2 => Just(Dictionary::None), 1 => Just(Dictionary::Trained), 1 => Just(Dictionary::Raw)],
        table in prop::option::of(any::<bool>()),
        at in prop::collection::vec((any::<Index>(), 0..70_000_usize), 0..20),
        order in order(),
    ) {
        let made = make(&frames, dictionary, table);
        check(&made, dictionary, Options::default(), &at, order, table.is_some())?;
    }
}

proptest! {
    #![proptest_config(cases(8))]

    /// Frames that are read piece by piece, with and without a temporary file.
    #[test]
    fn long_frames_are_read_in_any_order(
        frames in prop::collection::vec(frame(2 << 20..6 << 20, -5..=3), 1..3),
        small in frame(0..5000, 1..=3),
        table in prop::option::of(any::<bool>()),
        at in prop::collection::vec((any::<Index>(), 0..3_000_000_usize), 8),
        order in order(),
        scratch in prop_oneof![Just(0), Just(3 << 20), Just(64 << 20_u64)],
    ) {
        let made = make(&[&frames[..], &[small]].concat(), Dictionary::None, table);
        let pieces = Pieces::new(Account::new(scratch / 4, scratch));
        let options = Options { pieces, ..Options::default() };
        check(&made, Dictionary::None, options, &at, order, table.is_some())?;
    }
}
