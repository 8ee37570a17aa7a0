//! The kernels as PTX, which the driver compiles for the installed GPU.
//!
//! scripts/build-ptx generates the texts; add new kernel files to the list below.
#![forbid(unsafe_code)]

macro_rules! embedded {
    ($($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../kernels/ptx/", $file, ".ptx")))),*]
    };
}

/// The PTX of every kernels/*.cu, by file name without suffix.
pub const FILES: &[(&str, &str)] = embedded! { "bitpack" "bitshuffle" "copy" "fused" "huffman" "lorenzo_quant" "quantizer" "recode" "rle" "rze" "sums" };

/// The PTX of kernels/`file`.cu.
pub fn text(file: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}
