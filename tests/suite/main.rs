//! The integration tests, one binary: each module is one promise of the product.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod archive;
mod archive_boxes;
mod archive_direct;
mod background_checksums;
#[path = "../support/blobs.rs"]
mod blobs;
mod blosc2;
mod blosc2_archive;
mod blosc2_properties;
mod blosc2_stores;
mod blosc2_tables;
mod cli;
#[path = "../support/everything.rs"]
#[expect(dead_code, reason = "memory is measured where allocations are counted")]
mod everything;
#[path = "../examples/format/mod.rs"]
mod format_example;
mod format_template;
mod fzm;
mod fzm2;
mod fzm_device;
mod fzm_graph;
#[path = "../support/fzm_inverses.rs"]
mod fzm_inverses;
mod fzm_properties;
mod fzm_writer;
#[path = "../support/gpu/mod.rs"]
mod gpu;
#[cfg(feature = "cuda")]
mod gpu_driver;
#[cfg(feature = "cuda")]
mod gpu_report;
#[cfg(feature = "cuda")]
mod gpu_resident;
#[path = "../support/launches.rs"]
mod launches;
mod layers;
mod mount;
mod nested;
mod ptx;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "serve")]
mod serve;
mod support;
mod swapped;
mod tar;
#[path = "../support/tar_blocks.rs"]
mod tar_blocks;
mod tar_trees;
mod text;
mod thread_origins;
mod type_names;
mod unknown_parts;
mod unsized_tar;
mod usage;
mod zstd;
mod zstd_ahead;
mod zstd_index;
mod zstd_properties;
mod zstd_seekable;
mod zstd_truncated;
mod zstd_v07;
mod ztensor;
mod ztensor_digests;
#[path = "../support/ztensor.rs"]
mod ztensor_files;
mod ztensor_hostile;
mod ztensor_properties;
mod zxc;
mod zxc_properties;
