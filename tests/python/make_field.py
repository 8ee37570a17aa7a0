"""Makes an array for clusters: make_field.py FILE MIB PARTS SEED writes 32-bit integers as b2nd, in chunks of 64 KiB,
and prints the sum of each part. A quarter of a chunk is noise, the rest zeros: it is decoded nearly as fast as it is
copied, and no two are alike.
"""

from __future__ import annotations

import json
import sys

import blosc2
import numpy as np

path, (mib, parts, seed) = sys.argv[1], map(int, sys.argv[2:])
rows = mib * 256 // parts
packing = {"codec": blosc2.Codec.LZ4, "clevel": 1, "filters": [blosc2.Filter.NOFILTER]}
array = blosc2.empty(
    (parts * rows, 1024), dtype="<i4", chunks=(16, 1024), blocks=(16, 1024), urlpath=path, mode="w", cparams=packing
)
noise, sums = np.random.default_rng(seed), []
for part in range(parts):
    data = np.zeros((rows, 1024), "<i4")
    data[:, :256] = noise.integers(-(2**31), 2**31, (rows, 256), "<i4")
    array[part * rows : (part + 1) * rows] = data
    sums.append(int(data.sum(dtype="i8")))
print(json.dumps(sums))
