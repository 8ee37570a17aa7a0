"""Writes the table of tests/bench/FIGURES.md from the rows that the benchmarks have printed.

bench_table.py ROWS FILE   replaces what is between the two marks in FILE

A line of the table sums up all rows whose name matches: the range of what was measured, of what it is compared with, and
of the ratios.
"""

import re
import sys

# What a reader wants to know, the rows that tell it, and what the ratio refers to.
LINES = [
    ("FZM, 1-D lorenzo_quant, bitshuffle, rze; decode on one thread", r"FZM, 1-D lorenzo_quant, bitshuffle.* 1 thread /",
     "memcpy"),
    ("FZM, 2-D and 3-D", r"FZM, [23]-D .* 1 thread / memcpy", "memcpy"),
    ("FZM, mounted, nothing cached", r"7 cold sequential", "what decoding and FUSE allow"),
    ("the same, squashfuse_ll on zstd, blocks of 128 KiB and 1 MiB", r"cold sequential / squashfuse_ll", "squashfuse_ll"),
    ("FZM, random 4 KiB, nothing cached", r"random 4 KiB, cold / squashfuse_ll, zstd, 128K",
     "squashfuse_ll, blocks of 128 KiB; less is better"),
    ("Blosc2, LZ4 and blosclz, decode on one thread", r"Blosc2, (lz4|blosclz).*, 1 thread", "C-Blosc2"),
    ("Blosc2, zstd and zlib, decode on one thread", r"Blosc2, (zstd|zlib).*, 1 thread", "C-Blosc2"),
    ("Blosc2 array, mounted: numpy.load", r"b2nd, (zstd|lz4), numpy.load", "python-blosc2 on the file"),
    ("ZXC, levels 1 to 6, decode on one thread", r"ZXC, .*, 1 thread", "libzxc"),
    ("Zstandard, one frame, mounted", r"zstd, one frame with(out)? a checksum: cold / zstd -dc$", "`zstd -dc`"),
    ("Zstandard, frames of 16 MiB, mounted", r"zstd, frames of 16 MiB: cold / zstd -dc$", "`zstd -dc`"),
    ("Zstandard, seekable, mounted", r"zstd, seekable, frames of 1 MiB: cold / zstd -dc$", "`zstd -dc`"),
    ("Zstandard, frames of 16 MiB: `fzmfs cat`", r"zstd, frames of 16 MiB: fzmfs cat", "`zstd -dc`"),
    ("zTensor, opening 100,000 tensors", r"zTensor, opening 100000", "the official package; less is better"),
    ("mount to the first listing", r"13 mount to first", ""),
    ("memory of the idle daemon", r"19 memory of the idle", ""),
    ("memory of the daemon, reading with `cache=16M`", r"19 peak memory", ""),
]
MARKS = ("<!-- scripts/bench figures -->\n", "<!-- end -->\n")


def span(texts):
    """Values with their unit, as a range if they differ."""
    units = {text.split(" ", 1)[1] for text in texts if text}
    values = sorted((float(text.split()[0]), text.split()[0]) for text in texts if text)
    if not values:
        return ""
    low, high = values[0][1], values[-1][1]
    return " ".join([low if low == high else f"{low} to {high}", *sorted(units)[:1]])


def line(title, pattern, rival, rows):
    found = [row for row in rows if re.match(pattern, row[0])]
    if not found:
        sys.exit(f"bench_table.py: no row matches {pattern!r}")
    measured, against = (span([row[i] for row in found]) for i in (1, 2))
    ratio = span([row[3] + " " for row in found if row[3]]).strip()
    against = ", ".join(part for part in (rival, against) if part)
    return f"| {title} | {measured} | {against} | {ratio} |\n"


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        rows = [text.rstrip("\n").split("\t") for text in file]
    table = "| what | measured | against | ratio |\n| --- | --- | --- | --- |\n"
    table += "".join(line(*entry, rows) for entry in LINES)
    with open(sys.argv[2], encoding="ascii") as file:
        text = file.read()
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    with open(sys.argv[2], "w", encoding="ascii") as file:
        file.write(before + MARKS[0] + table + MARKS[1] + after)


main()
