"""Writes chessboard.mla with mlarray 0.0.54: fields as long in each dimension of space, as its spacing says."""
import sys
import mlarray, numpy as np
fields = [at // length for at, length in zip(np.indices((40, 96, 160)), (4, 10, 20))]
data = np.where(sum(fields) % 2 == 1, 60_000, 20_000).astype("<u2")
image = mlarray.MLArray(data, spacing=[2.5, 1, 0.5])
image.meta.spatial.axis_units = ["um", "um", "um"]
image.save(f"{sys.argv[1]}/chessboard.mla")
