"""Rows of preference pairs in the layouts of trl, and what trl's maybe_extract_prompt and maybe_apply_chat_template make
of each: writes pairs_golden.jsonl. Needs trl and transformers; with a number, prints that many random rows instead."""

import importlib.util
import json
import pathlib
import random
import sys
import types

import transformers
from tokenizers import Tokenizer, models

HERE = pathlib.Path(__file__).parent
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WORDS = [
    "sky",
    "blue?",
    " padded ",
    "ünï",
    "a\nb",
    "tell me more",
    "[1, 2]",
    "yes",
    "no",
    'because "so"',
    "日本",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "d",
            "parameters": {"z": 1, "a": [1.5, None]},
        },
    }
]


def data_utils():
    """trl/data_utils.py alone: the package imports torch."""
    spec = importlib.util.find_spec("trl")
    trl = types.ModuleType("trl")
    trl.__path__ = list(spec.submodule_search_locations)
    sys.modules["trl"] = trl
    return importlib.import_module("trl.data_utils")


def tokenizer():
    plain = Tokenizer(models.WordLevel({"<s>": 0, "x": 1}, unk_token="x"))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>")
    made.chat_template = TEMPLATE
    return made


def message(role, text):
    return {"role": role, "content": text}


def row(draw):
    """Returns a row of a drawn layout."""
    text = lambda: " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 4)))
    prompt = [message("system", text())] if draw.random() < 0.3 else []
    for _ in range(draw.choice([0, 0, 1, 2])):
        prompt += [message("user", text()), message("assistant", text())]
    if draw.random() < 0.2:
        call = {
            "type": "function",
            "function": {"name": "f", "arguments": {"z": text(), "a": 1}},
        }
        prompt += [
            message("user", text()),
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        prompt += [message("tool", text())]
    else:
        prompt += [message("user", text())]
    good, bad = (
        ("g " + text(), "b " + text())
        if draw.random() < 0.7
        else ("same then " + text(), "same then")
    )
    chosen, rejected = [message("assistant", good)], [message("assistant", bad)]
    if draw.random() < 0.2:
        chosen += [message("user", text()), message("assistant", text())]
        rejected += [message("user", text()), message("assistant", text())]
    layout = draw.choice(["explicit", "implicit", "beside", "doubled"])
    if layout == "beside" and prompt[-1]["role"] != "user":
        layout = "implicit"
    rows = {
        "explicit": {"prompt": prompt, "chosen": chosen, "rejected": rejected},
        "implicit": {"chosen": prompt + chosen, "rejected": prompt + rejected},
        "beside": {
            "prompt": prompt[-1]["content"],
            "chosen": prompt + chosen,
            "rejected": prompt + rejected,
        },
        "doubled": {
            "prompt": prompt,
            "chosen": prompt + chosen,
            "rejected": prompt + rejected,
        },
    }
    made = rows[layout]
    # trl takes the prompt twice in this layout, so it is shown the one without.
    shown = rows["implicit"] if layout == "doubled" else made
    tools = {"tools": TOOLS} if draw.random() < 0.3 else {}
    return layout, {**made, **tools}, {**shown, **tools}


def made_by_trl(utils, tok, shown):
    extracted = utils.maybe_extract_prompt(dict(shown))
    made = utils.maybe_apply_chat_template(extracted, tok, tools=shown.get("tools"))
    return {key: made[key] for key in ("prompt", "chosen", "rejected")}


def main():
    utils, tok = data_utils(), tokenizer()
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    draw = random.Random(20 if rows == 40 else rows)
    lines = []
    for _ in range(rows):
        layout, made, shown = row(draw)
        lines.append(
            json.dumps(
                {"layout": layout, "row": made, **made_by_trl(utils, tok, shown)},
                ensure_ascii=False,
            )
        )
    text = "".join(line + "\n" for line in lines)
    if len(sys.argv) > 1:
        sys.stdout.write(text)
    else:
        (HERE / "pairs_golden.jsonl").write_text(text)


main()
