"""Arrays in compressed containers, read without mounting: FZM, Blosc2, ZXC, zTensor, Zstandard.

Open a container, and it is a mapping of lazy arrays::

    import fzmfs
    import numpy

    with fzmfs.open("run.fzm") as run:
        run["data"].shape, run["data"].dtype      # nothing is decoded for these
        run["data"].attrs                         # what the container says of it: units, pipeline, error bound
        run["data"][10:20, ::2]                   # a numpy.ndarray; only what is needed is decoded
        numpy.asarray(run["data"])                # all of it

It may be on a server, of which only what is needed is fetched::

    fzmfs.open("https://server/run.fzm")["data"][10:20]
    fzmfs.open("s3://bucket/run.fzm", remote_cache="/scratch/cache:50G")

Of a directory, or a prefix of S3, a mapping of its containers, each opened when it is taken::

    fzmfs.open("runs/")["2024/a.fzm"]["data"][10:20]
    xarray.open_datatree("runs/", engine="fzmfs")

Every file that ``fzmfs mount`` would show is there too::

        run.files()                               # as fzmfs ls -R
        run.read("buffers/codes.raw", 0, 100)     # bytes
        run.info                                  # as fzmfs info --json
        run.verify()                              # every checksum; fzmfs.Error if one is wrong

Memory of your own is filled in place::

        run["data"].read(numpy.s_[5:8], out=array)
        run["data"].read_into(bytearray(4096), numpy.s_[5])

Tensors go to other libraries without another copy; bfloat16 and the 8-bit floats are those of ml_dtypes where that is
installed::

    {name: torch.from_dlpack(tensor) for name, tensor in fzmfs.open("model.zt").items()}

On an NVIDIA GPU, FZM arrays are decoded there and stay there::

    torch.from_dlpack(fzmfs.open("run.fzm")["data"].cuda())
    cupy.asarray(fzmfs.open("run.fzm")["data"].cuda()[100:200])

The same without a mount and without a copy, in other packages::

    zarr.open_group(fzmfs.zarr_store("run.b2nd"))                 # zarr-python, 3.1.3 or later
    xarray.open_dataset("run.b2nd", engine="fzmfs", chunks={})    # lazy; with Dask if chunks are given
    dask.array.from_array(fzmfs.open("run.b2nd")["data"])         # in chunks that suit the container
    fsspec.open("fzmfs://data.raw::file:///data/run.fzm")         # files, as a mount shows them

In a notebook, the page of a container: its tree, what it is, and its arrays by slices::

    fzmfs.serve("run.fzm")                    # or fzmfs.serve("runs/").url, for a browser and for readers of Zarr

Shapes are in elements, slowest dimension first; offsets and sizes of files in bytes. Decoding runs on all cores, and
other Python threads run meanwhile. Archives and arrays can be shared by threads, pickled (the copy opens the source
again) and used after a fork. What is broken or has changed raises :class:`fzmfs.Error`, an :class:`OSError` with
``kind``, ``field`` and ``offset``; everything else in the container stays readable.
"""

from __future__ import annotations

import errno
import operator
import os
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version

from . import _directory as _directories
from ._archive import Archive, Entry, Verified
from ._array import Array
from ._cuda import CudaArray
from ._directory import Directory
from ._doors import zarr_store
from ._dtype import given_type
from ._errors import Error, MissingError
from ._serve import Server, serve

__all__ = ["Archive", "Array", "CudaArray", "Directory", "Entry", "Error", "Server", "Verified", "open", "serve", "zarr_store"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


try:
    __version__ = version("fzmfs")
except PackageNotFoundError:  # used from a folder
    __version__ = "unknown"


def open(
    source: str | os.PathLike[str],
    *,
    verify: str | None = None,
    cache: int | str | None = None,
    spill: int | str | None = None,
    threads: int | None = None,
    device: str | None = None,
    gpu_memory: int | str | None = None,
    format: str | None = None,
    dict: str | os.PathLike[str] | list[str | os.PathLike[str]] | None = None,
    dtype: object = None,
    shape: int | tuple[int, ...] | list[int] | None = None,
    spacing: float | tuple[float, ...] | list[float] | None = None,
    units: str | None = None,
    window: int | str | None = None,
    timeout: float | None = None,
    expect: str | None = None,
    unpinned: bool | None = None,
    remote_cache: str | os.PathLike[str] | None = None,
    index: str | os.PathLike[str] | None = None,
    index_size: int | str | None = None,
) -> Archive:
    """Opens the container ``source``: a file, the directory of a sparse Blosc2 frame or of a store (``.b2d``), or a
    URL. Decodes nothing.

    Of a directory of containers, or a prefix of S3 that ends with a slash, a :class:`fzmfs.Directory`: a mapping of their
    names to archives, each of which is opened when it is taken.

    Of an object on a server (``https://``, ``http://``, ``s3://BUCKET/KEY``) only the ranges that are needed are fetched,
    of the version that is there now. Credentials come from the environment, as the tools of AWS take them. A password or a
    signature in ``source`` is in no message, but in what a pickle of the archive, its arrays and its stores, and
    ``to_json`` and ``storage_options`` of fsspec, hold: with credentials in the environment of each process they hold
    none. Loading a pickle opens what it names: load only those that you trust.

    The options are those of the command line. Sizes are bytes, or text with a suffix: ``"64M"``.

    Args:
        verify: when checksums that cover much more than is read are verified: ``"first"``, before the first byte;
            ``"background"``, beside the reading; ``"off"``; ``"auto"``, the first for up to 64 MiB, else the second.
        cache: decoded bytes to keep; by default an eighth of the memory, at most 1 GiB.
        spill: temporary disk space for decoded bytes that do not fit.
        threads: that decode; by default one for each core.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        gpu_memory: the most to use on a GPU.
        format: by name, instead of detecting it.
        dict: dictionary files of ZXC or Zstandard; chosen by their ids.
        dtype: the element type, for containers without one: whatever ``numpy.dtype`` takes, with ``"bfloat16"`` and the
            8-bit floats of ml_dtypes.
        shape: the shape, for containers without one, slowest dimension first.
        spacing: the distance of the elements in space, of each dimension, slowest first; ``data.zarr`` and headers have it.
        units: what distances are measured in: ``"um"``, or of each dimension ``"sxumxum"``.
        window: the most memory that a Zstandard window may take.
        timeout: seconds for which a server that fails is asked again before a read fails; 30 by default.
        expect: the ETag that the object must have.
        unpinned: read an object even if its server tells versions apart by nothing: a change goes unnoticed.
        remote_cache: keep what is fetched in this directory, compressed as it is; ``"DIR:SIZE"`` limits its size.
        index: keep in this directory what is expensive to find again about a file, for later; by default nothing is kept. A
            mount, and the commands, use ``$XDG_CACHE_HOME/fzmfs``, which may be given here too.
        index_size: the most bytes of the index; 1 GiB by default.

    Raises:
        fzmfs.Error: it cannot be opened, or is broken; ``kind``, ``field`` and ``offset`` say where. It is a
            FileNotFoundError too if there is nothing at ``source``.
        ValueError: an option has no such value.
    """
    if threads is not None and threads < 1:
        raise ValueError("threads: at least 1")
    given = {
        "verify": verify,
        "cache": _bytes("cache", cache),
        "spill": _bytes("spill", spill),
        "threads": threads,
        "device": device,
        "gpu_memory": _bytes("gpu_memory", gpu_memory),
        "format": format,
        "dict": None if dict is None else _paths(dict),
        "dtype": None if dtype is None else given_type(dtype),
        "shape": None if shape is None else _sizes(shape),
        "spacing": None if spacing is None else _distances(spacing),
        "units": units,
        "window": _bytes("window", window),
        "timeout": None if timeout is None else _seconds(timeout),
        "expect": expect,
        "unpinned": unpinned,
        "remote_cache": None if remote_cache is None else _directory(remote_cache),
        "index": None if index is None else os.path.abspath(os.fspath(index)),
        "index_size": _bytes("index_size", index_size),
    }
    options = {name: value for name, value in given.items() if value is not None}
    path = os.fsdecode(source)
    try:
        if format is None and (path.endswith("/") or "://" in path or os.path.isdir(path)):
            directory = _directories.opened(path, options)
            if directory is not None:
                # Typed as what most callers open.
                return directory  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
        return Archive(path, options)
    except Error as error:
        if error.errno != errno.ENOENT and error.kind != "missing":
            raise
        why = str(error.strerror)
        raise MissingError(errno.ENOENT, why, error.filename, error.kind, error.field, error.offset) from None


def _sizes(shape: int | tuple[int, ...] | list[int]) -> list[int]:
    sizes = [operator.index(size) for size in (shape if isinstance(shape, (tuple, list)) else [shape])]
    if any(not 0 <= size < 1 << 63 for size in sizes):
        raise ValueError(f"shape: {shape} has a size that no array has")
    return sizes


def _distances(spacing: float | tuple[float, ...] | list[float]) -> list[float]:
    return [float(distance) for distance in (spacing if isinstance(spacing, (tuple, list)) else [spacing])]


def _paths(files: str | os.PathLike[str] | list[str | os.PathLike[str]]) -> list[str]:
    # A copy of the archive may be opened in another directory.
    return [os.path.abspath(file) for file in ([files] if isinstance(files, (str, os.PathLike)) else files)]


def _seconds(timeout: float) -> timedelta:
    if not 0 < timeout <= 86_400:
        raise ValueError(f"timeout: {timeout} is not a time in seconds, at most a day")
    return timedelta(seconds=timeout)


def _directory(given: str | os.PathLike[str]) -> tuple[str, int | None]:
    """A directory, and the size in ``"DIR:SIZE"``."""
    path = os.fspath(given)
    front, colon, size = path.rpartition(":")
    try:
        limit = _bytes("remote_cache", size) if colon and isinstance(given, str) else None
    except ValueError:
        limit = None
    directory = path if limit is None else front
    if not directory:
        raise ValueError("remote_cache: a directory is missing")
    return os.path.abspath(directory), limit


def _bytes(name: str, size: int | str | None) -> int | None:
    if isinstance(size, str):
        units = {"K": 10, "M": 20, "G": 30}
        number, unit = (size[:-1], size[-1:].upper()) if size[-1:].upper() in units else (size, "")
        if not (number.isascii() and number.isdecimal()):
            raise ValueError(f"{name}: {size!r} is not a size: bytes, or a number with K, M or G")
        size = int(number) << units.get(unit, 0)
    if size is not None and not 0 <= size < 1 << 63:
        raise ValueError(f"{name}: {size} is not a size in bytes")
    return size
