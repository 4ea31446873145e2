"""Batches in notebooks: samples by row, bounded HTML, nothing of the stream's text as markup."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_daemon import FakeDaemon
from test_whole import batch_of

import batchweave
from batchweave import _html, _html_stream, _png, errors
from batchweave._documents import Decoder
from batchweave._samples import borders
from batchweave.batch import Batch

HOSTILE = "<script>alert(1)</script>\"'&amp;</p><img src=x onerror=alert(2)>"
ALLOWED = {"style", "div", "span", "p", "b", "br", "code", "table", "tr", "td", "th", "img"}


class Tags(HTMLParser):
    """The tags, attributes and text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.sources: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.sources += [value or "" for name, value in attrs if name == "src"]
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def checked(html: str) -> Tags:
    found = Tags(html)
    assert found.tags <= ALLOWED
    assert found.attributes <= {"class", "src", "alt"}
    return found


class Told(Decoder):
    """A decoder with answers of its own."""

    def __init__(self, rows: list[dict[str, Any]] | Exception) -> None:
        super().__init__(f"file:///{HOSTILE}", 7, 1)
        self._told = rows
        self.asked: list[int | None] = []

    def rows(self, piece: int | None = None) -> list[dict[str, Any]]:
        self.asked.append(piece)
        if isinstance(self._told, Exception):
            raise self._told
        return self._told


def document(text: str | None, tokens: int = 4, **more: Any) -> dict[str, Any]:
    given = {"source": f"{HOSTILE}.jsonl:1", "pass": 0, "skip": 0, "runs": None}
    return {**given, "tokens": tokens, "text": text, **more}


def row(number: int, *documents: dict[str, Any], padding: int = 0) -> dict[str, Any]:
    return {"slice": 0, "row": number, "documents": list(documents), "padding": padding}


def tokens(rows: int, width: int = 8) -> Any:
    return np.arange(rows * width, dtype=np.uint16).reshape(rows, width)


def test_samples_are_the_rows_of_all_slices_in_order() -> None:
    ids = np.array([[1, 1, 2, 2, 2, 0, 0, 0], [1] * 8], np.int32)
    parts = [{"tokens": tokens(2) + 100 * k, "segment_ids": ids} for k in range(2)]
    batch = batch_of(*parts)
    samples = list(batch.samples())
    assert [s.index for s in samples] == [0, 1, 2, 3]
    assert [(s.slice, s.row) for s in samples] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert samples[2]["tokens"].tolist() == list(range(100, 108))
    assert np.shares_memory(samples[2]["tokens"], parts[1]["tokens"])
    first, second = samples[0].documents
    assert first["tokens"].tolist() == [0, 1]
    assert second["tokens"].tolist() == [2, 3, 4]
    assert "tokens: uint16[8]" in repr(samples[0])
    assert next(batch_of({"tokens": tokens(1)}).samples()).documents == []


def test_samples_of_any_length_end_at_their_offsets() -> None:
    arrays = {
        "image": np.arange(5, dtype=np.uint8),
        "image.offsets": np.array([0, 2, 5], np.uint64),
        "action": np.arange(21, dtype=np.float32).reshape(3, 7),
        "action.offsets": np.array([0, 0, 3], np.uint64),
        "weight": np.array(0.5, np.float32),
    }
    one, two = batch_of(arrays).samples()
    assert list(one) == ["image", "action", "weight"]
    assert (one["image"].tolist(), two["image"].tolist()) == ([0, 1], [2, 3, 4])
    assert (one["action"].shape, two["action"].shape) == ((0, 7), (3, 7))
    assert one["weight"] == 0.5


def test_rows_of_scalars_stay_arrays(path: Path) -> None:
    with FakeDaemon(path, slices=2), batchweave.connect(path) as reader:
        samples = list(next(reader).samples())
        assert {name: a.shape for name, a in samples[0].items()} == {
            "tokens": (16,),
            "scores": (),
            "segments": (4,),
        }
        assert len(samples) == 8
        del samples


def test_documents_have_borders_where_the_stream_has_them() -> None:
    assert borders({"document_ids": np.array([7, 7, 9, -1])}) == [(0, 2), (2, 3)]
    assert borders({"segment_ids": np.array([], np.int32)}) == []
    assert borders({"tokens": np.arange(4)}) == []


def test_sources_need_an_opened_stream(path: Path) -> None:
    with (
        FakeDaemon(path),
        batchweave.connect(path) as reader,
        pytest.raises(errors.NoSourcesError, match=r"batchweave\.open\(url\)\[0\]"),
    ):
        next(reader).sources()


def test_a_batch_of_a_reader_shows_its_tokens(path: Path) -> None:
    with FakeDaemon(path, slices=2), batchweave.connect(path) as reader:
        found = checked(next(reader)._repr_html_())
    assert "Step 0" in found.text
    assert "8 rows × 16 tokens, in 2 slices" in found.text  # noqa: RUF001
    assert "scores" in found.text
    assert "bfloat16" in found.text
    assert "4 more rows" in found.text


def shown(batch: Batch, rows: list[dict[str, Any]] | Exception) -> tuple[Tags, str]:
    html = _html.batch(batch, Told(rows))
    return checked(html), html


def test_text_and_names_are_escaped() -> None:
    batch = batch_of({"tokens": tokens(1), HOSTILE: tokens(1)})
    runs = [{"learned": k > 0, "tokens": 2, "text": HOSTILE} for k in range(2)]
    found, html = shown(batch, [row(0, document(HOSTILE), document("", runs=runs))])
    assert found.sources == []
    # As text it is whole: in the url, the array's name, two sources, one text and two runs.
    assert found.text.count(HOSTILE) == 7
    assert "<script" not in html
    found, _ = shown(batch, errors.StreamNotOpenedError(HOSTILE))
    assert f"not decoded: {HOSTILE}" in found.text
    assert "0 1 2 3 4 5 6 7" in found.text, "the tokens stand in for the text"


def test_what_is_shown_is_bounded() -> None:
    batch = batch_of({"tokens": tokens(40, 1000), **{f"a{k}": tokens(40) for k in range(99)}})
    long = [document("x" * 50_000) for _ in range(30)]
    found, html = shown(batch, [row(k, *long) for k in range(40)])
    assert len(html) < 40_000
    assert found.text.count("x") < 1000 * _html.NOTEBOOK.rows + 100
    assert "49,000 more characters" in found.text
    assert "22 more documents" in found.text
    assert "36 more rows" in found.text
    assert "68 more" in found.text, "arrays"
    found, html = shown(batch, errors.StreamNotOpenedError("no"))
    assert len(html) < 40_000
    assert "872 more tokens" in found.text


def test_masks_borders_and_padding_are_seen() -> None:
    batch = batch_of({"tokens": tokens(2)})
    runs = [
        {"learned": False, "tokens": 2, "text": "question"},
        {"learned": True, "tokens": 2, "text": "answer"},
    ]
    rows = [
        row(0, document("questionanswer", runs=runs), padding=3),
        row(1, document("whole", skip=5), document("other", **{"pass": 1})),
    ]
    found, html = shown(batch, rows)
    assert '<span class="bw-off">question</span><span class="bw-on">answer</span>' in html
    assert "padding, 3 tokens" in found.text
    assert "from token 5 on" in found.text
    assert "pass 2" in found.text
    assert html.count('class="bw-doc"') == 3
    assert 'bw-on">whole' not in html, "where all is learned, colours would tell nothing"


def test_masks_of_tokens_are_seen_without_text() -> None:
    mask = np.array([[0, 0, 1, 1, 1, 1, 1, 0]], np.uint8)
    html = batch_of({"tokens": tokens(1), "loss_mask": mask})._repr_html_()
    assert re.findall(r'bw-off">(\d+)<', html) == ["0", "1", "7"]


def test_large_batches_are_decoded_by_slice() -> None:
    few = Told([])
    _html.batch(batch_of({"tokens": tokens(2)}, {"tokens": tokens(2)}), few)
    assert few.asked == [None]
    large = Told([])
    _html.batch(batch_of(*[{"tokens": tokens(2, 3 << 20)} for _ in range(3)]), large)
    assert large.asked == [0, 1]


def pixels_of(url: str) -> Any:
    """The pixels of a PNG that `_png` made, read by the rules of the format."""
    assert url.startswith("data:image/png;base64,")
    data = base64.b64decode(url.split(",")[1])
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        body = data[at + 4 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(body)
        chunks[body[:4]] = body[4:]
        at += 12 + size
    width, height, depth, kind = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (depth, kind) == (8, 2)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8)
    lines = lines.reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def picture(array: Any) -> str:
    """The address of the only picture of an array."""
    ((url,), more) = _png.pictures(array, 8)
    assert more == 0
    return url


def test_bytes_of_height_width_and_colour_are_pictures() -> None:
    image = np.random.default_rng(1).integers(0, 256, (9, 7, 3), np.uint8)
    for given in (image, image[None], image[::-1][::-1]):
        assert (pixels_of(picture(given)) == image).all()
    grey = pixels_of(picture(image[:, :, :1]))
    assert (grey == image[:, :, :1]).all()
    assert pixels_of(picture(np.zeros((1000, 300, 3), np.uint8))).shape == (250, 75, 3)
    urls, more = _png.pictures(np.stack([image] * 5), 3)
    assert (len(urls), more) == (3, 2)
    for other in ((9, 7), (9, 7, 4), (2, 7, 3), (0, 7, 3), (0, 4, 4, 3)):
        assert _png.pictures(np.zeros(other, np.uint8), 8) == ([], 0)
    assert _png.pictures(image.astype(np.int32), 8) == ([], 0)


def test_files_of_pictures_are_shown_and_other_bytes_are_not() -> None:
    png = np.frombuffer(_png.png(np.zeros((4, 4, 3), np.uint8)), np.uint8)
    arrays = {
        "image": np.concatenate([png, np.frombuffer(b"<svg onload=alert(1)>", np.uint8)]),
        "image.offsets": np.array([0, len(png), len(png) + 21], np.uint64),
        "scores": np.array([[0x3F80], [0x4000]], np.uint16),
    }
    found, _ = shown(batch_of(arrays), [row(k, document(None)) for k in range(2)])
    (source,) = found.sources
    assert pixels_of(source).shape == (4, 4, 3)
    assert "Sample 1" in found.text
    assert "60 115 118 103" in found.text
    webp = np.frombuffer(b"RIFF\x04\0\0\0WEBPVP8 ", np.uint8)
    assert picture(webp).startswith("data:image/webp;base64,")


SIZED = {
    # Two pictures and one: of 2 x 1 and 1 x 4 pixels, and of 2 x 1.
    "pixels": np.arange(8, dtype=np.uint8).reshape(8, 1),
    "other": np.array([[9, 9], [1, 1], [1, 1]], np.int32),
    "size": np.array([[2, 1], [1, 4], [2, 1]], np.int32),
}


def test_pixels_have_the_sizes_that_are_stored_beside_them() -> None:
    ends = {"pixels": [0, 6, 8], "other": [0, 2, 3], "size": [0, 2, 3]}
    offsets = {f"{name}.offsets": np.array(own, np.int64) for name, own in ends.items()}
    found = checked(batch_of({**SIZED, **offsets})._repr_html_())
    shapes = [pixels_of(source).shape for source in found.sources]
    assert shapes == [(2, 1, 3), (1, 4, 3), (2, 1, 3)]
    assert pixels_of(found.sources[1])[0, :, 0].tolist() == [2, 3, 4, 5]
    # Sizes of other numbers, however large, are values, and so are the pixels then.
    wrong = {**SIZED, "size": np.full((3, 2), np.iinfo(np.int32).max, np.int32)}
    assert checked(batch_of({**wrong, **offsets})._repr_html_()).sources == []


def test_documents_of_rows_have_their_pictures_beside_their_text() -> None:
    image = np.random.default_rng(1).integers(0, 256, (2, 4, 5, 3), np.uint8)
    ends = {"segments": [0, 2, 3], "image": [0, 0, 1, 2], "pixels": [0, 0, 6, 8]}
    ends |= {"size": [0, 0, 2, 3]}
    arrays = {"tokens": tokens(2), "image": image, **SIZED}
    del arrays["other"]
    arrays |= {f"{name}.offsets": np.array(own, np.int64) for name, own in ends.items()}
    rows = [row(0, document("first"), document("second")), row(1, document("third"))]
    batch = batch_of(arrays)
    found, html = shown(batch, rows)
    sides = [pixels_of(source).shape[:2] for source in found.sources]
    assert sides == [(4, 5), (2, 1), (1, 4), (4, 5), (2, 1)]
    documents = html.split('class="bw-doc"')[1:]
    assert [each.count("<img") for each in documents] == [0, 3, 2]
    assert (pixels_of(found.sources[3]) == image[1]).all()
    # Where the text has other borders the arrays follow it; without text, too.
    found, html = shown(batch, [row(0, document("both")), rows[1]])
    documents = html.split('class="bw-doc"')[1:]
    assert [each.count("<img") for each in documents] == [0, 0, 3, 2]
    assert len(checked(batch._repr_html_()).sources) == 5


def test_many_pictures_are_bounded() -> None:
    album = {
        "image": np.zeros((20, 4, 4, 3), np.uint8),
        "image.offsets": np.array([0, 20], np.int64),
    }
    found = checked(batch_of(album)._repr_html_())
    assert len(found.sources) == 8
    assert "12 more pictures" in found.text


def test_a_page_runs_and_loads_nothing() -> None:
    batch = batch_of({"tokens": tokens(70), HOSTILE: tokens(70)})
    page = _html.page(batch, Told([row(k, document(HOSTILE * 50)) for k in range(70)]))
    assert batch.html().startswith("<!doctype html>")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "://" not in page.replace("file://", "")
    assert page.count('class="bw-row"') == 64
    assert page.count(escape(HOSTILE)) > 64 * 50, "more text than in a notebook"
    assert "6 more rows" in page


def test_a_streams_summary_says_what_it_has() -> None:
    status: dict[str, Any] = {
        "stream": {
            "slices": 4,
            "rows_per_slice": 2,
            "seq_len": 256,
            "tokenizer": {"name": HOSTILE},
        },
        "totals": {
            "tokens": 5000,
            "exact": False,
            "documents": 12,
            "documents_exact": True,
        },
        "watermark": 3,
        "head": {"steps": 47},
        "end": None,
        "producers": [{"name": f"p{k}", "state": "open"} for k in range(20)],
    }
    found = checked(_html_stream.stream(HOSTILE, status))
    assert "44, from 3 to 46 (3 older ones are reclaimed)" in found.text
    assert "about 5,000" in found.text
    assert "documents12" in found.text
    assert "p7 (open) and 12 more" in found.text
    assert found.text.count(HOSTILE) == 2
