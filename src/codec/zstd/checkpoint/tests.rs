//! Pieces read from every checkpoint against the plain content.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::super::decode::{FrameDecoder, WindowMemory};
use super::super::frame_scan::scan_known_frames;
use super::*;
use crate::account::Account;
use crate::checksum::Threads;
use crate::limits::{Charge, Limits};
use crate::source::Source;

/// Keeps all checkpoints, packed.
struct All {
    window: u64,
    spacing: u64,
    account: Account,
    kept: Mutex<Packed>,
    /// How often memory for a window was taken.
    charges: AtomicUsize,
}

impl All {
    fn new(window: u64, spacing: u64, account: &Account) -> Arc<Self> {
        let (kept, charges) = Default::default();
        Arc::new(Self { window, spacing, account: account.clone(), kept, charges })
    }

    /// The checkpoints; each window was dropped before the next one, so that they all had the same memory.
    fn take(&self) -> Packed {
        assert!(self.charges.load(Ordering::Relaxed) <= 1);
        std::mem::take(&mut *self.kept.lock().unwrap())
    }
}

impl Sink for All {
    fn next(&self, pos: u64) -> Option<u64> {
        let last = self.kept.lock().unwrap().last().map_or(0, |(state, _)| state.pos);
        Some(pos.max(last + self.spacing).max(self.window))
    }

    fn charge(&self, bytes: u64) -> Option<Charge> {
        self.charges.fetch_add(1, Ordering::Relaxed);
        self.account.charge(bytes, "window").ok()
    }

    fn may_stay(&self, bytes: u64) -> bool {
        bytes <= self.account.memory().total()
    }

    fn keep(self: Arc<Self>, state: DecoderState, history: History) -> bool {
        let packed = Packer::default().pack(&state, history.bytes()).unwrap().to_vec();
        self.kept.lock().unwrap().push((state, packed));
        true
    }
}

pub(in super::super) fn frame_of(source: &Source) -> Frame {
    let range = FileOffset(0)..FileOffset(source.len());
    scan_known_frames(source, range, &Limits::default(), &Account::new(1 << 30, 0)).unwrap().frames.get(0).unwrap()
}

fn decoder(frame: &Frame, account: &Account) -> FrameDecoder {
    FrameDecoder::new(frame, None, 1 << 31, WindowMemory::Own(None), account).unwrap()
}

/// Decodes all that `decoder` gives.
pub(in super::super) fn rest(
    decoder: &mut FrameDecoder,
    source: &Source,
    frame: &Frame,
) -> crate::error::Result<Vec<u8>> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 100_003]);
    loop {
        let n = decoder.fill(source, frame, &mut piece)?;
        all.extend_from_slice(&piece[..n]);
        if n < piece.len() {
            return Ok(all);
        }
    }
}

/// Checkpoints, packed.
type Packed = Vec<(DecoderState, Vec<u8>)>;

/// The checkpoints that decoding `file` makes, about `spacing` bytes apart, and the content.
fn checkpoints(file: &[u8], spacing: u64, threads: usize) -> (Arc<Source>, Frame, Packed, Vec<u8>) {
    let source = Source::from_bytes(file.to_vec());
    let frame = frame_of(&source);
    let account = Account::new(1 << 30, 0);
    let window = frame.header.window;
    let all = All::new(window, spacing, &account);
    let on_threads = FrameDecoder::on_threads(&frame, None, 1 << 31, &account, &Threads::new(threads)).unwrap();
    assert_eq!(on_threads.is_some(), threads > 1);
    let mut first = on_threads.unwrap_or_else(|| decoder(&frame, &account));
    first.record(|recorder| recorder.record(all.clone(), window, spacing));
    let content = rest(&mut first, &source, &frame).unwrap();
    (source, frame, all.take(), content)
}

/// Checks that decoding from each checkpoint gives the rest of the content; returns how many there are.
fn check(name: &str, file: &[u8], spacing: u64, threads: usize) -> usize {
    let (source, frame, kept, content) = checkpoints(file, spacing, threads);
    for (state, packed) in &kept {
        let resume = unpack(packed, &frame).unwrap();
        assert_eq!(resume.state, *state, "{name}");
        let mut decoder = FrameDecoder::resume(&frame, &resume, None).unwrap();
        let rest = rest(&mut decoder, &source, &frame).unwrap_or_else(|e| panic!("{name} at {}: {e}", state.pos));
        assert!(rest == content[state.pos as usize..], "{name} at {}", state.pos);
    }
    kept.len()
}

pub(in super::super) fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Contents of different kinds, of at least `len` bytes.
pub(in super::super) fn contents(len: usize) -> Vec<(&'static str, Vec<u8>)> {
    let seed = &mut 0x9E37_79B9_7F4A_7C15;
    let words: Vec<String> = (0..3000).map(|_| format!("{:x}", random(seed) >> (random(seed) % 50))).collect();
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(words[(random(seed) % 3000 * (random(seed) % 3000) / 3000) as usize].bytes());
        text.push(b' ');
    }
    // Fields at fixed distances: repeat offsets.
    let mut table = Vec::new();
    while table.len() < len {
        let row = random(seed);
        table.extend((table.len() as u32 / 24).to_le_bytes());
        table.extend([1, 0, 0, 0, (row & 3) as u8, 0, 0, 0, (row >> 9 & 1) as u8, 7, 7, 7, (row >> 20) as u8, 0, 0, 0]);
        table.extend((row as u32 % 5000).to_be_bytes());
    }
    let noise: Vec<u8> = (0..len).map(|_| random(seed) as u8).collect();
    let mut mixed = Vec::new();
    while mixed.len() < len {
        let n = (random(seed) % 300_000) as usize;
        let from = (random(seed) as usize) % (len / 2);
        match random(seed) % 4 {
            0 => mixed.extend_from_slice(&noise[from..len.min(from + n)]),
            1 => mixed.resize(mixed.len() + n, (random(seed) & 3) as u8),
            2 => mixed.extend_from_slice(&text[from..len.min(from + n)]),
            _ => mixed.extend_from_slice(&table[from..len.min(from + n)]),
        }
    }
    let few: Vec<u8> = text.iter().map(|byte| byte & 1).collect();
    let zeros = vec![0; len];
    vec![("text", text), ("table", table), ("noise", noise), ("mixed", mixed), ("two symbols", few), ("zeros", zeros)]
}

pub(in super::super) fn compress(content: &[u8], level: i32, window_log: u32, is_long: bool) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), level).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.long_distance_matching(is_long).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// The start of `content`, for the levels at which libzstd takes a second for a MiB.
pub(in super::super) fn short_if_slow(content: &[u8], level: i32) -> &[u8] {
    if level < 19 { content } else { &content[..content.len() / 4] }
}

#[test]
fn decoding_from_every_checkpoint_gives_the_same_bytes() {
    let contents = contents(2 << 20);
    for (name, content) in &contents {
        for (level, window_log) in [(-5, 17), (1, 10), (1, 18), (3, 12), (3, 19), (9, 16), (19, 18)] {
            let is_long = window_log == 19;
            let content = short_if_slow(content, level);
            let file = compress(content, level, window_log, is_long);
            let spacing = content.len() / 12 + (1 << window_log);
            for threads in [1, 2] {
                let name = format!("{name}, level {level}, window 2^{window_log}, {threads} threads");
                let count = check(&name, &file, spacing as u64, threads);
                // Nearly every plan finds a boundary.
                assert!(count >= content.len() / spacing / 2, "{name}: {count}");
            }
        }
    }
}

#[test]
fn a_frame_that_is_cut_off_resumes_up_to_its_end() {
    let content = &contents(3 << 20)[3].1;
    let file = compress(content, 3, 17, false);
    for cut in [file.len() / 2, file.len() - 3] {
        for threads in [1, 2] {
            let (_, frame, kept, got) = checkpoints(&file[..cut], 300_000, threads);
            assert!(frame.is_cut && kept.len() >= 3 && content.starts_with(&got));
            check("cut off", &file[..cut], 300_000, threads);
        }
    }
}

#[test]
fn content_in_a_buffer_gives_the_same_checkpoints() {
    let content = &contents(3 << 20)[3].1;
    let file = compress(content, 3, 17, false);
    let (source, frame, streamed, _) = checkpoints(&file, 300_000, 1);
    let account = Account::new(1 << 30, 0);
    let all = All::new(1 << 17, 300_000, &account);
    let mut in_place = FrameDecoder::new(&frame, None, 1 << 31, WindowMemory::InPlace, &account).unwrap();
    in_place.record(|recorder| recorder.record(all.clone(), 1 << 17, 300_000));
    let mut whole = vec![0; content.len()];
    let mut at = 0;
    while at < content.len() {
        at = in_place.extend(&source, &frame, &mut whole, at, at + 1).unwrap();
    }
    assert!(streamed.len() >= 5 && all.take() == streamed);
}

#[test]
fn a_checkpoint_that_is_broken_or_of_another_frame_is_refused() {
    let contents = contents(1 << 20);
    let file = compress(&contents[3].1, 3, 14, false);
    let (source, frame, kept, content) = checkpoints(&file, 100_000, 1);
    let (state, packed) = &kept[kept.len() / 2];
    for len in 0..packed.len().min(400) {
        assert!(unpack(&packed[..len], &frame).is_err());
    }
    let other = frame_of(&Source::from_bytes(compress(&contents[3].1, 3, 15, false)));
    assert!(unpack(packed, &other).is_err(), "another window");
    let seed = &mut 1;
    for _ in 0..2000 {
        let mut broken = packed.clone();
        for _ in 0..=random(seed) % 3 {
            let at = random(seed) as usize % broken.len().min(600);
            broken[at] = random(seed) as u8;
        }
        // A wrong state gives wrong bytes, or an error; what is kept is authenticated.
        let Ok(resume) = unpack(&broken, &frame) else { continue };
        let Ok(mut decoder) = FrameDecoder::resume(&frame, &resume, None) else { continue };
        _ = rest(&mut decoder, &source, &frame);
    }
    assert!(content.len() as u64 > state.pos);
}

#[test]
fn broken_blocks_after_a_checkpoint_are_an_error_or_other_bytes_and_no_panic() {
    let content = &contents(1 << 20)[3].1;
    let file = compress(content, 3, 14, false);
    let (_, frame, kept, _) = checkpoints(&file, 100_000, 1);
    let (state, packed) = &kept[0];
    let resume = unpack(packed, &frame).unwrap();
    let seed = &mut 7;
    for _ in 0..200 {
        let mut broken = file.clone();
        let (from, to) = (state.at.0 as usize, file.len());
        for _ in 0..=random(seed) % 4 {
            broken[from + random(seed) as usize % (to - from)] = random(seed) as u8;
        }
        let source = Source::from_bytes(broken);
        let mut decoder = FrameDecoder::resume(&frame, &resume, None).unwrap();
        _ = rest(&mut decoder, &source, &frame);
    }
}

#[test]
fn only_frames_with_a_window_much_smaller_than_their_content_have_checkpoints() {
    let frame = frame_of(&Source::from_bytes(compress(&vec![7; 1 << 20], 1, 12, false)));
    assert_eq!(spacing(&frame), None, "too short");
    let with = |window: u64, content: u64| {
        let mut frame = frame.clone();
        (frame.header.window, frame.content, frame.bound) = (window, Some(content), content);
        spacing(&frame)
    };
    assert_eq!(with(1 << 12, 32 << 20), Some(LEAST));
    assert_eq!(with(1 << 12, (32 << 20) - 1), None);
    assert_eq!(with(8 << 20, 128 << 20), Some(64 << 20));
    assert_eq!(with(128 << 20, 128 << 20), None);
    assert_eq!(with((1 << 20) + 5 * (1 << 17), 64 << 20), Some(LEAST));
    assert_eq!(with((1 << 20) + 1, 64 << 20), None, "a single segment");
}
