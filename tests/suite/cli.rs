//! The commands as users run them: the built program on real files, its output, messages and exit codes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::support::SLOW;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fzmfs");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fzm").join(name)
}

/// A file of the corpus with several stages and outliers.
fn sample() -> PathBuf {
    data("lq1d_f32_noa_rle.fzm")
}

/// The files in `dir` whose names end in `suffix`, sorted; there have to be some.
fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
    found.sort();
    assert!(!found.is_empty(), "no {suffix} in {}", dir.display());
    found
}

/// What a run of the program came to.
#[derive(Debug)]
struct Ran {
    /// The exit code; 128 plus the signal's number where a signal ended it.
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Ran {
    fn text(&self) -> &str {
        str::from_utf8(&self.out).unwrap()
    }

    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", String::from_utf8_lossy(&self.out));
        self
    }

    /// It failed with `code`, printed nothing, and said something on standard error that holds all `words`.
    #[track_caller]
    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
        assert!(self.err.starts_with("fzmfs: "), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err);
        }
    }
}

fn fzmfs<I: AsRef<OsStr>>(args: impl IntoIterator<Item = I>) -> Ran {
    run(PROGRAM.as_ref(), "fzmfs".as_ref(), args)
}

/// Runs the program under the name `name`.
fn run<I: AsRef<OsStr>>(program: &OsStr, name: &OsStr, args: impl IntoIterator<Item = I>) -> Ran {
    let (mut out, mut err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut command = Command::new(program);
    command.arg0(name).args(args).env_remove("FZMFS_LOG").stdin(Stdio::null());
    command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let status = command.status().unwrap();
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
    let read = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    };
    Ran { code, out: read(&mut out), err: String::from_utf8_lossy(&read(&mut err)).into_owned() }
}

/// Runs the program, and says how much memory it takes at most, in bytes. Started by a small process, since the peak of a
/// child includes that of the process that started it.
fn measured<I: AsRef<OsStr>>(args: impl IntoIterator<Item = I>) -> (Ran, Option<u64>) {
    if !crate::support::mounts::has("python3") {
        return (fzmfs(args), None);
    }
    let script = "import resource, subprocess, sys\n\
                  code = subprocess.run(sys.argv[2:]).returncode\n\
                  print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=open(sys.argv[1], 'w'))\n\
                  sys.exit(code if code >= 0 else 128 - code)";
    let kib = tempfile::NamedTempFile::new().unwrap();
    let mut words: Vec<OsString> = vec!["-c".into(), script.into(), kib.path().into(), PROGRAM.into()];
    words.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
    let ran = run("python3".as_ref(), "python3".as_ref(), words);
    let kib: u64 = fs::read_to_string(kib.path()).unwrap().trim().parse().unwrap();
    (ran, Some(kib << 10))
}

macro_rules! args {
    ($($arg:expr),* $(,)?) => { vec![$(OsString::from(&$arg)),*] };
}

/// The cases of a manifest in the corpus.
fn cases(manifest: &str) -> Vec<serde_json::Value> {
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(data(manifest)).unwrap()).unwrap();
    manifest["cases"].as_array().unwrap().clone()
}

#[test]
fn cat_gives_what_the_library_gives() {
    let exact = |case: &&serde_json::Value| case["compare"] == "exact" && case["defined_bytes"].is_null();
    let cases = cases("MANIFEST.json");
    assert!(cases.iter().filter(exact).count() > 40);
    for case in cases.iter().filter(exact) {
        let file = data(case["file"].as_str().unwrap());
        let digest = Sha256::digest(fzmfs(args!["cat", file, "data.raw"]).ok().out);
        assert_eq!(format!("{digest:x}"), case["out_sha256"].as_str().unwrap(), "{}", file.display());
    }
}

#[test]
fn cat_writes_several_files_one_after_the_other() {
    let one = |path: &str| fzmfs(args!["cat", sample(), path]).ok().out;
    let both = fzmfs(args!["cat", sample(), "info.json", "./stages/../data.raw", "/info.json"]).ok().out;
    assert_eq!(both, [one("info.json"), one("data.raw"), one("info.json")].concat());
}

#[test]
fn cat_continues_after_a_missing_file_and_fails() {
    let ran = fzmfs(args!["cat", sample(), "nosuch", "info.json", "stages"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out, fzmfs(args!["info", "--json", sample()]).ok().out);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("no such entry (nosuch: ") && lines[0].contains("which contains info.json, "),
        "{lines:?}"
    );
    assert!(lines[1].contains(": stages: Is a directory"), "{lines:?}");
}

#[test]
fn cat_into_a_pipe_that_closes_ends_quietly() {
    let script = "\"$0\" cat \"$1\" data.raw data.raw data.raw data.raw data.raw 2>&1 >&3 | head -c 1";
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("( {script} ) 3>&1 | head -c 4 >/dev/null")]).arg(PROGRAM).arg(sample());
    let output = shell.output().unwrap();
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn ls_lists_the_tree_as_paths_that_cat_takes() {
    let top = fzmfs(args!["ls", sample()]).ok();
    let names: Vec<&str> = top.text().lines().collect();
    for name in ["buffers", "data.npy", "data.raw", "info.json", "pipeline.dot", "pipeline.svg", "stages", "stored"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let all = fzmfs(args!["ls", "-R", sample()]).ok();
    let paths: Vec<&str> = all.text().lines().collect();
    assert!(paths.is_sorted() && paths.contains(&"stages/01-rle/config.bin"), "{paths:?}");
    let long = fzmfs(args!["ls", "-lR", sample()]).ok();
    assert_eq!(long.text().lines().count(), paths.len());
    for (line, path) in long.text().lines().zip(&paths) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [mode, size, name] = fields[..] else { panic!("{line}") };
        assert_eq!(name, *path);
        match mode {
            "dr-xr-xr-x" => assert!(fzmfs(args!["ls", sample(), path]).ok().err.is_empty()),
            "-r--r--r--" => {
                let bytes = fzmfs(args!["cat", sample(), path]).ok().out;
                assert_eq!(bytes.len().to_string(), size, "{path}");
            }
            _ => panic!("{line}"),
        }
    }
    let below = fzmfs(args!["ls", "-R", sample(), "stages"]).ok();
    let want: Vec<&str> = paths.iter().copied().filter(|path| path.starts_with("stages/")).collect();
    assert_eq!(below.text().lines().collect::<Vec<_>>(), want);
    assert_eq!(fzmfs(args!["ls", sample(), "data.raw"]).ok().text(), "data.raw\n");
    fzmfs(args!["ls", sample(), "nosuch"]).refused(1, &["nosuch", "no such entry"]);
}

#[test]
fn a_tree_of_a_quarter_of_a_billion_files_is_not_held_in_memory() {
    let file = data("../blosc2/bad/bomb_valid_268M_chunks.b2frame");
    let out = tempfile::tempdir().unwrap();
    for args in [args!["ls", "-R", file], args!["ls", "-l", file, "chunks"], args!["extract", file, out.path()]] {
        let (ran, peak) = measured(args);
        ran.refused(1, &["268M_chunks.b2frame: not supported: more than 2097152 entries", "(chunks)"]);
        assert!(peak.is_none_or(|peak| peak < 128 << 20), "{peak:?} bytes");
    }
    assert_eq!(fzmfs(args!["ls", "-l", file, "chunks/268000000.raw"]).ok().text().lines().count(), 1);
    assert!(fzmfs(args!["ls", file]).ok().text().contains("chunks\n"));
}

#[test]
fn a_listing_of_thousands_of_tensors_with_sizes_takes_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.zt");
    let peak = |count| {
        fs::write(&file, crate::ztensor_files::checkpoint(count)).unwrap();
        let (ran, peak) = measured(args!["ls", "-lR", "-o", "cache=16M", &file]);
        assert_eq!(ran.ok().text().lines().count() as u64, 8 + 10 * count);
        peak
    };
    // What each tensor takes, without what the program and its caches take for any.
    let (few, many) = (4_000, 10_000);
    let (Some(base), Some(all)) = (peak(few), peak(many)) else { return };
    // About 1.8 KiB: its manifest, the names and sizes of ten entries, its place in the consolidated metadata.
    let took = all.saturating_sub(base) / (many - few);
    assert!(took < 2_500, "{took} bytes");
}

#[test]
fn ls_continues_after_a_file_whose_size_is_unknown() {
    let sparse = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/bad/sframe_missing_chunk.b2frame");
    let ran = fzmfs(args!["ls", "-lR", sparse]);
    let line = |name: &str| ran.text().lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line(" stored/000001.bin").contains(" ? "), "{ran:?}");
    assert!(line(" stored/000002.bin").contains(" 1112 ") && line(" data.raw").starts_with("-r--"), "{ran:?}");
    assert_eq!((ran.code, ran.err.lines().count()), (1, 1));
    assert!(ran.err.contains(": stored/000001.bin: the file 00000001.chunk is missing ("), "{ran:?}");
}

#[test]
fn info_prints_text_or_the_info_json_of_the_tree() {
    let json = fzmfs(args!["info", "--json", sample()]).ok();
    assert_eq!(json.out, fzmfs(args!["cat", sample(), "info.json"]).ok().out);
    let value: serde_json::Value = serde_json::from_slice(&json.out).unwrap();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys[..5], ["format", "format_version", "file_size", "decoded_size", "checksums"]);
    assert_eq!(value["file_size"], fs::metadata(sample()).unwrap().len());
    let text = fzmfs(args!["info", sample()]).ok();
    for word in ["format ", "fzm", "decoded_size ", "(31108 bytes)", "ratio", "lorenzo_quant", "rle"] {
        assert!(text.text().contains(word), "{word:?} is not in {}", text.text());
    }
}

#[test]
fn verify_says_ok_for_every_good_file() {
    let good = files(&data(""), ".fzm");
    let ran = fzmfs([OsString::from("verify")].into_iter().chain(good.iter().map(Into::into))).ok();
    let line = |file: &PathBuf| {
        let info: serde_json::Value = serde_json::from_slice(&fzmfs(args!["info", "--json", file]).ok().out).unwrap();
        let count = info["checksums"].as_object().unwrap().values().filter(|checksum| !checksum.is_null()).count();
        let said = ["no checksums in this file", "1 checksum", "2 checksums"][count];
        format!("{}: OK ({said})", file.display())
    };
    assert_eq!(ran.text().lines().collect::<Vec<_>>(), good.iter().map(line).collect::<Vec<_>>());
}

#[test]
fn verify_says_how_many_checksums_it_could_check() {
    for (name, count) in [
        ("blosc2/f01_blosclz_l1_nofilter_ts1.b2frame", 0),
        ("blosc2/archive.b2z", 3),
        ("zxc/v5_empty_nochk.zxc", 0),
        ("zxc/v4_random.zxc", 2),
        ("zstd/v07-nocheck.zst", 0),
        ("zstd/v07-multi.zst", 3),
        ("ztensor/v20-pypi-zstd.zt", 2),
        ("ztensor/v10-pypi.zt", 0),
    ] {
        let path = data("").parent().unwrap().join(name);
        let said = match count {
            0 => "no checksums in this file".to_owned(),
            n => format!("{n} checksums"),
        };
        assert_eq!(fzmfs(args!["verify", path]).ok().text(), format!("{}: OK ({said})\n", path.display()));
        assert_eq!(verified(&[], [&path])[0]["checksums"], count, "{name}");
    }
}

/// The files of the corpus that are broken.
fn bad_files() -> Vec<String> {
    let cases = cases("bad/MANIFEST.json");
    let rejected = cases.iter().filter(|case| case["expect"] == "reject");
    let names: Vec<_> = rejected.map(|case| case["file"].as_str().unwrap().to_owned()).collect();
    assert!(names.len() > 20, "{names:?}");
    names
}

#[test]
fn verify_names_field_and_offset_in_every_bad_file_in_little_memory() {
    for name in bad_files() {
        let file = data("bad").join(&name);
        let (ran, peak) = measured(args!["verify", file]);
        // All of the process: a size that is believed is allocated past the account.
        assert!(peak.is_none_or(|peak| peak < 256 << 20), "{name}: {peak:?} bytes");
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{name}");
        let start = format!("{}: FAILED: ", file.display());
        let text = ran.text().trim_end().trim_end_matches("; truncated: is the file complete?");
        assert!(text.starts_with(&start) && text.ends_with(')'), "{text}");
        assert!(ran.text().contains(", at byte 0x") && ran.text().lines().count() == 1, "{}", ran.text());
    }
}

#[test]
fn verify_continues_after_a_bad_file_and_prints_json() {
    let bad = data("bad/data_crc.fzm");
    let ran = fzmfs(args!["verify", bad, sample(), "/nonexistent"]);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!((ran.code, lines.len()), (1, 3));
    assert!(lines[0].contains("data_crc.fzm: FAILED: checksum mismatch: stored 0x"), "{lines:?}");
    assert_eq!(lines[1], format!("{}: OK (2 checksums)", sample().display()));
    assert_eq!(lines[2], "/nonexistent: FAILED: No such file or directory");

    let ran = fzmfs(args!["verify", "--json", bad, sample()]);
    let value: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(ran.code, 1);
    assert_eq!((&value[0]["ok"], &value[1]["ok"]), (&false.into(), &true.into()));
    assert_eq!(value[0]["error"]["field"], "payload checksum: data_checksum");
    assert_eq!(value[0]["error"]["kind"], "checksum");
    assert!(value[0]["error"]["offset"].is_u64() && value[1]["error"].is_null());
    let payload = fzmfs(args!["info", "--json", sample()]).ok();
    let payload: serde_json::Value = serde_json::from_slice(&payload.out).unwrap();
    // Its checksum is over the stored bytes; then all is decoded.
    assert_eq!(value[1]["checked_bytes"], 31108 + payload["compressed_size"].as_u64().unwrap());
}

/// What `verify` says of `paths`, with `options`: the objects of its JSON.
fn verified<P: AsRef<OsStr>>(options: &[&str], paths: impl IntoIterator<Item = P>) -> Vec<serde_json::Value> {
    let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
    let ran = fzmfs(["verify", "--json"].iter().chain(options).map(OsString::from).chain(paths));
    serde_json::from_slice(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

/// Copies a tree, without its slow files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name(), entry.path());
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else if !SLOW.iter().any(|slow| name == *slow) {
            fs::copy(path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn verify_of_a_directory_says_what_it_says_of_each_file_in_order() {
    let dir = tempfile::tempdir().unwrap();
    copy(data("").parent().unwrap(), dir.path());
    let (all, some) = (dir.path().to_path_buf(), dir.path().join("blosc2"));
    let rows =
        [(&all, &[][..], 500), (&some, &["--threads", "1"], 50), (&some, &["--cache", "64K", "--threads", "5"], 50)];
    for (dir, options, least) in rows {
        let got = verified(options, [dir]);
        let names: Vec<&str> = got.iter().map(|object| object["file"].as_str().unwrap()).collect();
        assert!(names.len() > least && names.is_sorted_by_key(Path::new), "{options:?}");
        for (got, want) in got.iter().zip(verified(options, &names)) {
            // What cannot be opened has a tree there that says why.
            let error =
                |of: &serde_json::Value| of["error"]["message"].as_str().map(|text| text.replace("(file: ", "("));
            assert_eq!((&got["file"], error(got)), (&want["file"], error(&want)), "{options:?}");
            assert_eq!((&got["ok"], &got["not_verified"]), (&want["ok"], &want["not_verified"]), "{options:?} {want}");
        }
    }
}

#[test]
fn verify_of_a_directory_is_in_order_where_sizes_differ() {
    let dir = tempfile::tempdir().unwrap();
    let noise: Vec<u8> = (0..6_u64 << 18).flat_map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).collect();
    let small = zstd::encode_all(&noise[..1000], 1).unwrap();
    let (large, zeros) = (zstd::encode_all(&*noise, 1).unwrap(), vec![0; 65 << 20]);
    let mut wide = zstd::Encoder::new(Vec::new(), 1).unwrap();
    wide.set_pledged_src_size(Some(65 << 20)).unwrap();
    wide.include_contentsize(true).unwrap();
    std::io::copy(&mut &*zeros, &mut wide).unwrap();
    let wide = wide.finish().unwrap();
    assert!(large.len() > 4 << 20 && wide.len() < 1 << 20);
    fs::create_dir(dir.path().join("d")).unwrap();
    let files = [("a", &small), ("b", &wide), ("c", &small), ("d/a", &large), ("d/b", &small), ("e", &large)];
    for (name, bytes) in files {
        fs::write(dir.path().join(name).with_extension("zst"), bytes).unwrap();
    }
    fs::write(dir.path().join("d/aa.zst"), b"nothing").unwrap();
    let want = ["a", "b", "c", "d/a", "d/aa", "d/b", "e"].map(|name| format!("{name}.zst"));
    for threads in ["1", "3"] {
        let got = verified(&["--threads", threads], [dir.path()]);
        let relative = |object: &serde_json::Value| {
            Path::new(object["file"].as_str().unwrap()).strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(got.iter().map(relative).collect::<Vec<_>>(), want);
        let sizes: Vec<_> = got.iter().map(|object| object["checked_bytes"].as_u64().unwrap() as usize).collect();
        assert_eq!(sizes, [&small, &wide, &small, &large, &vec![], &small, &large].map(Vec::len));
    }
}

#[test]
fn extract_writes_the_tree_that_cat_reads() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a/b");
    fzmfs(args!["extract", sample(), out]).ok();
    let all = fzmfs(args!["ls", "-R", sample()]).ok();
    let mut count = 0;
    for path in all.text().lines() {
        let real = out.join(path);
        if ["stored", "data.zarr"].iter().any(|&out| path == out || path.starts_with(&format!("{out}/"))) {
            assert!(!real.exists(), "{path}");
        } else if !real.is_dir() {
            assert!(fs::read(&real).unwrap() == fzmfs(args!["cat", sample(), path]).ok().out, "{path}");
            assert_eq!(
                fs::metadata(&real).unwrap().modified().unwrap(),
                fs::metadata(sample()).unwrap().modified().unwrap()
            );
            count += 1;
        }
    }
    assert!(count > 10);

    let some = dir.path().join("some");
    fzmfs(args!["extract", sample(), some, "stored", "stages/01-rle/config.bin"]).ok();
    assert!(some.join("stored/output.bin").is_file() && some.join("stages/01-rle/config.bin").is_file());
    assert!(!some.join("data.raw").exists() && !some.join("stages/01-rle/info.json").exists());
}

#[test]
fn a_link_that_is_extracted_without_its_target_is_what_it_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("app.log.zst"), dir.path().join("out"));
    fs::write(&file, zstd::encode_all(&b"a line\n"[..], 1).unwrap()).unwrap();
    fzmfs(args!["extract", &file, &out, "app.log"]).ok();
    assert!(out.join("app.log").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(out.join("app.log")).unwrap(), b"a line\n");
    fzmfs(args!["extract", "--force", &file, &out, "app.log", "data.raw"]).ok();
    assert_eq!(fs::read_link(out.join("app.log")).unwrap().to_str(), Some("data.raw"));
}

#[test]
fn a_link_in_a_directory_that_is_extracted_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("x.tar.zst"), dir.path().join("out"));
    let line = "mkdir -p d/in && echo text > d/file && ln -s ../file d/in/link && touch -hd @1234567890.5 d/in/link && tar --format pax -cf x.tar d";
    assert!(Command::new("bash").args(["-euc", line]).current_dir(dir.path()).status().unwrap().success());
    fs::write(&file, zstd::encode_all(&*fs::read(dir.path().join("x.tar")).unwrap(), 1).unwrap()).unwrap();
    fzmfs(args!["extract", &file, &out, "x.tar/d/in"]).ok();
    assert_eq!(fs::read_link(out.join("x.tar/d/in/link")).unwrap().to_str(), Some("../file"));
    let modified = out.join("x.tar/d/in/link").symlink_metadata().unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_500));
    fzmfs(args!["extract", "--force", &file, &out, "x.tar/d/in/link"]).ok();
    assert_eq!(fs::read(out.join("x.tar/d/in/link")).unwrap(), b"text\n");
    assert!(out.join("x.tar/d/in/link").symlink_metadata().unwrap().is_file());
}

#[test]
fn extract_replaces_nothing_unless_it_is_forced_and_never_leaves_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (out, outside) = (dir.path().join("out"), dir.path().join("outside"));
    fs::create_dir(&out).unwrap();
    fs::write(&outside, "mine").unwrap();
    fs::write(out.join("info.json"), "mine").unwrap();
    symlink(&outside, out.join("data.raw")).unwrap();
    let ran = fzmfs(args!["extract", sample(), out, "info.json", "data.raw", "pipeline.dot"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err.matches("--force").count(), 2, "{}", ran.err);
    assert_eq!(fs::read(out.join("info.json")).unwrap(), b"mine");
    assert!(out.join("pipeline.dot").is_file());

    fzmfs(args!["extract", "--force", sample(), out, "info.json", "data.raw"]).ok();
    assert_eq!(fs::read(&outside).unwrap(), b"mine");
    assert_eq!(fs::read(out.join("data.raw")).unwrap(), fzmfs(args!["cat", sample(), "data.raw"]).ok().out);
    assert!(!out.join("data.raw").is_symlink());

    // A directory that is really a link elsewhere is not followed either.
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, out.join("stages")).unwrap();
    let ran = fzmfs(args!["extract", "--force", sample(), out, "stages"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_broken_file_gives_nothing_to_cat_and_extract() {
    let bad = data("bad/data_crc.fzm");
    fzmfs(args!["cat", bad, "data.raw"]).refused(1, &["data_crc.fzm: ", "checksum mismatch", "at byte 0x"]);
    let dir = tempfile::tempdir().unwrap();
    let ran = fzmfs(args!["extract", bad, dir.path(), "data.raw", "info.json"]);
    ran.refused(1, &["data.raw: ", "checksum mismatch"]);
    assert!(!dir.path().join("data.raw").exists() && dir.path().join("info.json").is_file());
    // Structure that cannot be is refused by every command, before anything is written.
    let (bad, empty) = (data("bad/cyclic.fzm"), tempfile::tempdir().unwrap());
    for args in
        [args!["ls", bad], args!["info", bad], args!["mount", bad, empty.path()], args!["extract", bad, empty.path()]]
    {
        fzmfs(args).refused(1, &["cyclic.fzm: ", "cycle", "input_buffer_ids", "at byte 0x"]);
    }
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn an_extract_that_breaks_off_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let real = dir.path().join("data.raw");
    fs::write(&real, "mine").unwrap();
    let ran = fzmfs(args!["extract", "--force", data("bad/data_crc.fzm"), dir.path(), "data.raw"]);
    ran.refused(1, &["checksum mismatch"]);
    assert_eq!((fs::read(&real).unwrap(), names()), (b"mine".to_vec(), vec!["data.raw".into()]));

    // A write that fails, here since the file would be larger than is allowed, leaves no half file under that name.
    fs::remove_file(&real).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 8; exec \"$0\" extract \"$1\" \"$2\" data.raw"]).arg(PROGRAM).arg(sample());
    assert!(!shell.arg(dir.path()).status().unwrap().success());
    assert!(!real.exists(), "{:?}", names());
}

#[test]
fn a_background_checksum_fails_the_command_before_its_end() {
    let bad = data("bad/data_crc.fzm");
    let ran = fzmfs(args!["cat", "--verify=background", bad, "data.raw"]);
    assert!(ran.code == 1 && ran.err.contains("checksum mismatch"), "{ran:?}");
    let dir = tempfile::tempdir().unwrap();
    let ran = fzmfs(args!["extract", "--verify=background", bad, dir.path(), "data.raw"]);
    ran.refused(1, &["data.raw: ", "checksum mismatch"]);
    assert!(!dir.path().join("data.raw").exists());
    let good = data("dag_dual_branch.fzm");
    fzmfs(args!["cat", "--verify=background", good, "data.raw"]).ok();
}

#[test]
fn verify_off_serves_bytes_whose_checksum_is_wrong() {
    let bad = data("bad/data_crc.fzm");
    for option in [&["--verify=off"][..], &["--verify", "off"], &["-o", "verify=off"], &["-overify=off,noauto"]] {
        let args = args!["cat", bad, "data.raw"].into_iter().chain(option.iter().map(OsString::from));
        assert!(!fzmfs(args).ok().out.is_empty());
    }
    // Not what `verify` does: a digest over decoded bytes, and one over stored bytes.
    for name in ["bad-20-digest.zt", "bad-10-crc.zt"] {
        let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ztensor/bad").join(name);
        let ran = fzmfs(args!["verify", "--verify=off", bad]);
        assert!(ran.code == 1 && ran.text().contains("digest"), "{ran:?}");
    }
}

#[test]
fn bytes_of_a_type_that_the_user_gives_are_an_array() {
    for name in ["zstd/v07-len65792.zst", "zxc/v7_struct_l4_seek.zxc"] {
        let file = data("..").join(name);
        let raw = fzmfs(args!["cat", &file, "data.raw"]).ok().out.clone();
        let shape = format!("{}x4", raw.len() / 8);
        let npy = fzmfs(args!["cat", &file, "-o", format!("dtype=<u2,shape={shape}"), "data.npy"]).ok().out.clone();
        let (header, elements) = npy.split_at(128);
        assert!(header.starts_with(b"\x93NUMPY\x01\0") && elements == &raw[..raw.len() / 8 * 8], "{name}");
        let header = String::from_utf8_lossy(header);
        assert!(
            header.contains(&format!("'<u2', 'fortran_order': False, 'shape': ({}, 4)", raw.len() / 8)),
            "{header}"
        );
        assert!(!fzmfs(args!["ls", &file]).ok().text().contains("data.npy"));
        fzmfs(args!["ls", &file, "-o", "dtype=<u2,shape=1000000x1000000"]).refused(2, &["larger than"]);
    }
}

#[test]
fn every_command_asks_whether_a_truncated_file_is_complete() {
    let (file, dir) = (data("bad/trunc_5.fzm"), tempfile::tempdir().unwrap());
    let file = file.to_str().unwrap();
    let lines = [vec!["info"], vec!["ls"], vec!["cat", "data.raw"], vec!["extract"], vec!["verify"], vec!["mount"]];
    for words in lines {
        let last = match words[0] {
            "extract" | "mount" => vec![dir.path().to_str().unwrap()],
            _ => words[1..].to_vec(),
        };
        let ran = fzmfs([words[0], file].into_iter().chain(last));
        let said = if words[0] == "verify" { ran.text() } else { &ran.err };
        assert!(ran.code == 1 && said.trim_end().ends_with("; truncated: is the file complete?"), "{words:?}: {said}");
    }
}

#[test]
fn what_cannot_be_opened_is_exit_code_1() {
    for command in ["ls", "info"] {
        fzmfs([command, "/nonexistent"]).refused(1, &["/nonexistent: No such file or directory"]);
    }
    fzmfs(args!["info", sample(), "--dict", "/nonexistent"]).refused(1, &["fzmfs: /nonexistent: No such file"]);
    fzmfs(["info", "/dev/null"]).refused(1, &["/dev/null: ", "not a regular file"]);
    fzmfs(args!["info", PROGRAM]).refused(1, &["unrecognized format", "7f 45 4c 46", "supported formats: "]);
    fzmfs(args!["info", sample(), "--device", "cuda:0"]).refused(1, &["cuda:0"]);
}

/// The words that bash offers after `words`, the last of which is being typed.
fn completed(dir: &Path, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <("$0" completions bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _fzmfs fzmfs "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["-uc", script, PROGRAM]).args(words).current_dir(dir);
    let output = bash.output().unwrap();
    assert!(output.stderr.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_what_fits() {
    if !crate::support::mounts::has("bash") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (words, want) in [
        (&["fzmfs", "um"][..], &["umount"][..]),
        (&["fzmfs", "--cache", "1G", "um"], &["umount"]),
        (&["fzmfs", "mount", "a", "m", "-o", "ca"], &["cache="]),
        (&["fzmfs", "a", "m", "-o", "ro,ca"], &["ro,cache="]),
        (&["fzmfs", "mount", "a", "m", "-o", "verify", "=", "b"], &["background"]),
        (&["fzmfs", "mount", "a", "m", "-o", "verify", "=", "off,idl"], &["off,idle="]),
        (&["fzmfs", "mount", "a", "m", "-o", "gpu"], &["gpu_memory="]),
        (&["fzmfs", "mount", "d", "m", "--layout", "pl"], &["plain"]),
        (&["fzmfs", "mount", "d", "m", "--layout", "=", "f"], &["flat"]),
        (&["fzmfs", "ls", "--unp"], &["--unpinned"]),
        (&["fzmfs", "info", "--format", "zs"], &["zstd"]),
        (&["fzmfs", "completions", "zs"], &["zsh"]),
        // Hidden ones are not offered, and files are those of the shell.
        (&["fzmfs", "mount", "--fa"], &[]),
        (&["fzmfs", "ls", "--al"], &[]),
        (&["fzmfs", "mount", ""], &[]),
    ] {
        assert_eq!(completed(dir.path(), words), want, "{words:?}");
    }
}

#[test]
fn bash_completes_mount_points() {
    use crate::support::mounts::{Mounted, can_mount, has, sh};
    if !can_mount() || !has("bash") {
        return;
    }
    let place = Mounted::nothing();
    let point = place.dir.path().join("a point");
    fs::create_dir(&point).unwrap();
    fzmfs(args!["mount", sample(), point]).ok();
    let typed = format!("{}/", place.dir.path().display());
    let want = format!("{typed}a\\ point");
    assert_eq!(completed(place.dir.path(), &["fzmfs", "umount", &typed]), [want]);
    sh(place.dir.path(), "umount 'a point'");
}

#[test]
fn several_files_are_described_and_a_bad_one_among_them_is_reported() {
    let other = data("dag_dual_branch.fzm");
    let ran = fzmfs(args!["info", sample(), "/nonexistent", other]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "fzmfs: /nonexistent: No such file or directory\n"));
    let one = |file: &Path| fzmfs(args!["info", file]).ok().text().to_owned();
    let want = format!("{}:\n{}\n{}:\n{}", sample().display(), one(&sample()), other.display(), one(&other));
    assert_eq!(ran.text(), want);
    let ran = fzmfs(args!["info", "--json", sample(), other]).ok();
    let both: serde_json::Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!(both[1]["file"], other.to_str().unwrap());
    assert_eq!((&both[0]["format"], both.as_array().unwrap().len()), (&"fzm".into(), 2));
}

#[test]
fn ls_takes_the_options_of_ls() {
    let want = fzmfs(args!["ls", "-l", sample()]).ok();
    assert_eq!(fzmfs(args!["ls", "-la", sample()]).ok().out, want.out);
    assert_eq!(fzmfs(args!["-l", "ls", sample()]).ok().out, want.out);
}

#[test]
fn only_the_reader_of_the_output_ends_a_command_by_sigpipe() {
    let mut command = Command::new(PROGRAM);
    command.arg("cat").arg(sample()).args(["data.raw"; 60]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    // It writes, so that it is past its start, and waits for a reader of more than its pipe holds, 1 MiB.
    out.read_exact(&mut [0; 10]).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
    let ignored = u64::from_str_radix(&ignored, 16).unwrap();
    assert_ne!(ignored & (1 << (libc::SIGPIPE - 1)), 0, "a connection that is reset would end it");
    drop(out);
    let output = child.wait_with_output().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!((signal, output.stderr.len()), (Some(libc::SIGPIPE), 0), "{output:?}");
}

#[test]
fn a_directory_is_extracted_beside_itself_and_not_into_itself() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("d");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::copy(sample(), source.join("sub/a.fzm")).unwrap();
    symlink(&source, dir.path().join("link")).unwrap();
    for out in ["d/out", "d", "link/sub/deep/out"] {
        fzmfs(args!["extract", source, dir.path().join(out)]).refused(1, &["inside the directory that is extracted"]);
    }
    assert_eq!(fs::read_dir(&source).unwrap().count(), 1);
    // A part of it may go elsewhere in it.
    fzmfs(args!["extract", source, source.join("out"), "sub/a.fzm"]).ok();
    assert!(source.join("out/sub/a.fzm/data.raw").is_file());
    fzmfs(args!["extract", source, dir.path().join("e"), "sub"]).ok();
}

#[test]
fn help_version_and_completions_go_to_standard_output() {
    assert_eq!(fzmfs(["--version"]).ok().text(), concat!("fzmfs ", env!("CARGO_PKG_VERSION"), "\n"));
    let help = fzmfs(["--help"]).ok();
    for command in ["mount", "umount", "list", "ls", "cat", "info", "verify", "extract", "doctor", "completions"] {
        assert!(help.text().contains(&format!("\n  {command} ")), "{command}");
        assert!(fzmfs([command, "--help"]).ok().text().contains("Usage: fzmfs "), "{command}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(fzmfs(["completions", shell]).ok().text().contains("extract"), "{shell}");
    }
}

#[test]
fn a_mount_helper_has_a_version_and_help_that_works_as_it_is_written() {
    let helper = |arg: &str| run(PROGRAM.as_ref(), "/sbin/mount.fzmfs".as_ref(), [arg]).ok();
    assert_eq!(helper("-V").text(), fzmfs(["-V"]).ok().text());
    assert!(helper("--help").text().contains("Usage: fzmfs mount "));
}

#[test]
fn the_exit_code_is_right_even_if_the_message_cannot_be_printed() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (args, code) in [(args!["nosuch"], 2), (args!["info", "/nonexistent"], 1), (args!["cat", sample(), "x"], 1)] {
        let mut command = Command::new(PROGRAM);
        let status = command.args(&args).stdin(Stdio::null()).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn doctor_says_what_it_found_and_whether_mounting_works() {
    let ran = fzmfs(["doctor"]);
    let device = Path::new("/dev/fuse").exists();
    assert!(device || ran.code == 1, "{ran:?}");
    for word in [
        "fzmfs",
        env!("CARGO_PKG_VERSION"),
        "/dev/fuse",
        "fusermount3",
        "rights",
        "memory",
        "threads",
        "log",
        "GPU",
        "kernels",
    ] {
        assert!(ran.text().contains(word), "{word:?} is not in {}", ran.text());
    }
}

#[test]
fn a_log_file_contains_the_events_of_its_level() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    fzmfs(args!["--log", log, "ls", sample()]).ok();
    fzmfs(args!["ls", "--log", log, sample()]).ok();
    assert!(log.is_file());
    fzmfs(["--log", "/nonexistent/log", "ls", "x"]).refused(1, &["/nonexistent/log: No such file or directory (log)"]);
}

#[test]
fn a_mount_helper_that_fakes_checks_the_file_and_mounts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["mount.fzmfs", "mount.fuse.fzmfs"] {
        let helper = dir.path().join(name);
        symlink(PROGRAM, &helper).unwrap();
        let point = dir.path().join("point");
        fs::create_dir_all(&point).unwrap();
        let helper_run = |file: &Path, options: &str| {
            run(helper.as_ref(), helper.as_ref(), args![file, point, "-sfnv", "-o", options])
        };
        helper_run(&sample(), "rw,noexec,nosuid,nodev,user=anna,x-systemd.automount,cache=16M").ok();
        assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
        helper_run(&data("bad/cyclic.fzm"), "rw").refused(1, &["cyclic.fzm: "]);
        helper_run(&sample(), "rw,rwx").refused(2, &["rwx"]);
    }
}
