"""ZXC files made by the official encoders, for the tests.

make_zxc.py DIR SEED COUNT   COUNT files of each release: RELEASE-N.zxc, RELEASE-N.raw, which is what reading it must
                             give, and RELEASE-N.zxd, the dictionary that it needs, if any

Run by the Python of scripts/oracle zxc. Each release is imported by a process of its own.
"""

import os
import random
import subprocess
import sys
from array import array

RELEASES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(sys.executable))), "releases")
WORDS = [b"error", b"warning", b"ok", b"GET /index.html", b"0.0.0.0", b"the", b"temperature", b"pressure", b"\n"]


def content(rng, size):
    """`size` bytes of a sort that an encoder has a block type or a stage for."""
    sort = rng.randrange(8)
    if sort == 0:
        return rng.randbytes(size)
    if sort == 1:
        out = bytearray()
        while len(out) < size:
            out += rng.choice(WORDS) + b" %d" % rng.randrange(1000)
        return bytes(out[:size])
    if sort == 2:
        out = bytearray()
        while len(out) < size:
            out += rng.randbytes(1) * rng.randrange(1, 5000)
        return bytes(out[:size])
    if sort == 3:
        step, value, out = rng.choice([1, 9, 300]), rng.randrange(1 << 31), array("I")
        for _ in range(size // 4 + 1):
            value = (value + rng.randrange(step)) % (1 << 32)
            out.append(value)
        return out.tobytes()[:size]
    if sort == 4:
        value, out = 0.0, array("d")
        for _ in range(size // 8 + 1):
            value += rng.gauss(0, 1)
            out.append(round(value, 2))
        return out.tobytes()[:size]
    if sort == 5:
        few = rng.randbytes(rng.randrange(1, 20))
        return bytes(rng.choices(few, k=size))
    if sort == 6:
        unit = rng.randbytes(rng.randrange(1, 3000))
        return (unit * (size // len(unit) + 1))[:size]
    cut = rng.randrange(size + 1)
    return content(rng, cut) + content(rng, size - cut)


def size_of(rng, block):
    """Very few, around the borders of blocks, or anything."""
    near = [block - 1, block, block + 1, 2 * block - 1, 2 * block, 3 * block + 7]
    anything = rng.randrange(1 << rng.randrange(6, 21))
    return rng.choice([rng.randrange(20), rng.choice([n for n in near if n <= 3 << 19] or [block]), anything])


class Release:
    """What one release can do."""

    def __init__(self, name):
        import zxc
        self.zxc = zxc
        self.number = tuple(map(int, name.split(".")))
        self.program = os.path.join(RELEASES, name, "bin/zxc")
        self.ways = [self.in_memory, self.from_file]
        if os.path.exists(self.program):
            self.ways.append(self.by_program)
        if hasattr(zxc, "CStream"):
            self.ways.append(self.by_stream)
        self.sized = self.ways[2:] if self.number >= (0, 9) else []
        self.block = 256 << 10 if self.number < (0, 11) else 512 << 10
        self.levels = 5 if self.number < (0, 11) else 6 if self.number < (0, 13) else 7

    def in_memory(self, rng, data, block, level, checksum, dictionary):
        if not data and self.number < (0, 12):
            # They refuse to, or give nothing.
            return self.from_file(rng, data, block, level, checksum, dictionary)
        more = dictionary.given()
        if self.number >= (0, 15):
            more["seekable"] = rng.random() < 0.5
        return self.zxc.compress(data, level=level, checksum=checksum, **more)

    def from_file(self, rng, data, block, level, checksum, dictionary):
        more = dictionary.given()
        if self.number >= (0, 10):
            more["seekable"] = rng.random() < 0.5
        with open("in", "wb") as source:
            source.write(data)
        with open("in", "rb") as source, open("out", "wb") as sink:
            self.zxc.stream_compress(source, sink, n_threads=rng.randrange(1, 3), level=level, checksum=checksum, **more)
        return read("out")

    def by_program(self, rng, data, block, level, checksum, dictionary):
        words = [self.program, "-z", "-k", "-c", "-q", f"-{level}", "-C" if checksum else "-N"]
        if self.number >= (0, 9):
            words += ["-B", f"{block >> 10}K"]
        if self.number >= (0, 10) and rng.random() < 0.5:
            words.append("-S")
        if not dictionary.table:
            # It takes no other dictionary than its own.
            dictionary.forget()
        else:
            write("dict.zxd", dictionary.file)
            words += ["-D", "dict.zxd"]
        write("in", data)
        return subprocess.run(words + ["in"], check=True, stdout=subprocess.PIPE).stdout

    def by_stream(self, rng, data, block, level, checksum, dictionary):
        dictionary.forget()
        stream = self.zxc.CStream(level=level, checksum=checksum, block_size=block)
        out, at = b"", 0
        while at < len(data):
            n = rng.choice([1000, 70_000, 1 << 20])
            out += stream.compress(data[at:at + n])
            at += n
        return out + stream.end()


class Dictionary:
    """None, trained content with its table of code lengths, or bytes of any sort."""

    def __init__(self, release, rng):
        self.content = self.table = self.file = None
        if release.number < (0, 12) or rng.random() < 0.6:
            return
        if rng.random() < 0.5:
            self.content = self.file = content(rng, rng.randrange(200, 60_000))
            return
        samples = [content(rng, rng.randrange(500, 3000)) for _ in range(40)]
        self.content = release.zxc.train_dict(samples, max_size=rng.choice([2000, 30_000]))
        self.table = release.zxc.train_dict_huf(samples, self.content)
        self.file = release.zxc.dict_save(self.content, self.table)

    def given(self):
        return {name: value for name, value in [("dict", self.content), ("dict_huf", self.table)] if value}

    def forget(self):
        self.content = self.table = self.file = None


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def one_release(name, seed, count):
    release = Release(name)
    rng = random.Random(f"{name} {seed}")
    for i in range(count):
        way, dictionary = rng.choice(release.ways), Dictionary(release, rng)
        block = 1 << rng.randrange(12, 22) if way in release.sized else release.block
        level, checksum = rng.randrange(1, release.levels + 1), rng.random() < 0.5
        frame = lambda data: way(rng, data, block, level, checksum, dictionary)
        # Frames may follow one another from version 9 on.
        parts = [content(rng, size_of(rng, block)) for _ in range(rng.choice([1, 1, 3]) if release.number >= (0, 15) else 1)]
        stem = f"{name}-{i:04}"
        write(stem + ".zxc", b"".join(frame(part) for part in parts))
        write(stem + ".raw", b"".join(parts))
        if dictionary.file:
            write(stem + ".zxd", dictionary.file)
        print(stem, way.__name__, level, checksum, block, [len(part) for part in parts], bool(dictionary.file))


def main():
    os.chdir(sys.argv[1])
    if len(sys.argv) == 5:
        one_release(sys.argv[4], sys.argv[2], int(sys.argv[3]))
        return
    for release in os.listdir(RELEASES):
        path = dict(os.environ, PYTHONPATH=os.path.join(RELEASES, release))
        subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], release], check=True, env=path)
    for name in ["in", "out", "dict.zxd"]:
        if os.path.exists(name):
            os.remove(name)


main()
