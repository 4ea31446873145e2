"""Small pictures as `data:` URLs."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from batchweave._layout import Array

# A longer side is shown with fewer pixels.
_SIDE_MAX = 256
_SIDE_MIN = 4
# Of an encoded picture, which is passed on as it is.
_BYTES_MAX = 512 << 10
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def picture(array: Array) -> str | None:
    """Returns an array as a picture, if it seems to be one.

    Bytes of shape [height, width, 3], the first of several such, or a PNG, JPEG or GIF file.
    """
    if array.dtype != np.uint8:
        return None
    while array.ndim > 3 and len(array):
        array = array[0]
    if array.ndim == 1:
        return _encoded(array)
    if array.ndim != 3 or array.shape[2] != 3 or min(array.shape[:2]) < _SIDE_MIN:
        return None
    every = -(-max(array.shape[:2]) // _SIDE_MAX)
    return _url("image/png", png(array[::every, ::every]))


def png(pixels: Array) -> bytes:
    """Returns a PNG file of bytes of shape [height, width, 3]."""
    height, width, _ = pixels.shape
    # Each line begins with the number of its filter: none.
    lines = np.zeros((height, 1 + width * 3), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _encoded(array: Array) -> str | None:
    if not 0 < array.size <= _BYTES_MAX:
        return None
    head = array[:8].tobytes()
    kinds = (kind for magic, kind in _MAGIC.items() if head.startswith(magic))
    kind = next(kinds, None)
    return None if kind is None else _url(kind, array.tobytes())


def _url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
