"""Writes tree.b2d: a tree in a directory, with a leaf of its own file, one in the embedded store, and another file."""
import shutil, sys, blosc2 as b2, numpy as np
path = sys.argv[1]
shutil.rmtree(path, ignore_errors=True)
tree = b2.TreeStore(path, mode="w", threshold=2000)
tree["/a/small"] = np.arange(6, dtype="i4").reshape(2, 3)
tree["/a/large"] = np.arange(4000, dtype="f8")
tree["/top"] = np.ones(4, "f4")
tree.get_subtree("/a").vlmeta["note"] = [1, 2]
tree.vlmeta["title"] = "a tree"
tree.close()
open(f"{path}/a/notes.txt", "w").write("hello\n")
