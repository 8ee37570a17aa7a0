//! The kernels as machine code, for GPUs that this build knows: loading it takes the driver no compilation.
//!
//! scripts/build-ptx assembles the PTX; add new kernel files to the list below. An image is stored as the digest of what it
//! was made of, in 64 hexadecimal digits, and the cubin, compressed with zlib. PTX remains for all other GPUs.
#![forbid(unsafe_code)]

use std::io::Read;

/// A stored image: the file of kernels, the compute capability as in `sm_90`, and the bytes.
pub type Image = (&'static str, u32, &'static [u8]);

macro_rules! embedded {
    ($($file:literal)*) => {
        &[$(embedded!($file, 80), embedded!($file, 90), embedded!($file, 100), embedded!($file, 120)),*]
    };
    ($file:literal, $capability:literal) => {
        ($file, $capability, include_bytes!(concat!("../../kernels/cubin/", $file, ".sm_", $capability)))
    };
}

/// All images.
pub const IMAGES: &[Image] = embedded! { "bitpack" "bitshuffle" "copy" "fused" "huffman" "lorenzo_quant" "quantizer" "recode" "rle" "rze" "sums" };

/// Bytes of the digest in front of an image.
pub const DIGEST: usize = 64;

/// Largest cubin, in bytes: a guard against a damaged build.
const LARGEST: u64 = 16 << 20;

/// The machine code of kernels/`file`.cu for a GPU of this compute capability, major and minor: that of the same major
/// number runs if its minor number is not larger.
pub fn image(file: &str, (major, minor): (u32, u32)) -> Option<Vec<u8>> {
    let fits = |capability: u32| capability / 10 == major && capability % 10 <= minor;
    let (.., bytes) = IMAGES.iter().filter(|(name, of, _)| *name == file && fits(*of)).max_by_key(|(_, of, _)| *of)?;
    let mut image = Vec::new();
    let stored = flate2::read::ZlibDecoder::new(bytes.get(DIGEST..)?);
    stored.take(LARGEST).read_to_end(&mut image).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_chosen_by_the_capability_of_the_gpu() {
        let machine = |capability| {
            let image = image("copy", capability)?;
            assert!(image.starts_with(b"\x7fELF"));
            // What the assembler was asked for, in the flags of the ELF header; where depends on the version of the ABI.
            Some(if image[8] < 8 { image[48] } else { image[49] })
        };
        for (capability, want) in [
            ((7, 5), None),
            ((8, 0), Some(80)),
            ((8, 9), Some(80)),
            ((9, 0), Some(90)),
            ((10, 0), Some(100)),
            ((10, 3), Some(100)),
            ((12, 1), Some(120)),
            ((13, 0), None),
        ] {
            assert_eq!(machine(capability), want, "{capability:?}");
        }
        assert!(image("nosuch", (9, 0)).is_none());
    }
}
