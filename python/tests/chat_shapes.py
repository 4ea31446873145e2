"""Conversations of the shapes that datasets have, as arguments of a chat template."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def _user(content: Any) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def _tool(content: Any, name: str = "weather", call: str = "c1") -> Message:
    return {"role": "tool", "name": name, "tool_call_id": call, "content": content}


def _call(name: str, arguments: Any, call: str = "c1") -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": call, "type": "function", "function": function}


_SYSTEM = {"role": "system", "content": 'Be "brief" & kind.'}
_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city, isn't it?",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "name"},
                "days": {"type": ["integer", "null"], "default": 3, "enum": [1, 2, None]},
                "deep": {"type": "object", "properties": {"x": {"type": "array"}}},
            },
            "required": ["city"],
        },
    },
}
_EMPTY = {"type": "object", "properties": {}}
_NOTHING = {
    "type": "function",
    "function": {"name": "noop", "description": "", "parameters": _EMPTY},
}
_VALUES = {
    "city": 'Zürich "x" it\'s',
    "n": 5,
    "f": 1.5,
    "b": True,
    "none": None,
    "l": [1, "a", {"z": 1e-7}],
    "e": {},
    "big": 1e16,
}
_TEXTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
_MEDIA = [
    {"type": "image"},
    {"type": "text", "text": "what?"},
    {"type": "video"},
    {"type": "audio"},
]


def _asked(*turns: Message, tools: list[Message] | None = None) -> dict[str, Any]:
    return {"messages": list(turns), "tools": tools}


_ASKED = [_assistant("", tool_calls=[_call("weather", _VALUES)]), _tool("21 degrees")]
_BOTH = [_call("weather", {"city": "A"}, "c1"), _call("noop", {}, "c2")]

SHAPES: dict[str, dict[str, Any]] = {
    "plain": _asked(_user("hi"), _assistant("hello")),
    "system": _asked(_SYSTEM, _user("hi"), _assistant("a"), _user("b?"), _assistant("c")),
    "developer": _asked({"role": "developer", "content": "Dev."}, _user("hi"), _assistant("a")),
    "no user": _asked(_SYSTEM, _assistant("hello")),
    "ends with a user": _asked(_SYSTEM, _user("hi"), _assistant("a"), _user("b")),
    "unicode": _asked(_user("é日本😀\u200b\n  x  "), _assistant(" ok\r\n\u2028 <b>&'\" ")),
    "tool": _asked(_user("w?"), *_ASKED, _assistant("21."), tools=[_WEATHER]),
    "tool, null": _asked(
        _SYSTEM,
        _user("w?"),
        _assistant(None, tool_calls=[_call("weather", {"city": "Bern"})]),
        _tool("x"),
        _assistant("done"),
        tools=[_WEATHER, _NOTHING],
    ),
    "tool, arguments as text": _asked(
        _user("w?"),
        _assistant("let me see", tool_calls=[_call("weather", '{"city": "Bern"}')]),
        _tool('{"t": 21}'),
        _assistant("done"),
        tools=[_WEATHER],
    ),
    "several tools": _asked(
        _SYSTEM,
        _user("w?"),
        _assistant("", tool_calls=_BOTH),
        _tool("1"),
        _tool("2", "noop", "c2"),
        _assistant("both"),
        _user("again"),
        _assistant("", tool_calls=[_call("noop", {}, "c3")]),
        _tool("3", "noop", "c3"),
        _assistant("ok"),
        tools=[_WEATHER, _NOTHING],
    ),
    "ends with a tool": _asked(_user("w?"), *_ASKED, tools=[_WEATHER]),
    "reasoning_content": _asked(
        _user("q"),
        _assistant("a", reasoning_content="because\n x"),
        _user("r"),
        _assistant("b", reasoning_content="so it's"),
    ),
    "thinking, reasoning": _asked(
        _SYSTEM,
        _user("q"),
        _assistant("a", thinking="because"),
        _user("r"),
        _assistant("b", reasoning="therefore", tool_calls=[_call("noop", {})]),
        _tool("z", "noop"),
        _assistant("c", thinking="hm"),
        tools=[_NOTHING],
    ),
    "thoughts in the text": _asked(
        _user("q"),
        _assistant("<think>\nwhy\n</think>\n\na"),
        _user("r"),
        _assistant("<think>x</think>b"),
    ),
    "parts": _asked(_user(_TEXTS), _assistant([{"type": "text", "text": "three"}])),
    "images": _asked(_user(_MEDIA), _assistant("a cat")),
    "null": _asked(_user("q"), _assistant(None)),
    "empty": _asked(_user(""), _assistant(""), _user([]), _assistant([])),
    "no message": _asked(),
    "values": _asked(_user(5), _assistant(1.5), _user(True), _assistant({"k": "v"})),
    "two answers": _asked(_user("q"), _assistant("a"), _assistant("b"), _user("c"), _user("d")),
    "no tools": _asked(_user("q"), _assistant("a", tool_calls=[]), tools=[]),
    "no role": _asked({"content": "x"}, _assistant("y")),
}
