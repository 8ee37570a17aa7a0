//! The module `fzmfs._native`: the library's archives, files and arrays for the Python sources beside it.
//!
//! Only what needs Rust is here: opening, listing, and filling memory. The Python side of objects (mapping, indexing,
//! pickling) is in `fzmfs/`. Every call that may read or decode releases the interpreter, and ends with Ctrl-C.

mod allocator;
mod array;
mod container;
mod device;
mod end;
mod failure;
mod interrupt;
mod listing;
mod opened;
mod owned;
mod walk;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Archives, files and arrays, as the Python sources of fzmfs use them.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::array::NativeArray;
    #[pymodule_export]
    use super::container::NativeArchive;
    #[pymodule_export]
    use super::container::NativeFile;
    #[pymodule_export]
    use super::container::list_directory;
    #[pymodule_export]
    use super::device::DeviceBuffer;
    #[pymodule_export]
    use super::walk::Walk;
}
