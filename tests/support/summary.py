"""Counts what a run of scripts/test printed: tests that passed, failed and were skipped, and why.

summary.py LOG SECONDS TIMES: the log, the length of the run, and what the shell's `times` printed at its end. A test that
says SKIPPED is one that the harness of Rust counts as passed. Exit 1 if a test failed, or none passed.
"""

import collections
import re
import sys

RUST = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed", re.MULTILINE)
PYTEST = re.compile(r"^(?=.* in [\d.:]+s)(?:=+ )?((?:\d+ \w+,? ?)+)", re.MULTILINE)
# The line follows the dots of the harness. pytest says how many tests have the reason.
SKIPPED = re.compile(r"SKIPPED (?:\[(\d+)\] \S+: |(\w+(?:::\w+)+): )?(.*)")


def main(log: str, seconds: str, times: str) -> int:
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    with open(times, encoding="utf-8") as file:
        parts = re.findall(r"(\d+)m([\d.]+)s", file.read())
    processors = sum(60 * int(minutes) + float(rest) for minutes, rest in parts)

    passed = failed = skipped = 0
    for match in RUST.finditer(text):
        passed += int(match[1])
        failed += int(match[2])
    for match in PYTEST.finditer(text):
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", match[1])}
        passed += counts.get("passed", 0)
        failed += counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        skipped += counts.get("skipped", 0)

    tests: dict[str, set[str]] = collections.defaultdict(set)
    reasons: collections.Counter[str] = collections.Counter()
    for count, name, reason in SKIPPED.findall(text):
        if name:
            tests[reason].add(name)
        else:
            reasons[reason] += int(count or 0)
    lacking = set().union(*tests.values())
    reasons.update({reason: len(names) for reason, names in tests.items()})

    print(f"    {'total':<21} {int(seconds):4} s, {processors:4.0f} s of processors")
    print(f"    {passed - len(lacking)} tests passed, {failed} failed, {skipped + len(lacking)} skipped")
    if reasons:
        print("    Not tested, because this machine lacks the requirements:")
    for reason, count in sorted(reasons.items()):
        print(f"        {f'{count} tests: ' if count else ''}{reason}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
