"""The lines that users can copy from the documents: README, the wheel's README, fzmfs(1), --help, docstrings, rustdoc."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servers import ROOT

PACKAGE = ROOT / "src/python/fzmfs"
# A command with arguments, a script of ours, or an expression that calls or indexes something.
COMMAND = re.compile(r"[a-z][\w./-]* .*|scripts/\w+", re.DOTALL)
EXPRESSION = re.compile(r"[a-z][\w.]*[\[(].*[\])]\.?[\w.]*", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """A text that is copied at once: a block, or one line in a text."""

    document: str
    line: int
    language: str  # sh, python, rust, or nothing for what is shown and not run
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def markdown(document: str, text: str) -> Iterator[Piece]:
    """Fenced blocks, and code in the text between them."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for block in fence.finditer(text):
        yield Piece(document, text.count("\n", 0, block.start()) + 2, block[1], block[2])
    # As many lines, so that those behind keep their numbers.
    between = fence.sub(lambda block: "\n" * block[0].count("\n"), text)
    yield from inline(document, between, re.compile(r"`([^`]+)`"))


def inline(document: str, text: str, code: re.Pattern[str], first: int = 1) -> Iterator[Piece]:
    for span in code.finditer(text):
        line, at = re.sub(r"\s*\n\s*", " ", span[1]).replace("\\|", "|"), first + text.count("\n", 0, span.start())
        if EXPRESSION.fullmatch(line):
            yield Piece(document, at, "python", line)
        elif COMMAND.fullmatch(line):
            yield Piece(document, at, "sh", line)


def docstrings(path: Path) -> Iterator[Piece]:
    """Blocks after ``::``, and code in double backticks."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        doc = ast.get_docstring(node)
        if doc is None:
            continue
        first = node.body[0].lineno
        block = re.compile(r"::\n\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
        for found in block.finditer(f"{doc}\n"):
            code = re.sub(r"^ {4}", "", found[1].strip("\n"), flags=re.MULTILINE)
            # What goes on in a block that was shown before.
            code = f'with fzmfs.open("run.fzm") as run:\n{code}' if code.startswith(" ") else code
            yield Piece(path.name, first + doc.count("\n", 0, found.start(1)), "python", f"{code}\n")
        between = block.sub(lambda found: "\n" * found[0].count("\n"), doc)
        yield from inline(path.name, between, re.compile(r"``([^`]+)``"), first)


def manual(page: str) -> Iterator[Piece]:
    """The text that is not filled, and that in bold, of a page in man(7)."""
    shown = {"\\-": "-", "\\(aq": "'", "\\(dq": '"', "\\e": "\\", "\\&": ""}

    def plain(text: str) -> str:
        return re.sub(r"\\(?:-|\((?:aq|dq)|e|&|f.)", lambda escape: shown.get(escape[0], ""), text)

    lines, section, block = page.splitlines(), "", None
    for number, line in enumerate(lines, 1):
        if line.startswith((".SH", ".SS")):
            section = line[4:]
        if line == ".nf":
            block = []
        elif line == ".fi":
            text = "".join(f"{plain(line)}\n" for line in block)
            yield Piece(f"fzmfs(1) {section}", number - len(block), "sh" if runs(text) else "", text)
            block = None
        elif block is not None:
            block.append(line)
        elif macro := re.fullmatch(r"\.(BR?|RB) (.+)", line):
            words = [plain(quoted or word) for quoted, word in re.findall(r'"([^"]*)"|(\S+)', macro[2])]
            bold = [" ".join(words)] if macro[1] == "B" else words[macro[1] == "RB" :: 2]
            yield from (Piece(f"fzmfs(1) {section}", number, "sh", line) for line in bold if COMMAND.fullmatch(line))


def runs(block: str) -> bool:
    """Whether a block is commands, and not a listing or a file."""
    return bool(re.match(r"(?:fzmfs|docker|podman|unshare|sbatch|aws) ", block))


def helps(program: str) -> Iterator[Piece]:
    """Code in backticks of ``fzmfs --help``, and of that of each command."""

    def text(*command: str) -> str:
        return subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True).stdout

    top = text()
    names = re.findall(r"^  ([a-z]+) ", top.partition("Commands:\n")[2], re.MULTILINE)
    names.remove("help")
    for said, name in [(top, "fzmfs --help"), *((text(name), f"fzmfs {name} --help") for name in names)]:
        yield from inline(name, said, re.compile(r"`([^`]+)`"))


def notebook(path: Path) -> Iterator[Piece]:
    """The text of a notebook; tests/python/test_notebook.py runs its cells."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"]
    for cell in cells:
        yield from markdown(path.name, "".join(cell["source"]))


def rustdoc(path: Path) -> Iterator[Piece]:
    """The documentation of a module: the first lines of its blocks, and its text if that is for users."""
    lines = path.read_text().splitlines()
    name = str(path.relative_to(ROOT))
    fences = [(number, fence[1]) for number, line in enumerate(lines, 1) if (fence := re.match(r" *//[/!] ```(.*)", line))]
    for number, words in fences[::2]:
        yield Piece(name, number, words or "rustdoc", lines[number])
    if path.name != "lib.rs":
        return
    text = "\n".join(doc[1] if (doc := re.match(r" *//[/!] ?(.*)", line)) else "" for line in lines)
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
    yield from (piece for piece in inline(name, text, re.compile(r"`([^`]+)`")) if piece.language == "sh")


def pieces(program: str) -> Iterator[Piece]:
    """Everything, in the order in which it stands there."""
    for name in ("README.md", "src/python/README.md"):
        yield from markdown(name, (ROOT / name).read_text())
    yield from notebook(ROOT / "tests/examples/tour.ipynb")
    yield from manual(subprocess.run([program, "man"], check=True, capture_output=True, text=True).stdout)
    yield from helps(program)
    for path in sorted(PACKAGE.glob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            yield from docstrings(path)
    for path in sorted((ROOT / "src").rglob("*.rs")):
        yield from rustdoc(path)
