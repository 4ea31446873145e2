"""The Helm chart, whose templates are made of the base of deploy/kubernetes: by `make manifests`.

Only these constructs are in them, so that the tests render them without Helm: a value, a value as
JSON, its digest, the release's namespace.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from manifests import KUBERNETES
from site_of_daemons import ROOT

CHART = ROOT / "deploy" / "helm" / "batchweave"
TEMPLATES = CHART / "templates"
FILES = ["accounts", "producers", "training", "reclaim", "verify", "network"]
HEAD = "# Made of deploy/kubernetes/base by `make manifests`.\n"
# Text of the base, how often it is in it, and its place in the values.
VALUES = [
    ("image: batchweave\n", 5, "image: {{ .Values.image }}\n"),
    ("image: trainer\n", 1, "image: {{ .Values.trainer.image }}\n"),
    ("replicas: 2\n", 1, "replicas: {{ .Values.producers.replicas }}\n"),
    ("batchweave.io/stream: main\n", 2, "batchweave.io/stream: {{ .Values.stream }}\n"),
    ("parallelism: 1\n", 1, "parallelism: {{ .Values.trainer.nodes }}\n"),
    ("completions: 1\n", 1, "completions: {{ .Values.trainer.nodes }}\n"),
    ('WORLD_SIZE, value: "1"}', 1, 'WORLD_SIZE, value: "{{ .Values.trainer.nodes }}"}'),
    ('schedule: "*/15 * * * *"', 1, "schedule: {{ toJson .Values.reclaim.schedule }}"),
]
# The resources of a container: what follows its name, up to the next key of the container.
RESOURCES = {"producer": "producers", "consumer": "consumers", "trainer": "trainer"}
CONFIGURATION = (
    HEAD
    + """apiVersion: v1
kind: ConfigMap
metadata:
  name: batchweave-producer
data:
  producer.toml: {{ toJson .Values.configuration.producer }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: batchweave-consumer
data:
  consumer.toml: {{ toJson .Values.configuration.consumer }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: store
data: {{ toJson .Values.store }}
"""
)
# A changed configuration rolls the producers: kustomize changes the ConfigMap's name instead.
CHECKSUM = """      annotations:
        checksum/configuration: {{ toJson .Values.configuration.producer | sha256sum }}
"""


def labelled(text: str) -> str:
    """Add the label that kustomize gives to every object."""
    label = "  labels:\n    app.kubernetes.io/part-of: batchweave\n"
    return re.sub(r"(?m)^(metadata:\n  name: .*\n)", rf"\1{label}", text)


def templates() -> dict[str, str]:
    """Return the templates by name."""
    made = {"configuration": CONFIGURATION}
    made |= {name: HEAD + (KUBERNETES / "base" / f"{name}.yaml").read_text() for name in FILES}
    made["network-aws"] = HEAD + (KUBERNETES / "overlays/aws/network.yaml").read_text()
    whole = "".join(made.values())
    for before, times, after in VALUES:
        if whole.count(before) != times:
            raise SystemExit(f"{before!r} is {whole.count(before)} times in the base, not {times}")
        made = {name: text.replace(before, after) for name, text in made.items()}
    for container, place in RESOURCES.items():
        pattern = rf"(?s)(- name: {container}\n.*?\n)( +)resources:\n(?:\2 +.*?\n)+?(?=\2\S)"
        found = 0
        for name, text in made.items():
            given = rf"\1\2resources: {{{{ toJson .Values.{place}.resources }}}}\n"
            made[name], count = re.subn(pattern, given, text)
            found += count
        if found != 1:
            raise SystemExit(f"{found} containers {container} with resources, not one")
    accounts = r"(?m)^  name: batchweave-(\w+)\n"
    role = r"  name: batchweave-\1\n  annotations: {{ toJson .Values.accounts.\1 }}\n"
    made["accounts"] = re.sub(accounts, role, made["accounts"])
    spread = "      topologySpreadConstraints: {{ toJson .Values.producers.topologySpread }}\n"
    account = "      serviceAccountName: batchweave-producer\n"
    producers = made["producers"].replace(account, account + spread)
    stream = "        batchweave.io/stream: {{ .Values.stream }}\n"
    made["producers"] = producers.replace(stream, stream + CHECKSUM)
    return {name: labelled(text) for name, text in made.items()}


def render(values: dict[str, Any], namespace: str) -> list[dict[str, Any]]:
    """Return the objects of the chart, as `helm template` makes them."""

    def value(path: str) -> Any:
        return reduce(lambda found, name: found[name], path.split("."), values)

    def filled(found: re.Match[str]) -> str:
        words = found[1].split()
        if words == [".Release.Namespace"]:
            return namespace
        text = value(words[-1].removeprefix(".Values.")) if len(words) < 3 else None
        if len(words) == 1:
            return str(text)
        if words[0] == "toJson" and len(words) == 2:
            return json.dumps(text)
        if words[0] == "toJson" and words[2:] == ["|", "sha256sum"]:
            text = value(words[1].removeprefix(".Values."))
            return hashlib.sha256(json.dumps(text).encode()).hexdigest()
        raise ValueError(f"the tests cannot render {found[0]}")

    objects = []
    for path in sorted(TEMPLATES.iterdir()):
        text = re.sub(r"\{\{ (.*?) \}\}", filled, path.read_text())
        for one in yaml.safe_load_all(text):
            one["metadata"].setdefault("namespace", namespace)
            objects.append(one)
    return objects


def main() -> None:
    TEMPLATES.mkdir(parents=True, exist_ok=True)
    for name, text in templates().items():
        (TEMPLATES / f"{name}.yaml").write_text(text)


def read_values(path: Path = CHART / "values.yaml") -> dict[str, Any]:
    """Return the values of the chart."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


if __name__ == "__main__":
    main()
