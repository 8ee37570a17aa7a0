//! The kept index: what a second mount finds.

use std::io::Write;
use std::path::Path;

use crate::support::mounts::{Mounted, can_mount, fzmfs, run, sh};

const MIB: u64 = 1 << 20;
const LEN: usize = 48 << 20;

/// One frame without a size, of a small window; and its content.
fn make(path: &Path) -> Vec<u8> {
    let content: Vec<u8> = (0..LEN as u64 / 16).flat_map(|i| [i / 7, i * i / 13]).flat_map(u64::to_le_bytes).collect();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(17).unwrap();
    encoder.write_all(&content).unwrap();
    std::fs::write(path, encoder.finish().unwrap()).unwrap();
    content
}

/// Mounts the file with `option`, reads with the command `read`; returns what that prints, and the bytes decoded.
fn read(mounted: &Mounted, option: &str, read: &str) -> (String, u64) {
    read_of(mounted, "log.zst", option, read)
}

/// As [`read`], of `file`.
fn read_of(mounted: &Mounted, file: &str, option: &str, read: &str) -> (String, u64) {
    let file = mounted.dir.path().join(file);
    let output = run(fzmfs().arg("mount").arg(&file).arg(&mounted.point).args(["-o", option]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = sh(mounted.dir.path(), read);
    let listed = run(fzmfs().args(["list", "--json"]).arg(&mounted.point)).stdout;
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    let decoded = listed[0]["stats"]["decoded_bytes"].as_u64().unwrap();
    assert!(run(fzmfs().arg("umount").arg(&mounted.point)).status.success());
    (said, decoded)
}

#[test]
fn a_second_mount_reads_the_end_of_a_long_frame_without_what_is_before() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let content = make(&mounted.dir.path().join("log.zst"));
    std::fs::write(mounted.dir.path().join("end"), &content[LEN - 100_000..]).unwrap();
    let tail = "tail -c 100000 mnt/log | cmp - end && stat -Lc %s mnt/log";
    let index = format!("index={}", mounted.dir.path().join("index").display());

    let (said, decoded) = read(&mounted, &index, &format!("cat mnt/log > /dev/null; {tail}"));
    assert!(said == format!("{LEN}\n") && decoded >= LEN as u64, "{said}, {decoded}");
    let (said, decoded) = read(&mounted, &index, tail);
    assert!(said == format!("{LEN}\n") && decoded <= 20 * MIB, "{said}, {decoded}");
    let (said, decoded) = read(&mounted, "index=off", tail);
    assert!(said == format!("{LEN}\n") && decoded >= LEN as u64 - 2 * MIB, "{said}, {decoded}");
}

#[test]
fn a_second_mount_lists_an_archive_without_its_headers() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let dir = mounted.dir.path();
    sh(
        dir,
        "mkdir -p src/sub && cd src && seq -f %.0f 1 3000000 > a && cp a sub/b && ln -s ../a sub/link && tar -cf ../x.tar .",
    );
    let archive = std::fs::read(dir.join("x.tar")).unwrap();
    let frames = archive.chunks(8 << 20).flat_map(|part| zstd::bulk::compress(part, 1).unwrap());
    std::fs::write(dir.join("x.tar.zst"), frames.collect::<Vec<_>>()).unwrap();
    let list = "find mnt/x.tar -printf '%y %s %T@ %l %P\\n' | sort";
    let index = format!("index={},verify=off", dir.join("index").display());
    let of = |option: &str, line: &str| read_of(&mounted, "x.tar.zst", option, line);

    let (want, decoded) = of("index=off,verify=off", list);
    let (first, _) = of(&index, list);
    let (second, again) = of(&index, list);
    assert!(want == first && want == second && want.lines().count() == 5, "{want}{first}{second}");
    // The first header is read to open the archive.
    assert!(again <= MIB && decoded >= 2 * MIB, "{again}, {decoded}");
    let (said, _) = of(&index, "cmp mnt/x.tar/sub/link src/a && cmp mnt/x.tar/sub/b src/a && echo same");
    assert_eq!(said, "same\n");
}

#[test]
fn the_containers_of_a_mounted_directory_have_the_index_that_they_have_alone() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let dir = mounted.dir.path();
    std::fs::create_dir(dir.join("logs")).unwrap();
    let content = make(&dir.join("logs/log.zst"));
    std::fs::write(dir.join("end"), &content[LEN - 100_000..]).unwrap();
    let tail = "tail -c 100000 mnt/log | cmp - end && stat -Lc %s mnt/log";
    let index = format!("layout=plain,index={}", dir.join("index").display());
    for (source, read_first, least, most) in [
        ("logs", "cat mnt/log > /dev/null; ", LEN as u64, u64::MAX),
        ("logs", "", 0, 20 * MIB),
        ("logs/log.zst", "", 0, 20 * MIB),
    ] {
        let (said, decoded) = read_of(&mounted, source, &index, &format!("{read_first}{tail}"));
        assert_eq!(said, format!("{LEN}\n"), "{source}");
        assert!((least..=most).contains(&decoded), "{source}: {decoded}");
    }
}

#[test]
fn a_directory_that_cannot_hold_an_index_is_said_and_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let content = make(&dir.path().join("log.zst"));
    std::fs::write(dir.path().join("index"), b"a file").unwrap();
    let output = run(fzmfs().current_dir(dir.path()).args(["cat", "--index=index", "log.zst", "data.raw"]));
    assert!(output.status.success() && output.stdout == content, "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.lines().count() == 1 && said.contains("nothing is kept"), "{said}");
    let output = run(fzmfs().current_dir(dir.path()).args(["info", "--index=off", "--index-size=1G", "log.zst"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("index_size= has no effect"));
}
