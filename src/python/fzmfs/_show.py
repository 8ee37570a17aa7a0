"""What archives and arrays look like as text and in a notebook."""

from __future__ import annotations

import difflib
import html
import urllib.parse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._archive import Archive
    from ._array import Array

# Elements of a preview along each of the last two dimensions, arrays of a listing, bytes of a picture.
_SIDE = 6
_LISTED = 50
_PICTURE = 1 << 18


def unescaped(name: str) -> str:
    """The name in the container of what the tree shows as ``name``."""
    return urllib.parse.unquote(name, errors="surrogateescape") if "%" in name else name


def missing(name: str, names: list[str]) -> str:
    """Why there is no array ``name``."""
    if not names:
        return f"no array {name!r}: this container has no element types; give dtype= (and shape=), or use read()"
    near = difflib.get_close_matches(name, names, n=3) or names[:5]
    more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    return f"no array {name!r}; there are {', '.join(map(repr, near))}{more}"


def shape(sizes: tuple[int, ...]) -> str:
    """``512x512``; ``scalar``."""
    return "x".join(map(str, sizes)) or "scalar"


def size(count: int) -> str:
    """``1.5 MiB``"""
    number, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.4g} {units[0]}"


def array(of: Array) -> str:
    """A table with type, shape and sizes, and the elements at the beginning."""
    rows = [
        ("shape", shape(of.shape)),
        ("type", str(of.dtype)),
        ("size", f"{of.size:,} elements, {size(of.nbytes)}"),
        ("chunks", shape(of.chunks)),
        ("source", of._archive.source),
    ]
    return f"<div><b>fzmfs.Array {html.escape(of.name)}</b>{_table(rows)}{_preview(of)}</div>"


def archive(of: Archive) -> str:
    """A table of what it is, its arrays, and the picture of its pipeline if it has one."""
    info = of.info
    rows = [("format", f"{info.get('format')} {info.get('format_version')}"), ("source", of.source)]
    stored, decoded = info.get("file_size"), info.get("decoded_size")
    if isinstance(stored, int):
        rows.append(("stored", size(stored)))
    if isinstance(decoded, int):
        ratio = f", {decoded / stored:.2f} times as much" if isinstance(stored, int) and stored else ""
        rows.append(("decoded", size(decoded) + ratio))
    arrays = ""
    for at, (name, item) in enumerate(of.items()):
        if at == _LISTED:
            arrays += f"<tr><td colspan=3>and {len(of) - at} more</td></tr>"
            break
        cells = (name, shape(item.shape), str(item.dtype))
        arrays += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
    arrays = arrays and f"<table><tr><th>array</th><th>shape</th><th>type</th></tr>{arrays}</table>"
    return f"<div><b>fzmfs.Archive</b>{_table(rows)}{arrays}{_picture(of)}</div>"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{html.escape(key)}</th><td>{html.escape(value)}</td></tr>" for key, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _preview(of: Array) -> str:
    if not of.size or of.itemsize > 64:
        return ""
    # The first elements of the last two dimensions; of the others the middle.
    index = tuple(n // 2 for n in of.shape[:-2]) + (slice(_SIDE),) * min(of.ndim, 2)
    try:
        return f"<pre>{html.escape(str(of[index]))}</pre>"
    except OSError as error:
        return f"<pre>{html.escape(str(error))}</pre>"


def _picture(of: Archive) -> str:
    try:
        svg = of.read("pipeline.svg", 0, _PICTURE + 1)
    except OSError:
        return ""
    # Of our own making, with every name in it escaped.
    return svg.decode("utf-8", "replace") if len(svg) <= _PICTURE else ""
