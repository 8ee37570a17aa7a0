"""What archives and arrays look like as text and in a notebook."""

from __future__ import annotations

import base64
import difflib
import html
import re
import struct
import urllib.parse
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ._archive import Archive
    from ._array import Array

# Elements of a preview along each of the last two dimensions, arrays of a listing, bytes of a picture that is read.
_SIDE = 6
_LISTED = 50
_PICTURE = 2 << 20
# Bytes of a picture: those of the page are a third more.
_BYTES = 40_000
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Colours that the bar goes through.
_STOPS = 9


def unescaped(name: str) -> str:
    """The name in the container of what the tree shows as ``name``; that one itself if it is not text."""
    if "%" not in name:
        return name
    try:
        # An empty part is shown as %.
        return "/".join("" if part == "%" else urllib.parse.unquote(part, errors="strict") for part in name.split("/"))
    except UnicodeDecodeError:
        return name


def text(name: str) -> str:
    """``name`` for a page: characters that nobody sees, or that turn the line around, as escapes."""
    return html.escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in name))


def missing(name: object, names: list[str], what: str = "array") -> str:
    """Why there is no ``what`` called ``name``."""
    if not names:
        if what != "array":
            return f"no {what} {name!r}: there are none"
        return f"no array {name!r}: this container has no element types; give dtype= (and shape=), or use read()"
    near = (difflib.get_close_matches(name, names, n=3) if isinstance(name, str) else []) or names[:5]
    more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    return f"no {what} {name!r}; there are {', '.join(map(repr, near))}{more}"


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
    """A table with type, shape and sizes, a picture if there is one, and the elements at the beginning."""
    rows = [
        ("shape", shape(of.shape)),
        ("type", str(of.dtype)),
        ("size", f"{of.size:,} elements, {size(of.nbytes)}{_ratio(of.nbytes, of.stored)}"),
        ("chunks", shape(of.chunks)),
        ("source", of._archive.source),
    ]
    picture = _preview(of._archive) if of.name == "data" else ""
    return f"<div><b>fzmfs.Array {text(of.name)}</b>{_table(rows)}{picture}{_elements(of)}</div>"


def archive(of: Archive) -> str:
    """A table of what it is, its arrays, and the pictures of its pipeline and of its data, if it has them."""
    info = of.info
    rows = [("format", f"{info.get('format')} {info.get('format_version')}"), ("source", of.source)]
    if steps := _codec(info):
        rows.append(("codec", steps))
    stored, decoded = info.get("file_size"), info.get("decoded_size")
    if isinstance(stored, int):
        rows.append(("stored", size(stored)))
    if isinstance(decoded, int):
        rows.append(("decoded", size(decoded) + _ratio(decoded, stored)))
    arrays = ""
    for at, name in enumerate(of):
        if at == _LISTED:
            arrays += f"<tr><td colspan=3>and {len(of) - at} more</td></tr>"
            break
        try:
            item = of[name]
            cells = [shape(item.shape), str(item.dtype), size(item.nbytes)]
        except OSError as error:
            cells = [str(error), "", ""]
        arrays += "<tr>" + "".join(f"<td>{cell}</td>" for cell in [text(name), *map(html.escape, cells)]) + "</tr>"
    heads = "".join(f"<th>{head}</th>" for head in ("array", "shape", "type", "decoded"))
    arrays = arrays and f"<table><tr>{heads}</tr>{arrays}</table>"
    return f"<div><b>fzmfs.Archive</b>{_table(rows)}{arrays}{_pipeline(of, info)}{_preview(of)}</div>"


def _ratio(decoded: int, stored: object) -> str:
    return f", {decoded / stored:.2f} times what is stored" if isinstance(stored, int) and stored and decoded else ""


def _codec(info: dict[str, Any]) -> str:
    """``shuffle -> zstd``"""
    filters = [filter["name"] for filter in info.get("filters") or () if isinstance(filter, dict) and "name" in filter]
    return " -> ".join(map(str, [*filters, info["codec"]])) if info.get("codec") else ""


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{html.escape(key)}</th><td>{text(value)}</td></tr>" for key, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _elements(of: Array) -> str:
    if not of.size or of.itemsize > 64:
        return ""
    # The first ones: for later ones, all before them may have to be decoded.
    index = (0,) * (of.ndim - 2) + (slice(_SIDE),) * min(of.ndim, 2)
    try:
        return f"<pre>{html.escape(str(of[index]))}</pre>"
    except OSError as error:
        return f"<pre>{html.escape(str(error))}</pre>"


def _pipeline(of: Archive, info: dict[str, Any]) -> str:
    # Only of this format is it ours; elsewhere it may be a file of that name, by whoever made the container.
    return _image("pipeline", "svg+xml", _picture(of, "pipeline.svg")) if info.get("format") == "fzm" else ""


def _preview(of: Archive) -> str:
    return _small(_picture(of, "preview.png")) if "data" in of else ""


def _picture(of: Archive, path: str) -> bytes:
    """The file ``path``; nothing if there is none, or if it is large or broken."""
    try:
        content = of.read(path, 0, _PICTURE + 1)
    except OSError:
        return b""
    return content if len(content) <= _PICTURE else b""


def _image(name: str, kind: str, content: bytes, style: str = "max-width: 100%") -> str:
    """``content`` as an image of a page; nothing if there is none, or too much. No script in it is run, and nothing else
    is fetched for it."""
    if not 0 < len(content) <= _BYTES:
        return ""
    data = base64.b64encode(content).decode()
    return f'<img alt="{name}" style="{style}" src="data:image/{kind};base64,{data}">'


def _small(png: bytes) -> str:
    """The picture ``png``, which the tree has made, for a page; nothing if there is none."""
    chunks = list(_chunks(png))
    bodies = dict(chunks)
    if not {b"IHDR", b"PLTE", b"IDAT"} <= bodies.keys():
        return ""
    width, height = struct.unpack(">II", bodies[b"IHDR"][:8])
    stored = b"".join(body for kind, body in chunks if kind == b"IDAT")
    rows = np.frombuffer(zlib.decompressobj().decompress(stored, height * (width + 1)), np.uint8)
    pixels = rows.reshape(height, width + 1)[:, 1:]
    small, step = b"", 1
    while step < 64 and not 0 < len(small) <= _BYTES:
        small = _encoded(pixels[::step, ::step], bodies)
        step += 1
    texts = dict(body.decode("latin-1").split("\0", 1) for kind, body in chunks if kind == b"tEXt")
    palette = [f"#{bytes(colour).hex()}" for colour in np.frombuffer(bodies[b"PLTE"], np.uint8).reshape(-1, 3)]
    picture = _image("preview", "png", small, f"width: {min(width, 480)}px; max-width: 100%")
    return f"<div>{picture}{_legend(texts, palette)}</div>"


def _legend(texts: dict[str, str], palette: list[str]) -> str:
    """What the colours, or the heights, mean; and the range of the elements."""
    meaning = texts.get("Colours", "")
    ends = re.match(r"viridis, from (\S+) to (\S+)", meaning) or re.match(r"viridis, .*: ([^ ,]+),.* (\S+)$", meaning)
    bar = ""
    if ends:
        low, high = map(_short, ends.groups())
        through = ", ".join(palette[1:][:: (len(palette) - 2) // (_STOPS - 1)])
        colours = f'<span style="flex: 1; height: 1em; margin: 0 0.5em; background: linear-gradient(to right, {through})"></span>'
        bar = f'<div style="display: flex; align-items: center; max-width: 480px">{low}{colours}{high}</div>'
    said = [meaning, *(f"{key.lower()} {texts[key]}" for key in ("Minimum", "Maximum") if key in texts)]
    return f"{bar}<small>{html.escape('; '.join(filter(None, said)))}</small>"


def _short(number: str) -> str:
    return html.escape(number if len(number) < 8 else f"{float(number):.6g}")


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at + 12 <= len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += 12 + size


def _encoded(pixels: NDArray[np.uint8], bodies: dict[bytes, bytes]) -> bytes:
    """A PNG of the numbers of colours, with the palette of another one."""
    height, width = pixels.shape
    header = struct.pack(">II", width, height) + bodies[b"IHDR"][8:]
    rows = zlib.compress(np.insert(pixels, 0, 0, axis=1).tobytes(), 8)
    out = _SIGNATURE
    for kind, body in (
        (b"IHDR", header),
        (b"PLTE", bodies[b"PLTE"]),
        (b"tRNS", bodies.get(b"tRNS", b"")),
        (b"IDAT", rows),
        (b"IEND", b""),
    ):
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return out
