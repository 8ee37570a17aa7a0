//! The embedded PTX and machine code are those of the kernels; checked without a compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "cuda")]
use fzmfs::gpu::cubin;
use fzmfs::gpu::ptx;
use sha2::{Digest, Sha256};

/// The files of kernels/`folder` with this suffix, sorted.
fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(folder);
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = all.filter(|path| path.extension().is_some_and(|s| s == suffix)).collect();
    files.sort();
    files
}

fn stems(files: &[PathBuf]) -> BTreeSet<String> {
    files.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// A constant of scripts/build-ptx.
fn constant(name: &str) -> String {
    let script = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/build-ptx")).unwrap();
    let line = script.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    line.unwrap_or_else(|| panic!("scripts/build-ptx has no {name}")).trim_matches('"').to_owned()
}

#[test]
fn every_kernel_is_compiled_and_embedded() {
    let sources = stems(&files("", "cu"));
    assert_eq!(stems(&files("ptx", "ptx")), sources, "run scripts/build-ptx");
    let embedded: BTreeSet<_> = ptx::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(embedded, sources, "src/gpu/ptx.rs has a line for each kernels/*.cu");
    for source in files("", "cu") {
        let text = fs::read_to_string(&source).unwrap();
        let name = source.file_stem().unwrap().to_str().unwrap();
        for kernel in text.split("\nKERNEL ").skip(1).filter_map(|rest| rest.split('(').next()) {
            let entry = format!(".entry {kernel}(");
            assert!(ptx::text(name).unwrap().contains(&entry), "{name}.ptx has no {kernel}");
        }
    }
    assert_eq!(ptx::text("nosuch"), None);
}

#[test]
fn no_ptx_is_older_than_its_source() {
    let options = format!("{} {}", constant("NVRTC"), constant("OPTIONS"));
    for source in files("", "cu") {
        let mut digest = Sha256::new();
        digest.update(&options);
        for path in files("", "cuh").iter().chain([&source]) {
            let name = path.file_name().unwrap().to_str().unwrap();
            digest.update([b"\0", name.as_bytes(), b"\0"].concat());
            digest.update(fs::read(path).unwrap());
        }
        let digest = format!("{:x}", digest.finalize());
        let name = source.file_stem().unwrap().to_str().unwrap();
        let text = ptx::text(name).unwrap_or_default();
        let made_of = text.split_whitespace().nth(1).unwrap_or_default();
        assert_eq!(made_of, digest, "kernels/{name}.cu changed: run scripts/build-ptx");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn no_machine_code_is_older_than_its_ptx() {
    let targets: BTreeSet<u32> = cubin::IMAGES.iter().map(|(_, target, _)| *target).collect();
    let built: Vec<String> = targets.iter().map(|target| format!("\"sm_{target}\"")).collect();
    let script = constant("CUBINS");
    assert_eq!(script.trim_matches(['[', ']']).split(", ").map(str::to_owned).collect::<Vec<_>>(), built);
    for (name, text) in ptx::FILES {
        for target in &targets {
            let image = cubin::IMAGES.iter().find(|(file, of, _)| file == name && of == target);
            let (.., bytes) = image.unwrap_or_else(|| panic!("src/gpu/cubin.rs has no {name} for sm_{target}"));
            let digest = Sha256::new().chain_update(format!("{} sm_{target}\0", constant("PTXAS"))).chain_update(text);
            let digest = format!("{:x}", digest.finalize());
            assert_eq!(bytes[..cubin::DIGEST], *digest.as_bytes(), "{name}.sm_{target}: run scripts/build-ptx");
        }
    }
    assert_eq!(cubin::IMAGES.len(), ptx::FILES.len() * targets.len());
}
