"""Renders the templates of jinja_golden.json as transformers does, and writes their texts there. To add a template, add
`{"template": "..."}` to its cases and run this. Needs transformers, and takes its date as fixed."""

import datetime
import json
import pathlib
import warnings

import transformers.utils.chat_template_utils as chat

HERE = pathlib.Path(__file__).parent
PATH = HERE / "jinja_golden.json"

warnings.filterwarnings("ignore", category=SyntaxWarning)


class Today(datetime.datetime):
    """The date of the table."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(golden["date"])


def rendered(template):
    try:
        compiled = chat._compile_jinja_template(template)
        text, marks = chat._render_with_assistant_indices(compiled, **golden["context"])
        text.encode()
    except Exception:
        return {"template": template, "text": None}
    marks = [mark for mark in marks if mark[0] < mark[1]]
    return {"template": template, "text": text, **({"marks": marks} if marks else {})}


golden = json.loads(PATH.read_text())
chat.datetime = Today
cases = [json.dumps(rendered(case["template"]), ensure_ascii=False) for case in golden["cases"]]
head = json.dumps({key: golden[key] for key in ("context", "date")}, ensure_ascii=False)
PATH.write_text(head[:-1] + ', "cases": [\n' + ",\n".join(cases) + "\n]}\n")
