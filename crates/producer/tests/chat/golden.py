"""Renders the conversations here with every template as transformers' apply_chat_template does (Jinja2 with the
same switches, filters and blocks), and writes golden.json. Needs jinja2 only."""

import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
BEGIN, END = "\U0010fffc", "\U0010fffb"


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return BEGIN + caller() + END


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


env = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
tokens = {"bos_token": "<s>", "eos_token": "</s>"}
golden = []
for line in (HERE / "conversations.jsonl").read_text().splitlines():
    row = json.loads(line)
    out = {}
    for path in sorted(HERE.glob("*.jinja")):
        template = env.from_string(path.read_text())
        for ask in (False, True):
            try:
                text = template.render(
                    messages=row["messages"], tools=row.get("tools"), documents=None, add_generation_prompt=ask, **tokens
                )
            except jinja2.exceptions.TemplateError as error:
                text = f"error: {error}"
            out[f"{path.stem} {ask}".lower()] = text
    golden.append(out)
(HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")
