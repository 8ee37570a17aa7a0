"""The picture of an array in a notebook: ``preview.png``, made small, with a bar of its colours and their range."""

from __future__ import annotations

import base64
import html
import re
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Bytes of a picture: those of the page are a third more.
_BYTES = 40_000
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Colours that the bar goes through.
_STOPS = 9


def image(name: str, kind: str, content: bytes, style: str = "max-width: 100%") -> str:
    """``content`` as an image of a page; nothing if there is none, or too much. No script in it is run, and nothing else
    is fetched for it."""
    if not 0 < len(content) <= _BYTES:
        return ""
    data = base64.b64encode(content).decode()
    return f'<img alt="{name}" style="{style}" src="data:image/{kind};base64,{data}">'


def preview(png: bytes) -> str:
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
    picture = image("preview", "png", small, f"width: {min(width, 480)}px; max-width: 100%")
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
    rows = zlib.compress(np.insert(pixels, 0, 0, axis=1).tobytes(), 9)
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
