"""The streams that `make_upgrade_streams.py` makes, one for each mode."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field

from upgrade_inputs import (
    byte_level_tokenizer,
    conversations,
    id_lists,
    illustrated,
    lines,
    pairs,
    samples,
    tar,
    texts,
    words,
)

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HALVES = """
def split(document):
    text = document["text"]
    half = len(text) // 2
    return [{"text": part} for part in (text[:half], text[half:]) if part]
"""
ALL_FIELDS = (
    'packing.fields = ["segment_ids", "positions", "loss_mask", "cu_seqlens", "document_ids"]'
)


@dataclass
class Made:
    """A stream to make: its input files, its configuration without the store, and where its
    producers stop: after this number of batches of all of them."""

    files: dict[str, bytes]
    config: str
    stop: int
    # Configurations of other producers, which run to their ends before.
    before: tuple[str, ...] = ()
    # Steps that a rank receives, with checkpoints, after the producer was stopped.
    job: int = 0
    # The command line of `batchweave mixture set` after the producer was stopped.
    mixture: tuple[str, ...] = ()
    # Input files that appear after the producer was stopped.
    later: dict[str, bytes] = field(default_factory=dict)
    # Rows that a writer puts into the folder `inbox`.
    rows: int = 0


def text_stream(name: str, seq_len: int = 32, rows: int = 2) -> str:
    """Return the keys of a stream of bytes with one producer."""
    return f"""
stream = {{ slices = 2, rows_per_slice = {rows}, seq_len = {seq_len}, producers = ["{name}"] }}
producer.name = "{name}"
tokenizer.kind = "bytes"
packing.last_batch = "pad"
commit.max_batches = 4
"""


SHARED = """
stream = { slices = 2, rows_per_slice = 2, seq_len = 32, producers = ["p0", "p1"] }
producer = { name = "pN", index = N, of = 2 }
source = { paths = ["ids.jsonl"], content = "ids", field = "ids", mask = "mask" }
tokenizer = { kind = "none", vocab_size = 5000, end_token_id = 0 }
packing.mode = "best_fit"
packing.last_batch = "pad"
commit.max_batches = 4
packing.fields = ["segment_ids", "loss_mask"]
packing.extra = [{ name = "reward", dtype = "F32" }, { name = "version", dtype = "I64" }]
"""

SOURCES = """
[[sources]]
name = "web"
paths = ["web-*.jsonl"]
weight = 0.5
shuffle = { seed = 1, window = "1MiB" }

[[sources]]
name = "code"
paths = ["code.jsonl"]
weight = 0.3
epochs = 2
shuffle = { seed = 2, window = "1MiB" }

[[sources]]
name = "manuals"
paths = ["manuals.txt"]
format = "lines"
weight = 0.2
epochs = 0
"""
SOURCE_FILES = {
    "web-0.jsonl": texts(11, 60),
    "web-1.jsonl": texts(12, 60),
    "code.jsonl": texts(13, 40),
    "manuals.txt": "\n".join(one.replace("\n", " ") + "." for one in words(14, 20)).encode(),
}

STREAMS: dict[str, Made] = {
    "concat": Made(
        {
            "corpus/a.jsonl": texts(1, 40),
            "corpus/b.jsonl.gz": gzip.compress(texts(2, 40), mtime=0),
            "corpus/c.txt": words(3, 1, 200)[0].encode(),
        },
        text_stream("p0") + f'source.paths = ["corpus"]\n{ALL_FIELDS}',
        12,
        job=9,
    ),
    "best_fit": Made(
        {"corpus.jsonl": texts(4, 100), "tokenizer.json": byte_level_tokenizer()},
        text_stream("p0").replace('tokenizer.kind = "bytes"', "")
        + 'tokenizer = { kind = "file", path = "tokenizer.json" }\n'
        'source.paths = ["corpus.jsonl"]\n'
        'packing.mode = "best_fit"\npacking.look_ahead = 8\nsplit = { every = 5, side = "train" }\n'
        + ALL_FIELDS,
        10,
    ),
    "chat": Made(
        {"talks.jsonl": lines(conversations(60)), "chat.jinja": TEMPLATE.encode()},
        text_stream("p0", 512, 1)
        + 'source.paths = ["talks.jsonl"]\npacking.mode = "chat"\nchat.template = "chat.jinja"\n'
        'packing.fields = ["segment_ids", "positions"]',
        6,
    ),
    "pairs": Made(
        {"pairs.jsonl": lines(pairs(60)), "chat.jinja": TEMPLATE.encode()},
        text_stream("p0", 256)
        + 'source.paths = ["pairs.jsonl"]\npacking.mode = "pairs"\nchat.template = "chat.jinja"\n',
        9,
    ),
    "opaque": Made(
        {
            "shards/0.tar": tar(samples(30)),
            "shards/1.tar.gz": gzip.compress(tar(samples(20)), mtime=0),
        },
        text_stream("p0", 1).replace('tokenizer.kind = "bytes"', "")
        + """source.paths = ["shards/*"]
source.format = "webdataset"
packing.mode = "opaque"
packing.arrays = [
    { name = "image", from = "jpg;png", dtype = "U8", shape = [4, 4, 3], image = "exact" },
    { name = "action", from = "npy", dtype = "F32", shape = [3] },
    { name = "class", from = "cls", dtype = "I64" },
]
""",
        6,
    ),
    "arrays": Made(
        {"illustrated.jsonl": lines(illustrated(90))},
        text_stream("p0", 64, 1)
        + """source.paths = ["illustrated.jsonl"]
packing.mode = "best_fit"
packing.fields = ["segment_ids"]
packing.arrays = [
    { name = "where", dtype = "I32", shape = [2] },
    { name = "image", dtype = "U8", shape = [4, 4, 3], image = "exact", base64 = true },
]
""",
        6,
    ),
    "shared": Made(
        {"ids.jsonl": lines(id_lists(120))},
        SHARED.replace("pN", "p0").replace("N", "0"),
        20,
        before=(SHARED.replace("pN", "p1").replace("N", "1"),),
    ),
    "lanes": Made(
        {name: SOURCE_FILES[name] for name in ("web-0.jsonl", "web-1.jsonl")},
        """
stream.slices = 2
stream.rows_per_slice = 2
stream.seq_len = 32
stream.order = "lanes"
stream.producers = ["l0", "l1", "l2"]
producer.lanes = ["l0", "l1", "l2"]
tokenizer.kind = "bytes"
packing.last_batch = "pad"
commit.max_batches = 4
ahead.lane_lead = 2
source.paths = ["web-*.jsonl"]
""",
        12,
    ),
    "sources": Made(
        SOURCE_FILES,
        text_stream("p0") + 'producer.limit = "48 batches"\n' + SOURCES,
        16,
        mixture=("web=0.1", "code=0.6", "manuals=0.3", "--after", "4"),
    ),
    "follow": Made(
        {"exports/a.jsonl": texts(15, 20), "exports/b.jsonl": texts(16, 20)},
        text_stream("p0")
        + 'producer.limit = "14 batches"\n'
        + '[[sources]]\nname = "exports"\npaths = ["exports"]\nfollow = true\n'
        'shuffle = { seed = 4, window = "1MiB" }\n',
        6,
        later={"exports/c.jsonl": texts(20, 60)},
    ),
    "inbox": Made(
        {},
        text_stream("p0")
        + 'source.paths = ["inbox"]\nsource.inbox = true\nsource.settled_age = "0s"\n'
        'source.follow_every = "100ms"\n'
        'inbox.writers = ["writer-0"]\n',
        8,
        rows=60,
    ),
    "transform": Made(
        {
            "corpus.jsonl": texts(17, 60),
            "halves.py": HALVES.encode(),
        },
        text_stream("p0") + 'source.paths = ["corpus.jsonl"]\n'
        'transform = { function = "halves:split", path = "." }\n',
        7,
    ),
    "long": Made(
        {"corpus.jsonl": texts(18, 246, 40)},
        text_stream("p0", 8, 1)
        .replace("slices = 2", "slices = 1")
        .replace("max_batches = 4", "max_batches = 2")
        + 'source.paths = ["corpus.jsonl"]\npacking.provenance = false\n',
        2000,
    ),
}
UNDIGESTED = {
    "undigested": Made(
        {"corpus.jsonl": texts(1, 40)}, text_stream("p0") + 'source.paths = ["corpus.jsonl"]\n', 8
    )
}
