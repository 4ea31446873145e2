"""Small pictures of arrays as `data:` URLs."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable

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


def pictures(array: Array, limit: int, sizes: Array | None = None) -> tuple[list[str], int]:
    """Returns the first `limit` pictures of an array, and the number of further ones.

    Pictures are bytes of shape [height, width, 1 or 3], one or several; pixels with `sizes`, the
    height and width of each picture; or a PNG, JPEG, WebP or GIF file.
    """
    if array.dtype != np.uint8 or not array.size:
        return [], 0
    if array.ndim == 1:
        url = _encoded(array)
        return ([], 0) if url is None else ([url], 0)
    found = _of_sizes(array, sizes) if sizes is not None else _of_shape(array)
    return [_pixels(one) for one in found[:limit]], max(len(found) - limit, 0)


def sizes_of(pixels: Array, others: Iterable[Array]) -> Array | None:
    """Returns the array with the heights and widths of pixels of shape [n, 1 or 3]."""
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] not in (1, 3):
        return None
    sizes = (one for one in others if one.dtype == np.int32 and one.shape[1:] == (2,))
    fitting = (
        one for one in sizes if (one > 0).all() and _areas(one).sum(dtype=float) == len(pixels)
    )
    return next(fitting, None)


def _areas(sizes: Array) -> Array:
    return np.asarray(sizes.astype(np.int64).prod(1))


def _of_sizes(pixels: Array, sizes: Array) -> list[Array]:
    parts = np.split(pixels, np.cumsum(_areas(sizes))[:-1])
    return [part.reshape(*size, -1) for part, size in zip(parts, sizes, strict=True)]


def _of_shape(array: Array) -> list[Array]:
    if array.ndim < 3 or array.shape[-1] not in (1, 3) or min(array.shape[-3:-1]) < _SIDE_MIN:
        return []
    return list(array.reshape(-1, *array.shape[-3:]))


def _pixels(pixels: Array) -> str:
    every = -(-max(pixels.shape[:2]) // _SIDE_MAX)
    grey_or_colour = pixels[::every, ::every]
    return _url("image/png", png(np.broadcast_to(grey_or_colour, (*grey_or_colour.shape[:2], 3))))


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
    head = array[:12].tobytes()
    kinds = (kind for magic, kind in _MAGIC.items() if head.startswith(magic))
    webp = "image/webp" if head[:4] == b"RIFF" and head[8:] == b"WEBP" else None
    kind = next(kinds, webp)
    return None if kind is None else _url(kind, array.tobytes())


def _url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
