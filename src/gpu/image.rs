//! The kernels as the driver loads them: PTX, which it compiles for any GPU, and machine code for GPUs that this build
//! knows, which takes no compilation.
//!
//! scripts/build-ptx makes kernels/image; add new kernel files to the list below. An image is stored as the digest of
//! its inputs, in 64 hexadecimal digits, and its bytes, compressed with zlib.
#![forbid(unsafe_code)]

use std::io::Read;

/// The images of a file of kernels.
#[derive(Debug)]
pub struct Images {
    /// The source file name without suffix.
    pub file: &'static str,
    /// As PTX.
    pub ptx: &'static [u8],
    /// As machine code, each with the compute capability as in `sm_90`.
    pub machine: &'static [(u32, &'static [u8])],
}

macro_rules! embedded {
    ($($file:literal)*) => { &[$(embedded!($file, 80, 90, 100, 120)),*] };
    ($file:literal, $($capability:literal),*) => {
        Images {
            file: $file,
            ptx: include_bytes!(concat!("../../kernels/image/", $file, ".ptx")),
            machine: &[$(($capability, include_bytes!(concat!("../../kernels/image/", $file, ".sm_", $capability)))),*],
        }
    };
}

/// The images of every kernels/*.cu.
pub const FILES: &[Images] = embedded! {
    "bitpack" "bitshuffle" "fused" "huffman" "lorenzo_quant" "planes" "quantizer" "recode" "rle" "rze" "sums"
    "tiled_lorenzo"
};

/// Bytes of the digest in front of an image.
pub const DIGEST: usize = 64;

/// Largest image, in bytes. A larger one is refused: code is verified and loaded as a whole, or not at all.
const LARGEST: u64 = 16 << 20;

impl Images {
    /// The images of kernels/`file`.cu.
    pub fn of(file: &str) -> Option<&'static Self> {
        FILES.iter().find(|images| images.file == file)
    }

    /// The PTX.
    pub fn text(&self) -> Option<String> {
        String::from_utf8(inflated(self.ptx)?).ok()
    }

    /// The machine code for a GPU of this compute capability, major and minor: that of the same major number runs if
    /// its minor number is not larger.
    pub fn machine_code(&self, (major, minor): (u32, u32)) -> Option<Vec<u8>> {
        let fits = |capability: u32| capability / 10 == major && capability % 10 <= minor;
        let (_, image) = self.machine.iter().filter(|(of, _)| fits(*of)).max_by_key(|(of, _)| *of)?;
        inflated(image)
    }
}

fn inflated(image: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = flate2::read::ZlibDecoder::new(image.get(DIGEST..)?).take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (crate::bytes::to_u64(len) <= LARGEST).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_whole_is_not_loaded() {
        let image = |len: u64| {
            let mut image = flate2::write::ZlibEncoder::new(vec![b'0'; DIGEST], flate2::Compression::fast());
            std::io::copy(&mut std::io::repeat(b'x').take(len), &mut image).unwrap();
            image.finish().unwrap()
        };
        let (mut largest, larger) = (image(LARGEST), image(LARGEST + 1));
        assert_eq!(inflated(&largest).map(|bytes| bytes.len() as u64), Some(LARGEST));
        assert!(inflated(&larger).is_none());
        *largest.last_mut().unwrap() ^= 1;
        assert!(inflated(&largest).is_none(), "not what the checksum says");
        assert!(inflated(&largest[..largest.len() - 4]).is_none() && inflated(&[]).is_none());
    }

    #[test]
    fn an_image_is_chosen_by_the_capability_of_the_gpu() {
        let machine = |capability| {
            let image = Images::of("rle").unwrap().machine_code(capability)?;
            assert!(image.starts_with(b"\x7fELF"));
            // The target architecture is in the flags of the ELF header; the byte depends on the version of the ABI.
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
        assert!(Images::of("rle").unwrap().text().unwrap().contains(".entry rle"));
        assert!(Images::of("nosuch").is_none());
    }
}
