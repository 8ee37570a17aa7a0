//! `data.zarr` of real mounts in the programs that read Zarr: zarr-python, zarrs, xarray, dask, `TensorStore`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::mounts::{Mounted, can_mount, fzmfs, has, run, with_kernel_caches};
use crate::support::oracle::oracle;

/// Sides of an array of several chunks.
const SIDES: [u64; 3] = [3, 1000, 1024];
/// The readers of `tests/support/check_zarr.py`, in its order.
const READERS: [&str; 4] = ["zarr-python", "zarrs", "tensorstore", "dask"];

fn python() -> Option<PathBuf> {
    can_mount().then(|| oracle("zarr")).flatten()
}

/// Runs the script that knows the readers.
fn readers(python: &Path, words: impl IntoIterator<Item = String>) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/check_zarr.py");
    run(Command::new(python).arg(script).args(words))
}

/// As [`readers`], which have to succeed; gives what they said.
#[track_caller]
fn succeed(python: &Path, words: impl IntoIterator<Item = String>) -> String {
    let output = readers(python, words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Files with this extension in `folder`, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    found
}

#[test]
fn every_reader_of_zarr_sees_the_arrays_that_were_written() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    succeed(&python, ["make".to_owned(), text(folder.path())]);
    let files = files(folder.path(), "b2nd");
    let mounts: Vec<_> = files.iter().map(|file| Mounted::of(file)).collect();
    let pairs = files.iter().zip(&mounts);
    let words = pairs.map(|(file, mount)| format!("{}={}", text(&mount.point), text(&file.with_extension("npy"))));
    let said = succeed(&python, ["compare".to_owned()].into_iter().chain(words));
    assert!(said.contains("'arrays': 16, 'chunked': 14, 'left out': 0, 'unreadable': 0, 'xarray': 14"), "{said}");
}

/// The types and ranks of the arrays of a container.
fn arrays(file: &Path) -> BTreeSet<String> {
    let archive = fzmfs::Archive::open(file, &fzmfs::Options::new()).unwrap();
    let array = |entry: fzmfs::Result<fzmfs::Entry>| {
        let document = entry.unwrap();
        let document = document.path().ends_with("zarr.json").then(|| document.open().unwrap().read().unwrap())?;
        let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
        Some(format!("{} {}", document["data_type"], document["shape"].as_array()?.len()))
    };
    archive.walk("data.zarr").unwrap().filter_map(array).collect()
}

#[test]
fn every_reader_of_zarr_sees_what_the_other_files_show() {
    let Some(python) = python() else { return };
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut containers = files(&data.join("blosc2"), "b2nd");
    containers.extend(["archive.b2z", "a01_two_frames.b2frame"].map(|name| data.join("blosc2").join(name)));
    containers.extend(files(&data.join("ztensor"), "zt"));
    // Of those with the same arrays, one: readers do not see which stages made them.
    let mut seen = BTreeSet::new();
    containers.extend(files(&data.join("fzm"), "fzm").into_iter().filter(|file| seen.insert(arrays(file))));
    let mounts: Vec<_> = containers.iter().map(|file| Mounted::of(file)).collect();
    let words = mounts.iter().map(|mount| text(&mount.point));
    let said = succeed(&python, ["compare".to_owned()].into_iter().chain(words));
    println!("{said}");
    assert!(mounts.len() > 60, "{}", mounts.len());
}

#[test]
fn a_flipped_byte_is_an_error_in_every_reader() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    succeed(&python, ["make".to_owned(), text(folder.path())]);
    // Near the end of the chunks: a stream of LZ4 or zstd that is broken there does not decode.
    let good = std::fs::read(folder.path().join("edges.b2nd")).unwrap();
    let file = folder.path().join("broken.b2nd");
    let is_broken = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0xFF;
        std::fs::write(&file, bytes).unwrap();
        // Most bytes are not seen to be wrong: without a mount for each of them.
        let archive = fzmfs::Archive::open(&file, &fzmfs::Options::new());
        archive.and_then(|archive| archive.file("data.raw")?.read()).is_err()
    };
    let at = (good.len() / 2..good.len()).step_by(211).find(|&at| is_broken(at)).unwrap();
    println!("byte {at} of {}", good.len());
    let mount = Mounted::of(&file);
    let said = succeed(&python, ["broken".to_owned(), text(&mount.point)]);
    assert_eq!(said.lines().count(), 5, "{said}");
    // What the byte does not touch stays readable.
    let first = std::fs::read(mount.path("data.zarr/data/c/0/0")).unwrap();
    let whole = std::fs::read(mount.path("data.zarr/data/zarr.json")).unwrap();
    assert!(!first.is_empty() && !whole.is_empty());
}

#[test]
fn every_reader_reads_windows_and_fails_where_the_container_is_broken() {
    let Some(python) = python() else { return };
    let elements: Vec<u8> = (0..SIDES.iter().product::<u64>() as u32).flat_map(u32::to_le_bytes).collect();
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(true).unwrap();
    let parts = elements.chunks(1 << 20);
    let mut frames: Vec<Vec<u8>> = parts.map(|part| compressor.compress(part).unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("field.zst");
    let mount = |frames: &[Vec<u8>]| {
        std::fs::write(&file, frames.concat()).unwrap();
        let mount = Mounted::nothing();
        let mut command = fzmfs();
        command.args(["mount", "-o", "dtype=<u4,shape=3x1000x1024"]).arg(&file).arg(&mount.point);
        assert!(run(&mut command).status.success());
        mount
    };
    // What each reader says of the windows.
    let said = |mount: &Mounted, windows: &[&str]| {
        let words = ["windows".to_owned(), text(&mount.point)];
        succeed(&python, words.into_iter().chain(windows.iter().map(|&window| window.to_owned())))
    };
    let window = |slice: u64| {
        let row = |i: u64| {
            let first = ((slice * SIDES[1] + i) * SIDES[2] + 1000) as usize * 4;
            &elements[first..first + 24 * 4]
        };
        [row(100), row(101), row(102)].concat().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    };
    {
        let mount = mount(&frames);
        let want = READERS.map(|reader| format!("{reader} {}\n", window(2)));
        assert_eq!(said(&mount, &["2:3,100:103,1000:1024"]), want.concat());
    }
    // In the second slice.
    let middle = frames[6].len() / 2;
    frames[6][middle] ^= 0xFF;
    let mount = mount(&frames);
    let want = READERS.map(|reader| format!("{reader} error\n{reader} {}\n", window(0)));
    assert_eq!(said(&mount, &["0:3,0:1000,0:1024", "0:1,100:103,1000:1024"]), want.concat());
}

#[test]
fn a_chunk_is_the_same_however_it_is_read_for_the_first_time_and_again() {
    if !can_mount() {
        return;
    }
    let plain: Vec<u8> = (0..3_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("field.zst");
    std::fs::write(&file, zstd::bulk::compress(&plain, 1).unwrap()).unwrap();
    let map = |kind| {
        let program = "import mmap, sys; f = open(sys.argv[1], 'rb'); \
                       m = mmap.mmap(f.fileno(), 0, flags=mmap.KIND, prot=mmap.PROT_READ); sys.stdout.buffer.write(m)";
        vec!["python3".to_owned(), "-c".to_owned(), program.replace("KIND", kind)]
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    let ways = [
        words("cat"),
        words("tail -c +1"),
        words("dd status=none bs=1000 FILE"),
        map("MAP_SHARED"),
        map("MAP_PRIVATE"),
    ];
    for way in ways {
        let mount = Mounted::nothing();
        let mut command = fzmfs();
        command.args(["mount", "-o", "dtype=<u4,shape=3145728"]).arg(&file).arg(&mount.point);
        assert!(run(&mut command).status.success());
        let chunk = mount.path("data.zarr/data/c/1");
        for time in 0..3 {
            let mut command = Command::new(&way[0]);
            match &way[1..] {
                [options @ .., last] if last == "FILE" => command.args(options).arg(format!("if={}", text(&chunk))),
                options => command.args(options).arg(&chunk),
            };
            let read = run(&mut command);
            assert!(read.status.success(), "{way:?} {time}: {}", String::from_utf8_lossy(&read.stderr));
            let len = read.stdout.len();
            assert!(len > 1 << 20 && read.stdout == plain[len..2 * len], "{way:?} {time}: {len}");
        }
    }
}

#[test]
fn the_kernel_keeps_the_pages_of_a_chunk_that_is_decoded_a_second_time() {
    if !can_mount() || !has("fincore") {
        return;
    }
    let plain: Vec<u8> = (0..3_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("field.zst");
    std::fs::write(&file, zstd::bulk::compress(&plain, 1).unwrap()).unwrap();
    let kept_of = |cache| {
        let mount = Mounted::nothing();
        let mut command = fzmfs();
        command.args(["mount", "-o", &format!("dtype=<u4,shape=3145728,cache={cache}")]).arg(&file).arg(&mount.point);
        assert!(run(&mut command).status.success());
        let chunk = |number| mount.path(&format!("data.zarr/data/c/{number}"));
        let len = std::fs::metadata(chunk(0)).unwrap().len();
        let read =
            |number| assert!(std::fs::read(chunk(number)).unwrap() == plain[len as usize * number..][..len as usize]);
        let kept = || {
            let mut fincore = Command::new("fincore");
            let output = run(fincore.args(["--bytes", "--noheadings", "--output", "RES"]).arg(chunk(0)));
            String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
        };
        (0..plain.len() / len as usize).for_each(read);
        let after_each = [
            kept(),
            {
                read(0);
                kept()
            },
            {
                read(0);
                kept()
            },
        ];
        (len, after_each)
    };
    for (cache, stays_here) in [("64M", true), ("2M", false)] {
        let (len, kept) = with_kernel_caches(|| kept_of(cache));
        let pages = if stays_here { 0 } else { len };
        assert_eq!(kept, [0, pages, pages], "{cache}");
    }
}
