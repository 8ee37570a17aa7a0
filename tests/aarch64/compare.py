"""Compares two builds of the program over files: what they print, what they say, and how they exit.

compare.py NATIVE OTHER FILE-OR-DIRECTORY...: NATIVE and OTHER are commands. For each file: `ls -l -R`, `info --json`,
`verify`, and `cat` of all virtual files, or of each if one of them fails. Prints each difference and, at the end, how many
files and virtual files were the same; exit 1 if anything differed.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import shlex
import subprocess
import sys

# Virtual files of one process: their names are arguments.
AT_ONCE = 1000
# Descriptions of how files were made, and what they hold as other programs write it.
NOT_CONTAINERS = {".json", ".md", ".npy", ".out", ".py", ".sh", ".svg", ".tsv", ".txt"}


def run(command, *arguments):
    """What a command prints, as a digest, what it says, and its exit code."""
    digest, size = hashlib.sha256(), 0
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # Messages are short: a pipe holds them.
        while block := process.stdout.read(1 << 20):
            digest.update(block)
            size += len(block)
        said = process.stderr.read().decode(errors="replace")
    return process.returncode, size, digest.hexdigest(), said


def differences(native, other, path):
    """The commands whose results differ, and the number of virtual files compared."""
    found = []

    def same(*arguments):
        results = [run(command, *arguments) for command in (native, other)]
        if results[0] != results[1]:
            found.append((arguments, *results))
        return results[0][0] == 0

    same("info", "--json", path)
    same("verify", path)
    if not same("ls", "-l", "-R", path):
        return found, 0
    listed = subprocess.run([*native, "ls", "-R", path], capture_output=True, check=True).stdout.splitlines()
    # Directories end with a slash, links say where they lead.
    files = [os.fsdecode(name).split(" -> ")[0] for name in listed if not name.endswith(b"/")]
    for start in range(0, len(files), AT_ONCE):
        some = files[start : start + AT_ONCE]
        if not same("cat", path, *some):
            for name in some:
                same("cat", path, name)
    return found, len(files)


def containers(place):
    """The files below a place that may be containers."""
    if os.path.isfile(place):
        return [place]
    every = (path for path in pathlib.Path(place).rglob("*") if path.is_file())
    return sorted(str(path) for path in every if path.suffix not in NOT_CONTAINERS)


def main(native, other, *places):
    native, other = shlex.split(native), shlex.split(other)
    paths = [path for place in places for path in containers(place)]
    differing = virtual = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {path: pool.submit(differences, native, other, path) for path in paths}
        for path, job in jobs.items():
            found, count = job.result()
            virtual += count
            differing += bool(found)
            for arguments, first, second in found:
                print(f"DIFFERS {' '.join(arguments)[:200]}\n    {first}\n    {second}")
    print(f"{len(paths) - differing} of {len(paths)} files are the same, with {virtual} virtual files; {differing} files differ")
    return 1 if differing or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
