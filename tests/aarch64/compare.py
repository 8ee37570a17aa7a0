"""Compares builds of the program for two systems over files: what they decode, print and say, and how they exit.

compare.py NATIVE OTHER FILE-OR-DIRECTORY...: NATIVE and OTHER are commands of the program, beside which are the examples
(`examples/digests`). Every file is given to that example, to `info --json` and, unless it holds too much, to `verify`; every
directory of files to `ls -l`, with `-R` unless one of them does. Each starts once for many files, since starting takes longer than decoding where OTHER is
emulated. Prints each difference and, at the end, how many files and virtual files were the same; exit 1 if anything differed.
"""

import collections
import concurrent.futures
import itertools
import os
import pathlib
import shlex
import subprocess
import sys

# A command line of Windows takes 32767 characters.
AT_ONCE = 200
# Descriptions of how files were made, and what they hold as other programs write it.
NOT_CONTAINERS = {".json", ".md", ".npy", ".out", ".py", ".sh", ".svg", ".tsv", ".txt"}
# How the example ends what it says of a file that holds more than is compared.
TOO_LARGE = (" not verified further", " not listed further")


def run(command, arguments):
    """What a command prints and says, with slashes in paths and without drives, and its exit code."""
    done = subprocess.run([*command, *arguments], capture_output=True, check=False)
    return [shown(done.stdout), shown(done.stderr), [f"exit {done.returncode}"]]


def shown(output):
    """The lines of an output; those of Windows as they are elsewhere."""
    text = output.decode(errors="replace").replace("\r\n", "\n").replace("\\\\", "/").replace("\\", "/")
    return text.replace("Z:/", "/").splitlines()


def sections(lines):
    """The lines of each file in what the example prints."""
    found = collections.defaultdict(list)
    for line in lines:
        if not line.startswith(" "):
            name = line
        found[name].append(line)
    return found


def containers(place):
    """The files below a place that may be containers."""
    if os.path.isfile(place):
        return [place]
    every = (path for path in pathlib.Path(place).rglob("*") if path.is_file())
    return sorted(str(path) for path in every if path.suffix not in NOT_CONTAINERS)


def example(command):
    """The command of the example beside the program of a command."""
    program = pathlib.Path(command[-1])
    return [*command[:-1], str(program.parent / "examples" / f"digests{program.suffix}")]


class Comparison:
    """Runs both builds, several at a time, and keeps what differs."""

    def __init__(self, native, other):
        self.commands = native, other
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.differing = set()

    def both(self, commands, arguments):
        """The futures of both."""
        return [self.pool.submit(run, command, arguments) for command in commands]

    def differs(self, what, first, second):
        """Prints the first lines that differ, if any do."""
        if first != second:
            lines = [pair for pair in itertools.zip_longest(first, second) if pair[0] != pair[1]]
            print(f"DIFFERS {what}", *(f"    {side} {line!r:.400}" for pair in lines[:3] for side, line in zip("-+", pair)), sep="\n")
            self.differing.add(what)

    def decoded(self, paths):
        """Compares what files decode to; returns the number of virtual files, and the files that are not too large."""
        jobs = [self.both(map(example, self.commands), paths[at : at + AT_ONCE]) for at in range(0, len(paths), AT_ONCE)]
        virtual, small = 0, []
        for job in jobs:
            native, other = (future.result() for future in job)
            self.differs("what the example says", native[1:], other[1:])
            native, other = sections(native[0]), sections(other[0])
            for path in native | other:
                self.differs(path, native[path], other[path])
                virtual += sum(line.startswith("  ") and line[2] not in " {" for line in native[path])
                if not any(line.endswith(TOO_LARGE) for line in native[path]):
                    small.append(path)
        return virtual, small

    def said(self, command, paths):
        """Compares what a command of the program prints for files or directories."""
        jobs = {at: self.both(self.commands, [*command, *paths[at : at + AT_ONCE]]) for at in range(0, len(paths), AT_ONCE)}
        for at, job in jobs.items():
            results = zip(("prints", "says", "exits"), *(future.result() for future in job))
            for what, first, second in results:
                self.differs(f"what {command[0]} {what} for {paths[at]} and the next", first, second)


def main(native, other, *places):
    comparison = Comparison(shlex.split(native), shlex.split(other))
    paths = [path for place in places for path in containers(place)]
    virtual, small = comparison.decoded(paths)
    comparison.said(["info", "--json"], paths)
    comparison.said(["verify"], small)
    for folder in sorted({str(pathlib.Path(path).parent) for path in paths}):
        recursively = ["-R"] if set(containers(folder)) <= set(small) else []
        comparison.said(["ls", "-l", *recursively], [folder])
    differing = len(comparison.differing & set(paths))
    print(f"{len(paths) - differing} of {len(paths)} files are the same, with {virtual} virtual files; {differing} files differ")
    return 1 if comparison.differing or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
