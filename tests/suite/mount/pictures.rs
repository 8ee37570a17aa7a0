//! What lies beside a mounted array for other programs: headers that pynrrd opens, and a picture whose size is known
//! before it is read, and which a broken part of the array does not take along, nor the other way round.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::mounts::{Mounted, can_mount, run};
use crate::support::oracle::oracle;

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn headers_open_in_pynrrd() {
    if !can_mount() {
        return;
    }
    let Some(python) = oracle("nrrd") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/check_readers.py");
    let output = run(Command::new(python).arg(script).args([env!("CARGO_BIN_EXE_fzmfs"), "nrrd"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nrrd: 104 headers\n");
}

#[test]
fn pictures_have_the_size_that_is_listed() {
    if !can_mount() {
        return;
    }
    let names =
        ["fzm/lq2d_f32_outliers.fzm", "fzm/lq3d_f32_zz_bitpack.fzm", "blosc2/n05_5d_f4.b2nd", "blosc2/n01_1d_i4.b2nd"];
    for name in names {
        let mount = Mounted::of(&data(name));
        let path = mount.path("preview.png");
        let len = fs::metadata(&path).unwrap().len();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, len, "{name}");
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let first = pixels[0];
        assert!(pixels.iter().any(|&pixel| pixel != first), "{name}: one colour");
    }
}

#[test]
fn a_broken_array_has_no_picture_and_keeps_its_other_files() {
    if !can_mount() {
        return;
    }
    let mount = Mounted::of(&data("fzm/bad/data_crc.fzm"));
    let e = fs::read(mount.path("preview.png")).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EIO));
    assert!(fs::metadata(mount.path("preview.png")).unwrap().len() > 1000);
    assert!(fs::read_to_string(mount.path("data.nhdr")).unwrap().starts_with("NRRD"));
    assert!(fs::read(mount.path("info.json")).is_ok());
}
