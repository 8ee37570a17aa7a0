//! `verify=`, through the mount: what is served before the verdict, and what is left of it afterwards.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::mounts::{Mounted, can_mount, fzmfs, run, wait_until};

const LEN: usize = 9 << 20;

/// A Zstandard frame with a checksum, and what it decodes to; `wrong`: a byte close to the end is another.
fn frame(wrong: bool) -> (Vec<u8>, Vec<u8>) {
    let plain = crate::support::made::bytes(17, 0, LEN as u64);
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.set_pledged_src_size(Some(LEN as u64)).unwrap();
    std::io::Write::write_all(&mut encoder, &plain).unwrap();
    let mut frame = encoder.finish().unwrap();
    // Noise is stored as it is.
    let end = frame.len() - 1000;
    frame[end] ^= u8::from(wrong);
    (frame, plain)
}

/// A mounted file of one frame.
fn mounted(wrong: bool, verify: &str) -> (Mounted, Vec<u8>) {
    let (frame, plain) = frame(wrong);
    (mounted_file(&frame, verify), plain)
}

fn mounted_file(bytes: &[u8], verify: &str) -> Mounted {
    let place = Mounted::nothing();
    let file = file_of(&place);
    std::fs::write(&file, bytes).unwrap();
    let output = run(fzmfs()
        .args(["mount", "-o", &format!("verify={verify}"), "--log"])
        .arg(place.log())
        .arg(&file)
        .arg(&place.point));
    assert!(output.status.success(), "{output:?}");
    place
}

fn file_of(place: &Mounted) -> PathBuf {
    place.dir.path().join("some.zst")
}

/// The attribute `user.fzmfs.verified` of `data.raw`.
fn verified(place: &Mounted) -> String {
    verified_of(place, "data.raw")
}

fn verified_of(place: &Mounted, name: &str) -> String {
    let mut command = Command::new("getfattr");
    command.args(["--only-values", "-n", "user.fzmfs.verified"]).arg(place.path(name));
    String::from_utf8(run(&mut command).stdout).unwrap()
}

fn page(file: &File, at: usize) -> std::io::Result<[u8; 4096]> {
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, at as u64).map(|()| page)
}

#[test]
fn what_was_served_before_a_checksum_failed_is_withdrawn() {
    if !can_mount() {
        return;
    }
    let (place, plain) = mounted(true, "background");
    let file = File::open(place.path("data.raw")).unwrap();
    assert_eq!(verified(&place), "pending");
    assert!(page(&file, 0).unwrap() == plain[..4096], "the first byte does not wait for the last");
    assert!(page(&file, 2 << 20).unwrap() == plain[2 << 20..][..4096]);
    let all = std::fs::read(place.path("data.raw")).unwrap_err();
    assert_eq!(all.raw_os_error(), Some(libc::EIO));
    assert_eq!(verified(&place), "failed");
    // The kernel had these pages.
    wait_until("the kernel's pages are gone", || page(&file, 0).is_err() && page(&file, 2 << 20).is_err());
    assert_eq!(page(&file, LEN / 2).unwrap_err().raw_os_error(), Some(libc::EIO));
    // Through a mapping in a process of its own, which SIGBUS ends.
    let map = "import mmap, sys; f = open(sys.argv[1], 'rb'); print(mmap.mmap(f.fileno(), 0, prot=1)[0])";
    let output = run(Command::new("python3").args(["-c", map]).arg(place.path("data.raw")));
    assert!(!output.status.success(), "{output:?}");
    // In the words of our own decoder, or of libzstd where there is one thread.
    let words = ["content checksum", "match checksum"];
    wait_until("it is logged", || words.iter().any(|words| place.logged().contains(words)));
    assert!(std::fs::read(place.path("info.json")).is_ok());
}

#[test]
fn the_attribute_verified_says_what_is_known() {
    if !can_mount() {
        return;
    }
    for (mode, before, after) in
        [("background", "pending", "yes"), ("first", "pending", "yes"), ("auto", "pending", "yes"), ("off", "no", "no")]
    {
        let (place, plain) = mounted(false, mode);
        assert_eq!(verified(&place), before, "{mode}");
        assert!(std::fs::read(place.path("data.raw")).unwrap() == plain, "{mode}");
        assert_eq!(verified(&place), after, "{mode}");
    }
}

#[test]
fn the_attribute_verified_of_a_chunk_is_that_of_its_frame() {
    if !can_mount() {
        return;
    }
    let file = [frame(false).0, frame(true).0, frame(false).0].concat();
    let place = mounted_file(&file, "background");
    let frames = ["chunks/000000.raw", "chunks/000001.raw", "chunks/000002.raw"];
    let all = |place: &Mounted| frames.map(|name| verified_of(place, name));
    assert_eq!(all(&place), ["pending", "pending", "pending"]);
    std::fs::read(place.path(frames[0])).unwrap();
    assert_eq!(verified_of(&place, frames[0]), "yes");
    std::fs::read(place.path(frames[1])).unwrap_err();
    let [first, second, third] = all(&place);
    assert_eq!((first.as_str(), second.as_str()), ("yes", "failed"));
    // The readahead may have reached it.
    assert!(["pending", "yes"].contains(&third.as_str()), "{third}");
    assert_eq!(verified(&place), "failed");
}

#[test]
fn copies_of_wrong_data_are_refused_by_cat_extract_and_cp() {
    if !can_mount() {
        return;
    }
    for mode in ["auto", "first", "background"] {
        let (place, _) = mounted(true, mode);
        let dir = place.dir.path();
        let output = run(Command::new("cp").arg(place.path("data.raw")).arg(dir.join("copy")));
        assert!(!output.status.success(), "{mode}");
        let file = file_of(&place);
        let verify = format!("verify={mode}");
        let output = run(fzmfs().args(["cat", "-o", &verify]).arg(&file).arg("data.raw"));
        assert!(output.status.code() == Some(1) && output.stdout.len() < LEN, "{mode}");
        let output = run(fzmfs().args(["extract", "-o", &verify]).arg(&file).arg(dir.join("out")).arg("data.raw"));
        assert_eq!(output.status.code(), Some(1), "{mode}");
        assert!(!dir.join("out/data.raw").exists(), "{mode}");
    }
}
