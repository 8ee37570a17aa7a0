"""Which changes of the source no test finds: for scripts/mutants, which says what it does.

All changes of cargo-mutants are built once, into one copy of the source (main.rs); FZMFS_MUTANT says which of them is
active. Each test is run by itself first, to see which changes it comes to and how long it takes; then each change with the
tests that come to it, until one fails: those of its folder (of the one above, if it has one file), then as many of the
quickest others as take ENOUGH seconds. A change that ends neither way in ten times its time is found too, as it is for
cargo-mutants.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

BATCHES = [4, 16, 64, 10_000]  # tests of one process: most mutants are found by the first
ENOUGH = 6  # hundreds of tests may come to a change


def build(copy, mutants, listed, tool, targets):
    """Builds the copy without the mutants that do not compile; returns the numbers of those in it and the executables."""
    out = set()
    pristine = copy.with_name("pristine")
    for attempt in range(20):
        for file in {mutant["file"] for mutant in mutants}:
            (copy / file).write_text((pristine / file).read_text())
        left = copy.with_name("left-out.json")
        left.write_text(json.dumps(sorted(out)))
        placed = json.loads(subprocess.run([tool, listed, copy, left], check=True, capture_output=True).stdout)
        messages, failed = cargo(copy, "check", "--lib", "--profile", "test")
        if not failed:
            messages, failed = cargo(copy, "test", "--no-run", *targets)
            # Tests of mounts start it.
            if not failed and "--bins" in targets:
                _, failed = cargo(copy, "build", "--example", "made")
            if failed:
                sys.exit(failed)
            return placed, [m for m in messages if m["reason"] == "compiler-artifact" and m["executable"]]
        new = set().union(*(refused(message["message"], mutants, placed) for message in messages if "message" in message))
        new -= out
        print(f"build {attempt + 1}: {len(new)} mutants do not compile as choices", file=sys.stderr)
        if not new:
            sys.exit(failed)
        out |= new
    sys.exit("the mutants do not compile")


def cargo(copy, *arguments):
    """What cargo says, and, if it failed, what it says to people."""
    command = ["cargo", *arguments, "--message-format", "json"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rendered = [m["message"]["rendered"] for m in messages if m["reason"] == "compiler-message"]
    return messages, done.returncode and "".join([*rendered[:5], done.stderr[-3000:]])


def refused(message, mutants, placed):
    """The mutants that an error of the compiler is about."""
    numbers = set()
    for span in message["spans"] if message["level"] == "error" else []:
        text = span["text"][0]["text"][: span["text"][0]["highlight_start"]] if span["text"] else ""
        before = [int(number) for number in re.findall(r"\bmutants::on\((\d+)\)", text)]
        if before and mutants[before[-1] - 1]["genre"] == "FnValue":
            numbers.add(before[-1])
            continue
        lines = range(span["line_start"], span["line_end"] + 1)
        for number in placed:
            mutant = mutants[number - 1]
            first, last = mutant["span"]["start"]["line"], mutant["span"]["end"]["line"]
            if mutant["file"] == span["file_name"] and mutant["genre"] != "FnValue":
                if first <= lines[-1] and lines[0] <= last:
                    numbers.add(number)
    return numbers


def end(scratch):
    """Ends what a test has left, daemons and mounts too: all processes with this folder for temporary files."""
    for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={scratch}".encode() in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)
        except (PermissionError, ProcessLookupError, FileNotFoundError):
            pass
    # The list may change while it is read: a line may be cut off.
    for place in pathlib.Path("/proc/self/mounts").read_text().split():
        if place.startswith(scratch + "/"):
            subprocess.run(["umount", "--lazy", place], check=False)


class Tests:
    """The tests of one executable."""

    def __init__(self, executable, cwd, size):
        self.executable, self.cwd, self.size = executable, cwd, size
        listed = subprocess.run([executable, "--list", "--format", "terse"], check=True, capture_output=True, text=True)
        self.names = [line.rpartition(":")[0] for line in listed.stdout.splitlines() if line.endswith(": test")]

    def run(self, names, timeout, **environment):
        """'passed', 'failed' or 'timeout'."""
        with tempfile.TemporaryDirectory() as scratch:
            process = subprocess.Popen(
                [self.executable, "--quiet", "--exact", "--test-threads", "1", *names],
                cwd=self.cwd,
                env={**os.environ, "TMPDIR": scratch, "CI": "true", **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                return "failed" if process.wait(timeout) else "passed"
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                end(scratch)
                process.wait()

    def trace(self, name):
        """How long a test takes, and the mutants that it comes to; None if it does not pass."""
        with tempfile.NamedTemporaryFile() as reached:
            reached.truncate(self.size)
            start = time.monotonic()
            if self.run([name], 600, FZMFS_MUTANTS_REACHED=reached.name) != "passed":
                return None
            taken = time.monotonic() - start
            return name, taken, [number for number, byte in enumerate(pathlib.Path(reached.name).read_bytes()) if byte]


def traced(tests, workers):
    """For each mutant, its tests with their times, the quickest first."""
    by_mutant = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for name, result in zip(tests.names, pool.map(tests.trace, tests.names)):
            if result is None:
                print(f"not used: {name} does not pass by itself", file=sys.stderr)
                continue
            _, taken, reached = result
            for number in reached:
                by_mutant[number].append((taken, name))
    return by_mutant


def chosen(mutant, by_time, files):
    """The tests of the mutant's own folder, or of the one above if it has one file, then the quickest others."""
    folders = mutant["file"].split("/")[1:-1]
    is_alone = len([file for file in files if file.startswith("/".join(["src", *folders, ""]))]) == 1
    folder = "::".join(folders[: -1 if is_alone and len(folders) > 1 else None]) + "::"
    own = sorted(test for test in by_time if test[1].startswith(folder))
    total = 0
    for taken, name in sorted(test for test in by_time if not test[1].startswith(folder)):
        total += taken
        if total > ENOUGH:
            break
        own.append((taken, name))
    return own


def verdict(tests, number, by_time):
    """What the tests say of a mutant, and the tests that ran last."""
    if not by_time:
        return "unreached", []
    rest = by_time
    for size in BATCHES:
        batch, rest = rest[:size], rest[size:]
        if not batch:
            break
        names = [name for _, name in batch]
        result = tests.run(names, 3 + 10 * sum(taken for taken, _ in batch), FZMFS_MUTANT=str(number))
        if result != "passed":
            return result, names
    return "missed", []


def keys(mutants):
    """For each mutant a name that lasts while its function does: its own, without the line, and its number among equals."""
    seen, out = collections.Counter(), []
    for mutant in mutants:
        name = re.sub(r":\d+:\d+:", ":", mutant["name"], count=1)
        seen[name] += 1
        out.append(f"{name} #{seen[name]}")
    return out


def reasons():
    """Why a change is not found, by its key."""
    lines = pathlib.Path(__file__).with_name("reasons.txt").read_text().splitlines()
    return dict(line.split(" -- ", 1) for line in lines if " -- " in line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", type=pathlib.Path)
    parser.add_argument("listed", type=pathlib.Path)
    parser.add_argument("copy", type=pathlib.Path)
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--suite", action="store_true", help="tests of the suite, for what those of the library miss")
    options = parser.parse_args()
    mutants = json.loads(options.listed.read_text())
    key, known = ["", *keys(mutants)], reasons()
    targets = ["--test", "suite", "--bins"] if options.suite else ["--lib"]
    placed, artifacts = build(options.copy, mutants, options.listed, options.tool, targets)
    name = "suite" if options.suite else "fzmfs"
    [executable] = [a["executable"] for a in artifacts if a["target"]["name"] == name and a["profile"]["test"]]
    tests = Tests(executable, options.copy, len(mutants) + 1)
    workers = len(os.sched_getaffinity(0))
    print(f"{len(mutants)} mutants, {len(placed)} in the copy; {len(tests.names)} tests", file=sys.stderr)

    results = json.loads(options.result.read_text()) if options.result.exists() else {}
    numbers = [n for n in placed if results.get(key[n], ["new"])[0] in ("new", "missed", "unreached", "not built")]
    by_mutant, files = traced(tests, workers), {mutant["file"] for mutant in mutants}
    lock = threading.Lock()

    def tried(number):
        result = verdict(tests, number, chosen(mutants[number - 1], by_mutant[number], files))
        with lock:
            if results.get(key[number], ["new"])[0] != "missed" or result[0] != "unreached":
                results[key[number]] = result
            if result[0] in ("missed", "unreached"):
                why = known.get(key[number])
                print(result[0], mutants[number - 1]["name"], f"({why})" if why else "", flush=True)
            if number % 20 == 0:
                options.result.write_text(json.dumps(results))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(tried, numbers))
    for name in key[1:]:
        results.setdefault(name, ["not built", []])
    options.result.write_text(json.dumps(results))
    table(mutants, [results[name][0] for name in key[1:]], [name in known for name in key[1:]])


def table(mutants, results, known):
    """How many of each folder were found, and how many of the others have a reason."""
    folders, explained = collections.defaultdict(collections.Counter), collections.Counter()
    for mutant, result, is_known in zip(mutants, results, known):
        folder = "/".join(mutant["file"].split("/")[1:-1])
        folders[folder][result] += 1
        explained[folder] += is_known and result in ("missed", "unreached")
    print(f"{'folder':<24}{'tried':>7}{'missed':>8}{'unreached':>11}{'survive':>9}{'reasons':>9}   not built")
    for folder, counts in sorted(folders.items()):
        missed, unreached = counts["missed"], counts["unreached"]
        tried = counts.total() - counts["not built"]
        survive = 100 * (missed + unreached) / max(tried, 1)
        print(f"{folder:<24}{tried:7}{missed:8}{unreached:11}{survive:8.1f}%{explained[folder]:9}{counts['not built']:12}")


main()
