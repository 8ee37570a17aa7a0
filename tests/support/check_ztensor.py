"""Reads mounted zTensor files with the programs that people use, and compares with the official package.

check_ztensor.py FILE MOUNTPOINT ...          says how much it compared; ends with an error at the first difference
check_ztensor.py lazily FILE MOUNTPOINT PID   takes one tensor of many out of model.safetensors; PID is the daemon
"""

import collections
import os
import sys

import numpy
import safetensors
import scipy.sparse
import ztensor

count = collections.Counter()

# What NumPy calls the types that it has no type of its own for.
OPAQUE = {"bf16": "V2", "f8_e4m3fn": "V1", "f8_e4m3": "V1", "f8_e5m2": "V1", "f8_e4m3fnuz": "V1", "f8_e5m2fnuz": "V1",
          "f8_e8m0": "V1"}
PLAIN = {"f64": "f8", "f32": "f4", "f16": "f2", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1",
         "u16": "u2", "u32": "u4", "u64": "u8", "bool": "?", "complex64": "c8", "complex128": "c16"}
# What safetensors calls them; it has nothing for the others.
SAFETENSORS = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i8": "I8", "i16": "I16", "i32": "I32",
               "i64": "I64", "u8": "U8", "u16": "U16", "u32": "U32", "u64": "U64", "bool": "BOOL", "complex64": "C64",
               "f8_e4m3fn": "F8_E4M3", "f8_e5m2": "F8_E5M2", "f8_e8m0": "F8_E8M0"}


def segment(name):
    escaped = "".join(f"%{ord(c):02X}" if ord(c) < 0x20 or c in "\x7f%" else c for c in name)
    return {"": "%", ".": "%2E", "..": "%2E%2E"}.get(escaped, escaped)


def path(point, name):
    return os.path.join(point, "tensors", *map(segment, name.split("/")))


def compare(file, part, shape):
    """One part: its bytes, and its array where NumPy can have one."""
    want = part.tobytes()
    with open(file + ".raw", "rb") as raw:
        assert raw.read() == want, file
    count["parts"] += 1
    kind = part.logical or part.dtype
    dtype = PLAIN.get(kind) or OPAQUE.get(kind)
    if dtype is None:
        assert not os.path.exists(file + ".npy"), (file, kind)
        return None
    array = numpy.load(file + ".npy", mmap_mode="r" if want else None)
    assert array.dtype == numpy.dtype(dtype) and array.shape == shape, (file, array.dtype, array.shape)
    assert array.tobytes() == want, file
    count["arrays"] += 1
    return array


def tensors(source, point):
    """Every tensor as files and arrays; gives the dense ones that safetensors can have."""
    model = {}
    for name, tensor in source.items():
        file = path(point, name)
        if tensor.layout == "dense":
            compare(file, tensor, tuple(tensor.shape))
            kind = tensor.logical or tensor.dtype
            if kind in SAFETENSORS:
                model[name] = (SAFETENSORS[kind], list(tensor.shape), tensor.tobytes())
            continue
        parts = {}
        for role in tensor.parts:
            part = tensor[role]
            size = part.nbytes // numpy.dtype(PLAIN[part.dtype]).itemsize
            shape = (2, size // 2) if role == "coords" else (size,)
            parts[role] = compare(os.path.join(file, role), part, shape)
        if tensor.layout.startswith("zt.sparse_csr"):
            ours = scipy.sparse.load_npz(file + ".npz")
            theirs = scipy.sparse.csr_array((parts["values"], parts["indices"], parts["indptr"]), shape=tensor.shape)
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, file
            assert numpy.array_equal(ours.toarray(), theirs.toarray()), file
            count["matrices"] += 1
    return model


def safetensors_file(file, model):
    """The model as one file: what it holds, lazily and whole."""
    with safetensors.safe_open(file, framework="numpy") as opened:
        assert set(opened.keys()) == set(model), (opened.keys(), model.keys())
        for name, (kind, shape, data) in model.items():
            part = opened.get_slice(name)
            assert part.get_dtype() == kind and part.get_shape() == shape, (file, name)
            if kind == "C64" or kind.startswith(("F8", "BF")):
                continue  # NumPy alone has no array for it, or safetensors makes none
            array = opened.get_tensor(name)
            assert list(array.shape) == shape and array.tobytes() == data, (file, name)
            count["lazily loaded"] += 1
    with open(file, "rb") as whole:
        for name, found in safetensors.deserialize(whole.read()):
            assert (found["dtype"], found["shape"], bytes(found["data"])) == model[name], (file, name)
            count["deserialized"] += 1


def read_by_daemon(pid):
    """Bytes that a process has read so far."""
    with open(f"/proc/{pid}/io") as io:
        return int(io.readline().split()[1])


def lazily(file, point, pid):
    """Takes one tensor out of the model: little else is read of the container for it."""
    size = os.path.getsize(file)
    source = ztensor.open(file)
    name = list(source)[len(source) // 2]
    before = read_by_daemon(pid)
    with safetensors.safe_open(os.path.join(point, "model.safetensors"), framework="numpy") as opened:
        assert opened.get_tensor(name).tobytes() == source[name].tobytes()
        one = read_by_daemon(pid) - before
        for name in source:
            assert opened.get_tensor(name).tobytes() == source[name].tobytes(), name
        all_of_them = read_by_daemon(pid) - before
    print(f"{size} bytes; read for one tensor {one}, for all {all_of_them}")
    assert all_of_them > 0.9 * size and one < size / 4


def main():
    if sys.argv[1] == "lazily":
        return lazily(*sys.argv[2:])
    for file, point in zip(sys.argv[1::2], sys.argv[2::2]):
        with ztensor.open(file) as source:
            safetensors_file(os.path.join(point, "model.safetensors"), tensors(source, point))
    print(dict(count))


main()
