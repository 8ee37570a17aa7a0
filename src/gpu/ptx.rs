//! The kernels as PTX, which the driver compiles for the GPU that is there.
//!
//! scripts/build-ptx makes the texts; a new file of kernels gets a line here.
#![forbid(unsafe_code)]

macro_rules! embedded {
    ($($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../kernels/ptx/", $file, ".ptx")))),*]
    };
}

/// The text of every kernels/*.cu, by its name without the suffix.
pub const FILES: &[(&str, &str)] = embedded! { "bitpack" "bitshuffle" "copy" "fused" "huffman" "lorenzo_quant" "quantizer" "recode" "rle" "rze" "sums" };

/// The text of kernels/`file`.cu.
pub fn text(file: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}
