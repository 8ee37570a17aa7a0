"""Opens data.nhdr and data.mhd of mounts with pynrrd, ITK and VTK: dimensions, spacing, type and every element.

check_readers.py FZMFS [PROGRAM...]    PROGRAM: nrrd, itk or vtk, all by default

Each program runs in a process of its own, because VTK ends on what it cannot read. It reads MetaImage up to rank 3; in
NRRD it takes a first axis of at most 9 elements, and that of rank 4, for components, and has no rank 1.
"""

import importlib
import os
import subprocess
import sys
import tempfile

import numpy

SHAPES = [(40,), (12, 13), (10, 11, 12), (2, 10, 11, 12)]
TYPES = ["|b1", "|i1", "|u1", "<i2", ">u2", "<i4", ">i4", "<u4", "<i8", "<u8", "<f4", ">f4", "<f8"]
# A zstd frame of raw blocks needs no library.
MAGIC = b"\x28\xb5\x2f\xfd"


def frame(data):
    assert 0 < len(data) < 1 << 17
    return MAGIC + b"\xa0" + len(data).to_bytes(4, "little") + (len(data) << 3 | 1).to_bytes(3, "little") + data


def by_nrrd(path, want):
    import nrrd
    data, header = nrrd.read(path, index_order="C")
    assert (data == want).all() and data.shape == want.shape and (header["spacings"] == 1).all()


def by_itk(path, want):
    import itk
    io = (itk.NrrdImageIO if path.endswith(".nhdr") else itk.MetaImageIO).New()
    io.SetFileName(path)
    assert io.CanReadFile(path)
    io.ReadImageInformation()
    assert [io.GetDimensions(i) for i in range(io.GetNumberOfDimensions())] == list(want.shape[::-1])
    assert all(io.GetSpacing(i) == 1 for i in range(want.ndim))
    assert io.GetImageSizeInBytes() == want.nbytes, io.GetComponentTypeAsString(io.GetComponentType())
    # What the Python package has image types for.
    if want.ndim > 1 and want.dtype.newbyteorder("=") in (numpy.uint8, numpy.int16, numpy.uint16, numpy.float32):
        data = itk.array_from_image(itk.imread(path))
        assert data.shape == want.shape and (data == want).all() and data.sum() == want.sum()


def by_vtk(path, want):
    import vtk
    from vtk.util.numpy_support import vtk_to_numpy
    is_nrrd = path.endswith(".nhdr")
    if want.ndim == (1 if is_nrrd else 4):
        return
    reader = (vtk.vtkNrrdReader if is_nrrd else vtk.vtkMetaImageReader)()
    reader.SetFileName(path)
    assert reader.CanReadFile(path)
    reader.Update()
    image = reader.GetOutput()
    axes, components = want.shape[::-1], 1
    if want.ndim == 4:
        components, *axes = axes
    assert image.GetDimensions() == (*axes, 1, 1)[:3] and image.GetNumberOfScalarComponents() == components
    assert image.GetSpacing() == (1, 1, 1)
    data = vtk_to_numpy(image.GetPointData().GetScalars())
    assert data.dtype.itemsize == want.dtype.itemsize
    assert (data.reshape(want.shape) == want).all() and data.sum() == want.sum()


def compare(program, point, want):
    """One array as one program reads it; gives the number of headers."""
    paths = [os.path.join(point, name) for name in ("data.nhdr", "data.mhd")]
    integer64 = want.dtype.kind in "iu" and want.dtype.itemsize == 8
    assert os.path.exists(paths[0]) and os.path.exists(paths[1]) == (not integer64)
    read = globals()["by_" + program]
    mine = [p for p in paths if os.path.exists(p) and (program != "nrrd" or p.endswith(".nhdr"))]
    for path in mine:
        read(path, want)
    return len(mine)


def main(fzmfs, programs):
    rng = numpy.random.default_rng(1)
    counts = dict.fromkeys(programs, 0)
    with tempfile.TemporaryDirectory() as dir:
        point, source, saved = (os.path.join(dir, name) for name in ("mnt", "x.zst", "want.npy"))
        os.mkdir(point)
        for shape, dtype, padding in [(s, t, p) for s in SHAPES for t in TYPES for p in (b"", b"padding")]:
            want = rng.integers(0, 2 if dtype == "|b1" else 100, shape).astype(dtype)
            with open(source, "wb") as file:
                file.write(frame(want.tobytes() + padding))
            numpy.save(saved, want)
            options = f"dtype={dtype},shape={'x'.join(map(str, shape))}"
            subprocess.run([fzmfs, "mount", "-o", options, source, point], check=True)
            try:
                for program in programs:
                    # VTK does not read an NRRD whose data are not all of a file; it says so.
                    if program == "vtk" and padding:
                        continue
                    counts[program] += child(program, point, saved)
            finally:
                subprocess.run([fzmfs, "umount", point], check=True)
    print(", ".join(f"{program}: {count} headers" for program, count in counts.items()))


def child(program, point, saved):
    """A comparison in a process of its own, forked after the modules were loaded."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, bytes([compare(program, point, numpy.load(saved))]))
        os._exit(0)
    os.close(write)
    count = os.read(read, 1)
    os.close(read)
    _, status = os.waitpid(pid, 0)
    assert status == 0 and count, (program, status, saved)
    return count[0]


if __name__ == "__main__":
    names = sys.argv[2:] or ["nrrd", "itk", "vtk"]
    for name in names:
        importlib.import_module(name)
    main(sys.argv[1], names)
