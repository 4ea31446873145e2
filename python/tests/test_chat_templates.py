"""All chat templates that trl, axolotl, vllm and transformers ship, over conversations of all
shapes: rendered as transformers renders them, with the same mask, or refused by both."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import transformers.utils.chat_template_utils as chat  # type: ignore[import-not-found]
from chat_shapes import SHAPES
from real_daemons import BINARIES
from shipped_templates import downloaded, installed

DATE = "2026-11-27"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
Result = tuple[str, list[tuple[int, int]]] | None
"""Text and learned characters; `None` where the template refuses the conversation."""


class Today(datetime.datetime):
    """The date of `chat.date`."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Today:
        return cls.fromisoformat(DATE).replace(tzinfo=tz)


class Renderer:
    """A process that renders conversations, as the producer has them."""

    def __init__(self, template: str) -> None:
        # With a block of its own, the producer doesn't ask which text an answer adds to its prompt.
        template = template.replace("\r\n", "\n").removesuffix("\n")
        template += "{% generation %}{% endgeneration %}"
        year, month, day = map(int, DATE.split("-"))
        mapping = {
            "messages": "messages",
            "tools": "tools",
            "role_key": "role",
            "content_key": "content",
            "roles": {},
            "loss": {"learn": "all", "keys": [], "ignore": [], "named": []},
        }
        setup = {
            "template": {
                "path": "a test",
                "source": template,
                "tokens": TOKENS,
                "date": {"year": year, "month": month, "day": day},
                "output_bytes_max": 1 << 20,
            },
            "mapping": mapping,
            "specials": [],
            "dialect": "Second",
        }
        command = [str(BINARIES / "batchweave-producer"), "--render-conversations"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.broken: str | None = self._ask(setup).get("Err")

    def _ask(self, frame: dict[str, Any]) -> dict[str, Any]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        raw = json.dumps(frame).encode()
        to.write(len(raw).to_bytes(8, "little") + raw)
        to.flush()
        answer: dict[str, Any] = json.loads(back.read(int.from_bytes(back.read(8), "little")))
        return answer

    def render(self, shape: dict[str, Any]) -> tuple[Result, str]:
        """The result, and the reason where there is none."""
        if self.broken:
            return None, self.broken
        answer = self._ask(shape)
        if "Rendered" not in answer:
            return None, str(answer)
        text, learned = answer["Rendered"]["text"], answer["Rendered"]["learned"]
        raw = text.encode()
        marks = [tuple(len(raw[: mark[k]].decode()) for k in ("start", "end")) for mark in learned]
        return (text, [(a, b) for a, b in marks if a < b]), ""

    def __enter__(self) -> Renderer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        why: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def by_transformers(template: str, shape: dict[str, Any]) -> Result:
    """What transformers renders."""
    marks = re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
    try:
        texts, indices = chat.render_jinja_template(
            [shape["messages"]],
            tools=shape["tools"],
            chat_template=template,
            return_assistant_tokens_mask=marks,
            **TOKENS,
        )
    except Exception:  # Templates fail by any of Python's errors.
        return None
    return texts[0], [(a, b) for a, b in indices[0] if a < b] if marks else []


def test_templates_of_packages_are_rendered_as_by_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chat, "datetime", Today)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    templates = {text: name for name, text in [*downloaded(tmp_path), *installed()]}
    for template, name in templates.items():
        with Renderer(template) as renderer:
            for shape, arguments in SHAPES.items():
                ours, why = renderer.render(arguments)
                theirs = by_transformers(template, arguments)
                if ours == theirs:
                    counts["equal" if ours else "refused by both"] += 1
                    continue
                kind = "different" if ours and theirs else "refused by one"
                counts[kind] += 1
                wrong.append(f"{name}, {shape}: {kind}: {ours} {why}, not {theirs}")
    with capsys.disabled():
        print(f"\n{len(templates)} templates x {len(SHAPES)} conversations: {dict(counts)}")
    assert not wrong, "\n".join(wrong[:20])
    assert len(templates) > 100
    assert counts["equal"] > 1500
