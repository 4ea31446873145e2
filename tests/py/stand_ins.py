"""Stand-ins for packages that the examples import and this Python may lack: the few calls that
they make, in one process, over pyarrow.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

RAY = """
from types import SimpleNamespace
import pyarrow


class Datasink:
    pass


class Dataset:
    def __init__(self, rows):
        self.rows = rows

    def write_datasink(self, sink):
        sink.on_write_start()
        half = len(self.rows) // 2
        blocks = [pyarrow.Table.from_pylist(part) for part in (self.rows[:half], self.rows[half:])]
        tasks = [sink.write([b], SimpleNamespace(task_idx=n)) for n, b in enumerate(blocks)]
        sink.on_write_complete(SimpleNamespace(num_rows=len(self.rows), write_returns=tasks))


from_items = Dataset
"""

BLOCK = """
from types import SimpleNamespace


class BlockAccessor:
    @staticmethod
    def for_block(block):
        return SimpleNamespace(to_arrow=lambda: block)
"""

DATASETS = """
import pyarrow
import pyarrow.parquet


class Dataset:
    def __init__(self, table):
        self.table = table

    @classmethod
    def from_list(cls, rows):
        return cls(pyarrow.Table.from_pylist(rows))

    def to_parquet(self, path):
        pyarrow.parquet.write_table(self.table, path)
"""

FILES = {
    "ray": {
        "ray/__init__.py": "import ray.data\n",
        "ray/data/__init__.py": RAY,
        "ray/data/block.py": BLOCK,
    },
    "datasets": {"datasets.py": DATASETS},
}


def write_missing(folder: Path) -> None:
    """Writes a module into the folder for each of these packages that is not installed."""
    for package, files in FILES.items():
        if importlib.util.find_spec(package) is None:
            for name, text in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
