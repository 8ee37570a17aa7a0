"""The exception of the package."""

from __future__ import annotations


class Error(OSError):
    """A container, a file or an array cannot be opened or read.

    An :class:`OSError`: ``errno`` is what a reader of the mounted file would get, ``filename`` the source.

    Attributes:
        kind: who must act, one of ``truncated``, ``corrupt``, ``checksum``, ``unsupported``, ``too_large``,
            ``no_room``, ``changed``, ``usage``, ``not_found``, ``missing`` (a server has no such object), ``io``.
        field: the name of the field in the reference of the format.
        offset: the byte of the container at which it is wrong, if known.
    """

    kind: str
    field: str
    offset: int | None

    def __init__(
        self,
        errno: int,
        message: str,
        source: str | None = None,
        kind: str = "io",
        field: str = "",
        offset: int | None = None,
    ) -> None:
        super().__init__(errno, message, source)
        self.kind = kind
        self.field = field
        self.offset = offset

    # OSError takes two or three arguments, in its own way.
    def __new__(cls, errno: int, message: str, source: str | None = None, *_: object) -> Error:
        return super().__new__(cls, errno, message, source)

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (self.errno, self.strerror, self.filename, self.kind, self.field, self.offset)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}" if self.filename else str(self.strerror)


class MissingError(Error, FileNotFoundError):
    """There is no file or object to open.

    Only :func:`fzmfs.open` raises it. What is missing later is damage: packages take a FileNotFoundError of a read for a
    chunk that was never written, and its elements for zeros.
    """
