//! The embedded PTX and machine code are those of the kernels; checked without a compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fzmfs::gpu::image::{DIGEST, FILES, Images};
use sha2::{Digest, Sha256};

/// The files of kernels with this suffix, sorted.
fn files(suffix: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
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

/// The digest of an image.
fn digest(image: &[u8]) -> &str {
    std::str::from_utf8(&image[..DIGEST]).unwrap()
}

#[test]
fn every_kernel_is_compiled_and_embedded() {
    let sources = stems(&files("cu"));
    let embedded: BTreeSet<_> = FILES.iter().map(|images| images.file.to_owned()).collect();
    assert_eq!(embedded, sources, "src/gpu/image.rs has a word for each kernels/*.cu");
    let images = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/image")).unwrap();
    assert_eq!(images.count(), FILES.iter().map(|images| 1 + images.machine.len()).sum::<usize>());
    for source in files("cu") {
        let name = source.file_stem().unwrap().to_str().unwrap();
        let (text, ptx) = (fs::read_to_string(&source).unwrap(), Images::of(name).unwrap().text().unwrap());
        for kernel in text.split("\nKERNEL ").skip(1).filter_map(|rest| rest.split('(').next()) {
            assert!(ptx.contains(&format!(".entry {kernel}(")), "{name}.ptx has no {kernel}");
        }
    }
}

#[test]
fn no_ptx_is_older_than_its_source() {
    let options = format!("{} {}", constant("NVRTC"), constant("OPTIONS"));
    for source in files("cu") {
        let mut hash = Sha256::new();
        hash.update(&options);
        for path in files("cuh").iter().chain([&source]) {
            let name = path.file_name().unwrap().to_str().unwrap();
            hash.update([b"\0", name.as_bytes(), b"\0"].concat());
            hash.update(fs::read(path).unwrap());
        }
        let name = source.file_stem().unwrap().to_str().unwrap();
        let images = Images::of(name).unwrap();
        let want = format!("{:x}", hash.finalize());
        assert_eq!(digest(images.ptx), want, "kernels/{name}.cu changed: run scripts/build-ptx");
        assert!(images.text().unwrap().starts_with(&format!("// {want} of {name}.cu, made by ")));
    }
}

#[test]
fn no_machine_code_is_older_than_its_ptx() {
    for images in FILES {
        let targets: Vec<String> = images.machine.iter().map(|(target, _)| format!("\"sm_{target}\"")).collect();
        assert_eq!(constant("CUBINS"), format!("[{}]", targets.join(", ")));
        for (target, image) in images.machine {
            let hash = Sha256::new().chain_update(format!("{} sm_{target}\0", constant("PTXAS")));
            let want = format!("{:x}", hash.chain_update(images.text().unwrap()).finalize());
            assert_eq!(digest(image), want, "{}.sm_{target}: run scripts/build-ptx", images.file);
        }
    }
}
