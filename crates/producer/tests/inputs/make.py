"""Writes the input files of this folder with pyarrow 26 and numpy 2.2, without the tested readers.

All hold the same documents: ids are the bytes of the texts, and the end token is 256.
"""

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
END = 256
texts = [f"document {n}, {'x' * (n * 7 % 41)} ü" for n in range(60)]
ids = [list(text.encode()) for text in texts]


def lines(name: str, documents: list[dict]) -> None:
    """Write a JSONL file."""
    rows = [json.dumps(document, ensure_ascii=False) + "\n" for document in documents]
    (HERE / name).write_text("".join(rows))


def parquet(name: str, columns: dict[str, pa.Array]) -> None:
    """Write a Parquet file of four row groups."""
    pq.write_table(pa.table(columns), HERE / name, row_group_size=16, compression="zstd")


lines("documents.jsonl", [{"text": text} for text in texts])
lines("ids.jsonl", [{"id": n, "input_ids": row} for n, row in enumerate(ids)])
for kind in ("int32", "int64", "uint16", "uint32"):
    rows = pa.array(ids, pa.list_(getattr(pa, kind)()))
    parquet(f"ids-{kind}.parquet", {"id": pa.array(range(60)), "input_ids": rows})

# One list: each document and its end token, the last one without.
flat = [token for row in ids for token in [*row, END]][:-1]
np.save(HERE / "list-u2.npy", np.array(flat, dtype="<u2"))
np.save(HERE / "list-i8.npy", np.array(flat, dtype="<i8"))
table = [row[:12] for row in ids]
np.save(HERE / "table-i4.npy", np.array(table, dtype="<i4"))
lines("table.jsonl", [{"text": bytes(row).decode()} for row in table])

# Megatron's pair: a document in one to three sequences, every second one with its end token.
for name, dtype, code in (("megatron-u2", "<u2", 8), ("megatron-i4", "<i4", 4)):
    sequences, borders = [], [0]
    for n, row in enumerate(ids):
        row = row + [END] * (n % 2)
        step = -(-len(row) // (1 + n % 3))
        sequences += [row[at : at + step] for at in range(0, len(row), step)]
        borders.append(len(sequences))
    size = np.dtype(dtype).itemsize
    lengths = [len(sequence) for sequence in sequences]
    pointers = [sum(lengths[:n]) * size for n in range(len(lengths))]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(borders))
    index += struct.pack(f"<{len(lengths)}i", *lengths)
    index += struct.pack(f"<{len(pointers)}q", *pointers)
    index += struct.pack(f"<{len(borders)}q", *borders)
    (HERE / f"{name}.idx").write_bytes(index)
    joined = [token for sequence in sequences for token in sequence]
    (HERE / f"{name}.bin").write_bytes(np.array(joined, dtype=dtype).tobytes())

# Conversations: with tools in some, and a call without content.
tool = {"name": "clock", "at": {"zone": "UTC"}}
chats, shared = [], []
for n in range(60):
    call = {"role": "assistant", "content": None, "call": {"name": "clock", "count": n}}
    answer = {"role": "assistant", "content": f"It is {n}."}
    messages = [{"role": "system", "content": "Be brief."}] if n % 3 == 0 else []
    messages += [{"role": "user", "content": f"What time is it, {texts[n]}?"}]
    messages += [call, {"role": "tool", "content": str(n)}] if n % 5 == 0 else []
    chats.append({"messages": [*messages, answer]} | ({"tools": [tool]} if n % 5 == 0 else {}))
    names = {"user": "human", "assistant": "gpt"}
    turns = [
        {"from": names.get(m["role"], m["role"]), "value": m["content"]}
        | {key: m[key] for key in m.keys() - {"role", "content"}}
        for m in chats[-1]["messages"]
    ]
    shared.append(
        {"conversations": turns} | {key: chats[-1][key] for key in chats[-1].keys() & {"tools"}}
    )
lines("chat.jsonl", chats)
lines("sharegpt.jsonl", shared)
call_type = pa.struct([("name", pa.string()), ("count", pa.int64())])
for name, documents, keys in (
    ("chat", chats, ("messages", "role", "content")),
    ("sharegpt", shared, ("conversations", "from", "value")),
):
    message = pa.struct([(keys[1], pa.string()), (keys[2], pa.string()), ("call", call_type)])
    tool_type = pa.struct([("name", pa.string()), ("at", pa.struct([("zone", pa.string())]))])
    parquet(
        f"{name}.parquet",
        {
            "source": pa.array([f"row {n}" for n in range(60)]),
            keys[0]: pa.array([d[keys[0]] for d in documents], pa.list_(message)),
            "tools": pa.array([d.get("tools") for d in documents], pa.list_(tool_type)),
        },
    )
as_json = [json.dumps(d["messages"]) for d in chats]
tools = [json.dumps(d["tools"]) if "tools" in d else None for d in chats]
parquet("chat-json.parquet", {"messages": pa.array(as_json), "tools": pa.array(tools, pa.string())})
parquet("chat-weight.parquet", {"messages": pa.array(as_json), "weight": pa.array([1] * len(chats))})

# Preference pairs: a text or messages, in every third document an assistant's turn in the prompt.
pairs = []
for n in range(60):
    prompt = [{"role": "user", "content": texts[n]}]
    if n % 3 == 0:
        prompt = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}, *prompt]
    answers = [[{"role": "assistant", "content": f"{word} {n}"}] for word in ("Good", "Bad")]
    pairs.append({"prompt": prompt, "chosen": answers[0], "rejected": answers[1]})
lines("pairs.jsonl", pairs)
message = pa.struct([("role", pa.string()), ("content", pa.string())])
names = ("prompt", "chosen", "rejected")
parquet("pairs.parquet", {name: pa.array([p[name] for p in pairs], pa.list_(message)) for name in names})
whole = [{name: pair["prompt"] + pair[name] for name in names[1:]} for pair in pairs]
parquet(
    "pairs-whole.parquet",
    {name: pa.array([json.dumps(p[name]) for p in whole]) for name in names[1:]},
)
