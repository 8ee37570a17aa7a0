//! The pipeline against libzstd.

use super::super::checkpoint::tests::{compress, contents, frame_of, random, rest, short_if_slow};
use super::super::decode::{FrameDecoder, WindowMemory};
use super::*;

/// The content of `file`, decoded on `threads` threads; by libzstd if there is only one.
fn decoded(file: &[u8], threads: &Threads) -> Result<Vec<u8>> {
    let (source, account) = (Source::from_bytes(file.to_vec()), Account::new(1 << 30, 0));
    let frame = frame_of(&source);
    crate::clock::wait_until(|| threads.most() == 1 || threads.is_free());
    let decoder = FrameDecoder::on_threads(&frame, None, 1 << 31, &account, threads)?;
    assert_eq!(decoder.is_some(), threads.most() > 1);
    let lib = || FrameDecoder::new(&frame, None, 1 << 31, WindowMemory::Own(None), &account);
    let content = rest(&mut decoder.map_or_else(lib, Ok)?, &source, &frame);
    crate::clock::wait_until(|| account.memory().used() == 0);
    content
}

#[test]
fn frames_of_every_kind_decode_to_their_content() {
    let all = [2, 9].map(Threads::new);
    for (name, content) in &contents(2 << 20) {
        for (level, window_log, is_long) in [
            (-5, 17, false),
            (1, 10, false),
            (3, 12, false),
            (3, 21, true),
            (6, 18, false),
            (12, 20, false),
            (19, 22, false),
            (22, 19, true),
        ] {
            let content = short_if_slow(content, level);
            let file = compress(content, level, window_log, is_long);
            for threads in &all {
                let name = format!("{name}, level {level}, window 2^{window_log}, {} threads", threads.most());
                let got = decoded(&file, threads).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(got == content, "{name}");
            }
        }
    }
}

#[test]
fn what_libzstd_refuses_is_refused_and_what_is_decoded_has_the_same_bytes() {
    let (one, two) = (Threads::new(1), Threads::new(2));
    let contents = contents(300_000);
    let seed = &mut 11;
    let (mut refused, mut same, mut stricter) = (0, 0, 0);
    for (name, content) in &contents {
        for (level, has_checksum) in [(1, true), (3, false), (9, false), (19, false)] {
            let mut file = compress(content, level, 17, false);
            if !has_checksum {
                file[4] &= !4;
                file.truncate(file.len() - 4);
            }
            for _ in 0..60 {
                let mut broken = file.clone();
                for _ in 0..=random(seed) % 3 {
                    let at = 6 + random(seed) as usize % (file.len() - 6);
                    broken[at] = random(seed) as u8;
                }
                // Where no frame is found, there is nothing to decode.
                let range = FileOffset(0)..FileOffset(to_u64(broken.len()));
                let source = Source::from_bytes(broken.clone());
                let (limits, account) = (crate::limits::Limits::default(), Account::new(1 << 30, 0));
                let scan = super::super::frame_scan::scan_known_frames(&source, range, &limits, &account);
                if scan.map_or(true, |scan| scan.frames.get(0).is_none_or(|frame| frame.is_cut)) {
                    continue;
                }
                match (decoded(&broken, &one), decoded(&broken, &two)) {
                    (Ok(want), Ok(got)) => {
                        assert!(want == got, "{name}, level {level}");
                        same += 1;
                    }
                    (Err(_), Err(_)) => refused += 1,
                    // libzstd does not notice that the last symbol of a stream is longer than the rest of it.
                    (Ok(_), Err(e)) if e.to_string().contains("not consumed exactly") => stricter += 1,
                    (want, got) => panic!(
                        "{name}, level {level}: libzstd {:?}, pipeline {:?}",
                        want.map(|bytes| bytes.len()).map_err(|e| e.to_string()),
                        got.map(|bytes| bytes.len()).map_err(|e| e.to_string())
                    ),
                }
            }
        }
    }
    assert!(refused > 100 && same > 100 && stricter < same, "{refused} refused, {same} the same, {stricter} stricter");
}

#[test]
fn blocks_that_a_thread_has_begun_do_not_keep_their_memory_after_the_decoder() {
    let content = &contents(3 << 20)[0].1;
    let source = Source::from_bytes(compress(content, 3, 17, false));
    let (frame, account, threads) = (frame_of(&source), Account::new(1 << 30, 0), Threads::new(4));
    for _ in 0..20 {
        crate::clock::wait_until(|| threads.is_free());
        let mut decoder = FrameDecoder::on_threads(&frame, None, 1 << 31, &account, &threads).unwrap().unwrap();
        let mut some = [0; 1000];
        assert_eq!(decoder.fill(&source, &frame, &mut some).unwrap(), 1000);
        assert!(content.starts_with(&some));
    }
    crate::clock::wait_until(|| account.memory().used() == 0);
}

#[test]
fn a_decoder_takes_no_more_than_its_share_of_the_memory() {
    let source = Source::from_bytes(compress(&contents(3 << 20)[0].1, 3, 20, false));
    let (frame, threads) = (frame_of(&source), Threads::new(2));
    // The window of 1 MiB with the space behind it, and the blocks.
    for (memory, is_used) in [(8 << 20, false), (16 << 20, false), (32 << 20, true)] {
        let account = Account::new(memory, 0);
        let decoder = FrameDecoder::on_threads(&frame, None, 1 << 31, &account, &threads).unwrap();
        assert_eq!(decoder.is_some(), is_used, "{memory}");
        assert!(account.memory().used() <= memory / SHARE);
    }
}
