"""The dashboard: what it asks obeys its variables, adds up, and has data on a real system."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard import VARIABLES, filled, panels, queries, read
from dashboard_svg import Series, draw, series
from prometheus_server import Server, promtool
from site_of_daemons import BINS, ROOT, Site, eventually, get

PICTURES = os.environ.get("BATCHWEAVE_PICTURES")
# Colours of Grafana's palette: they follow its light and dark theme.
COLOUR = re.compile(
    r"(((semi-)?dark|light)-)?(green|yellow|red|blue|orange|purple)|text|transparent"
)
UNITS = {"percentunit", "short", "none", "string", "s", "bytes", "Bps", "reqps"}
SELECTOR = re.compile(r"\b(batchweave_\w+|up|ALERTS)(\{[^}]*\})?")


def test_it_begins_with_the_answers() -> None:
    """Numbers and their tables first, lines over time below."""
    whole = read()["panels"]
    rows = [one["title"] for one in whole if one["type"] == "row"]
    assert rows[:2] == ["Is training fed?", "Who waits, and why?"]
    assert all(title.startswith("Trends: ") for title in rows[2:])
    first = whole.index(next(one for one in whole if one["title"] == rows[2]))
    assert {one["type"] for one in whole[:first]} == {"row", "stat", "table"}
    assert whole[1]["title"] == "Is training fed?"


def test_panels_do_not_overlap() -> None:
    used: set[tuple[int, int]] = set()
    for panel in read()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & used, panel["title"]
        used |= cells
    ids = [panel["id"] for panel in read()["panels"]]
    assert len(ids) == len(set(ids))


def test_each_panel_says_what_it_shows_in_which_unit() -> None:
    for panel in panels():
        title, settings = panel["title"], panel["fieldConfig"]["defaults"]
        assert len(panel["description"]) > 25, title
        assert panel["description"].endswith("."), title
        assert settings["unit"] in UNITS, title
        if panel["type"] == "timeseries":
            assert settings["custom"]["axisLabel"], title
            continue
        assert settings["thresholds"]["steps"], title
        # A panel without data says so in words.
        assert settings["noValue"], title


def test_colours_follow_the_theme() -> None:
    def colours(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            for key, value in part.items():
                if key in ("color", "fixedColor", "iconColor") and isinstance(value, str):
                    yield value
                yield from colours(value)
        elif isinstance(part, list):
            for one in part:
                yield from colours(one)

    found = set(colours(read()))
    assert len(found) > 5
    assert all(COLOUR.fullmatch(colour) for colour in found), found


def test_variables_are_used_by_each_expression_that_has_their_label() -> None:
    names = [one["name"] for one in read()["templating"]["list"]]
    assert names == ["datasource", *VARIABLES]
    page = (ROOT / "docs" / "metrics.md").read_text()
    labels = {
        name: set(re.findall(r"`(\w+)`", found))
        for name, found in re.findall(
            r"^\| `(batchweave_\w+)` \| \w+ \| (.*?) \|", page, re.MULTILINE
        )
    }
    seen = 0
    for query in queries():
        for name, matchers in SELECTOR.findall(query.expr):
            wanted = {'stream=~"$stream"'}
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            if name.startswith("batchweave_consumer"):
                wanted |= {'run=~"$job"', 'instance=~"$node"'}
            if "dp_rank" in labels.get(base, labels.get(name, set())):
                wanted.add('dp_rank=~"$rank"')
            given = set(re.findall(r'\w+(?:=|!=|=~|!~)"[^"]*"', matchers))
            assert wanted <= given, f"{query.panel}: {name} lacks {wanted - given}"
            seen += 1
    assert seen > 60


def test_each_cause_of_waiting_has_words() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    cell = next(line for line in page.splitlines() if line.startswith("- `cause`: "))
    causes = {word for word in re.findall(r"`(\w+)`", cell) if word != "cause"}
    assert len(causes) > 6
    bounds = next(line for line in page.splitlines() if line.startswith("- `bound`: "))
    mapped = json.dumps(read())
    for name in causes | set(re.findall(r"`(\w+)`", bounds)) - {"bound"}:
        assert f'"{name}": {{"text": "' in mapped, name


def case(text: str, values: str) -> dict[str, str]:
    return {"series": text, "values": values}


NODE_1 = 'job="batchweave-consumer",stream="main",run="pretrain",instance="c:1"'
NODE_2 = 'job="batchweave-consumer",stream="main",run="eval",instance="c:2"'
NODE_3 = 'job="batchweave-consumer",stream="main",run="gone",instance="c:3"'
PRODUCER = 'job="batchweave-producer",stream="%s",instance="p:%d"'
SCRAPED = [
    case(f"batchweave_consumer_frames_delivered_total{{{NODE_1}}}", "0+15x40"),
    case(f"batchweave_consumer_frames_delivered_total{{{NODE_2}}}", "0+30x40"),
    case(f"batchweave_consumer_slice_tokens{{{NODE_1}}}", "100x40"),
    case(f"batchweave_consumer_slice_tokens{{{NODE_2}}}", "100x40"),
    case(f"batchweave_consumer_head_step{{{NODE_1}}}", "110x40"),
    case(f"batchweave_consumer_head_step{{{NODE_2}}}", "110x40"),
    case(f'batchweave_consumer_rank_step{{{NODE_1},dp_rank="0"}}', "100x40"),
    case(f'batchweave_consumer_rank_step{{{NODE_1},dp_rank="1"}}', "106x40"),
    case(f'batchweave_consumer_rank_step{{{NODE_2},dp_rank="0"}}', "90x40"),
    case(f'batchweave_consumer_ahead_steps{{{NODE_1},dp_rank="0"}}', "6x40"),
    case(f'batchweave_consumer_ahead_steps{{{NODE_2},dp_rank="0"}}', "8x40"),
    case(f'batchweave_consumer_steps_delivered_total{{{NODE_1},dp_rank="0"}}', "0+30x40"),
    case(f'batchweave_consumer_steps_delivered_total{{{NODE_2},dp_rank="0"}}', "0+15x40"),
    case(
        f'batchweave_consumer_rank_wait_seconds_total{{{NODE_1},dp_rank="0",cause="fetching"}}',
        "0+3.75x40",
    ),
    case(
        f'batchweave_consumer_rank_wait_seconds_total{{{NODE_1},dp_rank="0",cause="producing"}}',
        "0+1.875x40",
    ),
    case(f"batchweave_consumer_sessions{{{NODE_1}}}", "2x40"),
    case(f"batchweave_consumer_sessions{{{NODE_2}}}", "1x40"),
    case(f"batchweave_consumer_ready{{{NODE_1}}}", "1x40"),
    case(f"batchweave_consumer_ready{{{NODE_2}}}", "0x40"),
    case(f"batchweave_consumer_ready{{{NODE_3}}}", "1x8 stale"),
    case(f"up{{{NODE_1}}}", "1x40"),
    case(f"up{{{NODE_3}}}", "0x40"),
    case(f"up{{{PRODUCER % ('other', 3)}}}", "0x40"),
    case(f"batchweave_producer_held{{{PRODUCER % ('main', 1)}}}", "1x40"),
    case(f"batchweave_producer_held{{{PRODUCER % ('main', 2)}}}", "0x40"),
    case(f"batchweave_producer_held{{{PRODUCER % ('other', 3)}}}", "1x40"),
    # A producer of rows has no imbalance.
    case(f"batchweave_producer_batch_imbalance{{{PRODUCER % ('main', 1)}}}", "1.25x40"),
    case(f"batchweave_producer_batch_imbalance{{{PRODUCER % ('main', 2)}}}", "0x40"),
    case(f"batchweave_producer_fill{{{PRODUCER % ('main', 1)}}}", "0.75x40"),
    case(f"batchweave_producer_fill{{{PRODUCER % ('main', 2)}}}", "0x40"),
    case(f"batchweave_producer_ready{{{PRODUCER % ('main', 1)}}}", "1x40"),
    case(f"batchweave_producer_ready{{{PRODUCER % ('main', 2)}}}", "1x40"),
    case(f"batchweave_producer_ready{{{PRODUCER % ('other', 3)}}}", "1x8 stale"),
]
# Panel, choices of variables, labels and value of the one sample.
ADDS_UP: list[tuple[str, dict[str, str], str, float]] = [
    ("Is training fed?", {}, "{}", 0.375),
    ("Is training fed?", {"node": "c:2"}, "{}", 0.0),
    ("Is training fed?", {"rank": "1"}, "{}", 0.0),
    ("Worst rank waits", {"job": "pretrain"}, "{}", 0.375),
    ("Mainly because", {}, '{cause="fetching"}', 0.25),
    ("Mainly because", {"job": "eval"}, '{cause="none"}', 0.001),
    ("Tokens to ranks", {}, "{}", 300.0),
    ("Tokens to ranks", {"node": "(c:1|c:9)"}, "{}", 100.0),
    ("Read ahead", {}, "{}", 3.0),
    ("Read ahead", {"node": "c:2"}, "{}", 8.0),
    ("Committed ahead", {}, "{}", 4.0),
    ("Committed ahead", {"rank": "0"}, "{}", 10.0),
    ("Ranks connected", {}, "{}", 3.0),
    ("Ranks connected", {"stream": "other"}, "", 0.0),
    ("Producers held back", {}, "{}", 2.0),
    ("Producers held back", {"stream": "main", "node": "c:2"}, "{}", 1.0),
    ("Daemons not ready", {}, "{}", 3.0),
    ("Daemons not ready", {"stream": "main", "job": "pretrain"}, "{}", 1.0),
    ("Alerts firing", {}, "{}", 0.0),
    # A daemon that is gone keeps its row for an hour.
    ("Nodes", {"node": "c:3"}, '{instance="c:3"}', -1.0),
    ("Nodes", {"job": "eval"}, '{instance="c:2"}', 0.0),
    ("Producers", {"stream": "other"}, '{instance="p:3"}', -1.0),
    ("Imbalance of batches", {}, '{instance="p:1"}', 1.25),
    ("Fill of bins", {"stream": "main"}, '{instance="p:1"}', 0.75),
    ("Ranks", {"job": "pretrain", "rank": "0"}, '{instance="c:1", dp_rank="0"}', 0.375),
]


def test_numbers_add_up_over_nodes_ranks_and_streams(tmp_path: Path) -> None:
    asked = {one["title"]: one["targets"][0]["expr"] for one in panels()}
    assert len(asked) == len(panels()), "two panels of one title"
    stats = {one["title"] for one in panels() if one["type"] == "stat"}
    assert stats <= {title for title, *_ in ADDS_UP}
    tests = [
        {
            "expr": filled(asked[title], **chosen),
            "eval_time": "10m",
            "exp_samples": [{"labels": labels, "value": value}] if labels else [],
        }
        for title, chosen, labels, value in ADDS_UP
    ]
    group = {"interval": "15s", "input_series": SCRAPED, "promql_expr_test": tests}
    # JSON is YAML.
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [], "tests": [group]}))
    promtool("test", "rules", str(tmp_path / "test.yml"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start daemons of a stream of bins: the only ones with data for every panel."""
    site = Site(tmp_path_factory.mktemp("site"), shape=BINS)
    try:
        site.run()
        eventually("batches at the rank", lambda: site.delivered > 100, output=site.logs)
        yield site
    finally:
        site.end()


@pytest.fixture(scope="module")
def server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(site, tmp_path_factory.mktemp("server"))
    yield server
    server.process.kill()
    server.process.wait()


def test_each_query_answers_on_a_running_system(site: Site, server: Server) -> None:
    left = {filled(query.expr): query.panel for query in queries()}
    assert len(left) > 50

    def answered() -> bool:
        for expression in [one for one in left if server.query(one)]:
            del left[expression]
        return not left

    try:
        eventually("data for every query", answered, seconds=120)
    except AssertionError:
        pytest.fail(f"no data for {left}\n{site.log('batchweave-consumer')}")


def test_variables_offer_what_is_there(site: Site, server: Server) -> None:
    eventually("ranks", lambda: bool(server.query("batchweave_consumer_rank_step")))
    offered = {}
    for one in read()["templating"]["list"][1:]:
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]["query"])
        assert asked, one
        assert one["allValue"] == ".*", "All includes series that lack the label"
        offered[one["name"]] = server.label_values(filled(asked[1]), asked[2])
    assert offered == {
        "stream": ["main"],
        "job": ["training"],
        "node": [f"127.0.0.1:{site.consumer_port}"],
        "rank": ["0"],
    }


def test_the_dashboard_can_be_drawn(server: Server) -> None:
    """With BATCHWEAVE_PICTURES the picture is kept."""
    eventually("delivered tokens", lambda: bool(server.query("dp_rank:batchweave_ahead:seconds")))
    end = time.time()
    span = (end - 60, end)

    def ask(expression: str) -> list[Series]:
        words = {"query": expression, "start": span[0], "end": span[1], "step": 1}
        status, text = get(server.port, "/api/v1/query_range?" + urllib.parse.urlencode(words))
        assert status == 200, text
        return series(text)

    drawn = draw(ask, span, [(end - 5, "now")], window="10s")
    if PICTURES:
        (Path(PICTURES) / "dashboard-healthy.svg").write_text(drawn)
    assert drawn.count('class="panel"') == len(panels())
    trends = [one for one in panels() if one["type"] == "timeseries"]
    assert drawn.count("<polyline") >= len(trends)
    assert ">held back<" in drawn or ">producing<" in drawn, "the state of the producer in words"
    assert "no ranks" not in drawn


def test_no_alert_is_raised_by_a_healthy_site(site: Site, server: Server) -> None:
    eventually("scrapes", lambda: bool(server.query('up{job="batchweave-consumer"} == 1')))
    raised = server.query('ALERTS{alertstate="firing"}')
    assert not raised, raised
    assert site.delivered > 0
