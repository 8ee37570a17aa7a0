//! Servers of others: nginx over HTTP and TLS, and S3 as moto plays it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use super::{copy, everything, relocated};
use crate::support::mounts::{can_mount, fzmfs, run, with_kernel_caches};
use crate::support::opened::data;
use crate::support::oracle::oracle;
use crate::support::services::{BUCKET, Moto, Nginx};

/// Files of each format.
const FILES: [&str; 6] = [
    "blosc2/n05_5d_f4.b2nd",
    "blosc2/a01_two_frames.b2frame",
    "blosc2/n22_sframe_b2nd.b2nd",
    "ztensor/conformance-v2/valid/shards-table.zt",
    "zstd",
    "zxc",
];

/// The files in `FILES`, and those in its directories that are not containers themselves.
fn files() -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for name in FILES {
        let path = data(name);
        if path.is_dir() && !path.join("chunks.b2frame").exists() {
            let inside = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            let mut inside: Vec<_> = inside.filter(|path| path.is_file()).collect();
            inside.sort();
            out.extend(inside.into_iter().take(20));
        } else {
            out.push(path);
        }
    }
    out
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

#[test]
fn nginx_serves_what_the_disk_has() {
    let Some(nginx) = Nginx::start() else { return };
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        copy(&path, &nginx.root().join(name));
        let near = everything(nginx.root().join(name).to_str().unwrap());
        let near = relocated(&near, &nginx.root(), &nginx.url(""));
        assert_eq!(near, everything(&nginx.url(name)), "{}", path.display());
    }
    let missing = everything(&nginx.url("none.zst")).remove(0);
    assert!(missing.contains("no such object (HTTP 404)"), "{missing}");
}

#[test]
fn nginx_tells_a_version_from_another() {
    let Some(nginx) = Nginx::start() else { return };
    let path = nginx.root().join("x");
    std::fs::write(&path, super::noise(4 << 20)).unwrap();
    let account = fzmfs::account::Account::new(64 << 20, 0);
    let options = fzmfs::source::RemoteOptions::default();
    let source = fzmfs::source::Source::open_remote(&nginx.url("x"), &options, &account).unwrap();
    let at = fzmfs::bytes::FileOffset(1 << 20);
    assert!(source.get(at, 1000, "x").unwrap() == super::noise(4 << 20)[1 << 20..][..1000]);
    std::fs::write(&path, super::noise(5 << 20)).unwrap();
    let error = source.get(fzmfs::bytes::FileOffset(2 << 20), 1000, "x").unwrap_err();
    assert!(matches!(error.kind(), fzmfs::error::Kind::Changed), "{error}");
}

#[test]
fn a_certificate_is_trusted_if_its_authority_is() {
    let Some(nginx) = Nginx::start() else { return };
    let path = data("blosc2/n05_5d_f4.b2nd");
    copy(&path, &nginx.root().join("x.b2nd"));
    let cat = |url: &str, authority: &Path| {
        run(fzmfs()
            .args(["cat", url, "data.raw"])
            .env("SSL_CERT_FILE", authority)
            .env("NO_PROXY", "localhost,127.0.0.1"))
    };
    let want = run(fzmfs().arg("cat").arg(&path).arg("data.raw")).stdout;
    let known = cat(&nginx.tls_url("x.b2nd"), &nginx.authority());
    assert!(!want.is_empty() && known.stdout == want, "{}", text(&known));
    let other = cat(&nginx.tls_url("x.b2nd"), Path::new("/dev/null"));
    assert!(text(&other).contains("the server's certificate is not trusted"), "{}", text(&other));
    assert_eq!(other.status.code(), Some(1));
    // Another name than that of the certificate.
    let named = cat(&nginx.tls_url("x.b2nd").replace("localhost", "localhost.localdomain"), &nginx.authority());
    assert_eq!(named.status.code(), Some(1));
}

/// A server with an array in `x.b2nd`, and its bytes.
fn with_array() -> Option<(Nginx, Vec<u8>)> {
    let (Some(nginx), Some(python)) = (Nginx::start(), oracle("blosc2")) else { return None };
    // By one thread: blocks lie in their order, and those that belong together are one request.
    let script = "import blosc2, numpy, sys
blosc2.set_nthreads(1)
a = numpy.random.default_rng(1).integers(0, 1 << 13, (2048, 8192)).astype('u4')
blosc2.asarray(a, urlpath=sys.argv[1], mode='w', chunks=(256, 8192), blocks=(64, 512))";
    let path = nginx.root().join("x.b2nd");
    assert!(run(Command::new(python).args(["-c", script]).arg(&path)).status.success());
    let whole = run(fzmfs().arg("cat").arg(&path).arg("data.raw")).stdout;
    Some((nginx, whole))
}

/// The requests for a window are few, and none of them is large.
#[track_caller]
fn check_window(log: &[u64]) {
    assert!(log.len() <= 4 && log.iter().sum::<u64>() <= 250_000, "{log:?}");
}

/// Few requests read the whole array, and hardly a byte is sent twice.
#[track_caller]
fn check_whole(log: &[u64], nginx: &Nginx) {
    let stored = std::fs::metadata(nginx.root().join("x.b2nd")).unwrap().len();
    assert!(log.len() as u64 <= stored / (8 << 20) + 4, "{stored} {log:?}");
    assert!(log.iter().sum::<u64>() as f64 <= stored as f64 * 1.02, "{stored} {log:?}");
}

#[test]
fn a_window_and_a_whole_array_take_few_requests() {
    let Some((nginx, whole)) = with_array() else { return };
    let options = fzmfs::Options::new().cache(256 << 20);
    let archive = fzmfs::Archive::open(nginx.url("x.b2nd"), &options).unwrap();
    let file = archive.file("data.raw").unwrap();
    // 64 x 64 elements at (1024, 4096).
    for row in 1024..1088 {
        let (at, mut bytes) = ((row * 8192 + 4096) * 4, [0; 64 * 4]);
        file.read_exact_at(at, &mut bytes).unwrap();
        assert!(bytes == whole[at as usize..][..bytes.len()]);
    }
    check_window(&nginx.take_log());
    drop((file, archive));

    let archive = fzmfs::Archive::open(nginx.url("x.b2nd"), &options).unwrap();
    let file = archive.file("data.raw").unwrap();
    let mut all = vec![0; whole.len()];
    for _ in 0..2 {
        for (at, bytes) in (0..).step_by(1 << 20).zip(all.chunks_mut(1 << 20)) {
            file.read_exact_at(at, bytes).unwrap();
        }
        assert!(all == whole);
    }
    check_whole(&nginx.take_log(), &nginx);
}

/// As above: the kernel reads no more than pages.
#[test]
fn a_window_and_a_whole_array_of_a_mount_take_few_requests() {
    if !can_mount() {
        return;
    }
    let Some((nginx, whole)) = with_array() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mount = || {
        let output = run(fzmfs().arg("mount").arg(nginx.url("x.b2nd")).arg(dir.path()).env("NO_PROXY", "127.0.0.1"));
        assert!(output.status.success(), "{}", text(&output));
    };
    let unmount = || assert!(run(fzmfs().arg("umount").arg(dir.path())).status.success());
    mount();
    let file = std::fs::File::open(dir.path().join("data.raw")).unwrap();
    for row in 1024..1088 {
        let (at, mut bytes) = ((row * 8192 + 4096) * 4, [0; 64 * 4]);
        file.read_exact_at(&mut bytes, at).unwrap();
        assert!(bytes == whole[at as usize..][..bytes.len()]);
    }
    drop(file);
    unmount();
    check_window(&nginx.take_log());

    mount();
    let read = || assert!(std::fs::read(dir.path().join("data.raw")).unwrap() == whole);
    read();
    let first = nginx.take_log();
    let again = with_kernel_caches(|| {
        read();
        nginx.take_log();
        read();
        nginx.take_log()
    });
    assert!(again.is_empty(), "a second read takes no request: {again:?}");
    unmount();
    check_whole(&first, &nginx);
}

#[test]
fn s3_serves_what_the_disk_has_and_errors_say_what_is_wrong() {
    let Some(moto) = Moto::start() else { return };
    let with = |args: &[&str], key: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fzmfs"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.args(args).env("AWS_ENDPOINT_URL", moto.endpoint()).env("AWS_REGION", "us-east-1");
        command.env("FZMFS_LOG", "trace").env("NO_PROXY", "127.0.0.1,169.254.169.254");
        if let Some(key) = key {
            command.env("AWS_ACCESS_KEY_ID", "IDIDID").env("AWS_SECRET_ACCESS_KEY", key);
        }
        let output = run(&mut command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("SECRET") && !said.contains("IDIDID") && !said.contains("Signature"), "{said}");
        output
    };
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).unwrap() {
                let file = entry.unwrap().path();
                let key = format!("a/{name}/{}", file.file_name().unwrap().to_str().unwrap());
                moto.put(&key, &std::fs::read(&file).unwrap());
            }
        } else {
            moto.put(&format!("a/{name}"), &std::fs::read(&path).unwrap());
        }
        let tmp = tempfile::tempdir().unwrap();
        let extract = |from: &str, to: &str| {
            let to = tmp.path().join(to);
            with(&["extract", from, to.to_str().unwrap()], Some("SECRET")).status.code()
        };
        let codes = (extract(path.to_str().unwrap(), "near"), extract(&format!("s3://{BUCKET}/a/{name}"), "far"));
        assert_eq!(codes.0, codes.1, "{name}");
        // The times in the attributes of data.zarr differ.
        let diff = run(Command::new("diff").args(["-r", "-x", "zarr.json", "near", "far"]).current_dir(tmp.path()));
        assert!(diff.status.success() || codes.0 != Some(0), "{name}: {}", text(&diff));
    }
    for (url, want) in [
        (format!("s3://{BUCKET}/none"), "no such object (HTTP 404, NoSuchKey)"),
        ("s3://none/x".to_owned(), "no such object (HTTP 404, NoSuchBucket)"),
        (format!("s3://{BUCKET}"), "not of the form s3://BUCKET/KEY"),
    ] {
        let output = with(&["info", &url], Some("SECRET"));
        assert!(text(&output).contains(want) && text(&output).contains(&url), "{}", text(&output));
    }
}
