"""load_run(): what a run has left, as numpy arrays."""

from __future__ import annotations

import csv
import functools
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

# bfloat16, which numpy lacks, is not among what lanewise writes.
_DTYPES: Final = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?",
}  # fmt: skip


class Table(Mapping[str, np.ndarray]):
    """Columns by name, all of one length. A column may have several values a row; what is missing is NaN."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name} [{', '.join(map(str, c.shape[1:]))}]" if c.ndim > 1 else name for name, c in self.items()
        )
        return f"Table of {self.rows} rows: {shown}"

    @property
    def rows(self) -> int:
        return next((len(c) for c in self._columns.values()), 0)

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame ; a column of several values becomes name.0, name.1, …"""
        import pandas

        flat: dict[str, np.ndarray] = {}
        for name, column in self.items():
            if column.ndim == 1:
                flat[name] = column
            else:
                values = column.reshape(len(column), -1)
                flat |= {f"{name}.{i}": values[:, i] for i in range(values.shape[1])}
        return pandas.DataFrame(flat)


class Run:
    """A run directory. Files are read when they are asked for; those of a run that is under way can be read, too."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        if not (self.directory / "manifest.json").is_file():
            raise FileNotFoundError(f"{self.directory} holds no run of lanewise: it has no manifest.json")

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r}: {self.manifest['name']})"

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """The whole pipeline as it ran, seeds, versions."""
        return read_json(self.directory / "manifest.json")

    @property
    def report(self) -> dict[str, Any]:
        """How the run ended."""
        return read_json(self.directory / "report.json")

    @property
    def streams(self) -> list[str]:
        """The streams' ids, in the order of the columns of metrics["streams"]."""
        nodes = self.manifest["pipeline"]["nodes"]
        return [node["id"] for node in nodes if not node.get("in")]

    @property
    def metrics(self) -> Table:
        """A row a step: step, loss, n, lr, grad_norm, and of several values `lanes` and `streams`."""
        return _table(_lines(self.directory / "metrics.jsonl"))

    @property
    def timings(self) -> Table:
        """A row for each of these steps: step, seconds since the training began."""
        return _table(_lines(self.directory / "timings.jsonl"))

    @property
    def evaluations(self) -> Table:
        """A row an evaluation: step, loss, mse, baselines.last, …, streams.gen0.loss, …"""
        return _table([_flat(line) for line in _lines(self.directory / "evaluations.jsonl")])

    @property
    def predictions(self) -> Table:
        """What a `predictions` node of the pipeline has written."""
        for node in self.manifest["pipeline"]["nodes"]:
            if node["type"] == "predictions":
                return load_predictions(self.directory / node["params"]["file"])
        raise FileNotFoundError(
            f"the pipeline of {self.directory} has no predictions node; run `lanewise predict {self.directory} "
            "--to FILE`, and lanewise.load_predictions(FILE)"
        )

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The weights at the end, by the names that PyTorch gives them."""
        return read_safetensors(self.directory / "weights.safetensors")[0]

    def checkpoint(self) -> Path:
        """The directory of the newest checkpoint."""
        found = sorted(p for p in (self.directory / "checkpoints").glob("step-*") if (p / "manifest.sha256").is_file())
        if not found:
            raise FileNotFoundError(f"{self.directory} has no checkpoint yet")
        return found[-1]


def load_run(directory: str | Path) -> Run:
    """What a run has left: manifest, report, metrics, timings, evaluations, predictions, weights."""
    return Run(directory)


def load_predictions(file: str | Path) -> Table:
    """The CSV file of a `predictions` node or of `lanewise predict`: phase, step, stream, run, seq, time, weight, and
    of several values y and p, target and prediction in original units. `time` is NaT where the stream has none."""
    with open(file, newline="") as f:
        lines = csv.reader(f)
        header = next(lines, [])
        rows = [line for line in lines if len(line) == len(header)]  # the last may be half written
    columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}

    def values(prefix: str) -> np.ndarray:
        names = [name for name in header if name[0] == prefix and name[1:].isdecimal()]
        return (
            np.array([[float(v or "nan") for v in columns[name]] for name in names], float)
            .reshape(len(names), len(rows))
            .T
        )

    return Table(
        {
            "phase": np.array(columns["phase"], str),
            "step": np.array(columns["step"], np.int64),
            "stream": np.array(columns["stream"], str),
            "run": np.array(columns["run"], np.int64),
            "seq": np.array(columns["seq"], np.int64),
            "time": np.array([int(t) if t else np.iinfo(np.int64).min for t in columns["time"]], np.int64).view(
                "datetime64[ns]"
            ),
            "weight": np.array(columns["weight"], float),
            "y": values("y"),
            "p": values("p"),
        }
    )


def read_safetensors(file: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    data = Path(file).read_bytes()
    try:
        (size,) = struct.unpack_from("<Q", data)
        if size > len(data) - 8:
            raise ValueError("its header is longer than the file")
        header = json.loads(data[8 : 8 + size])
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            if not 8 + size <= begin <= end <= len(data):
                raise ValueError(f"{name} lies outside of the file")
            tensors[name] = np.frombuffer(data[begin:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"{file} is not a safetensors file: {e}") from None
    return tensors, header.get("__metadata__", {})


def read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def _lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # a last line may be half written


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _table(records: list[dict[str, Any]]) -> Table:
    names = dict.fromkeys(name for record in records for name in record)
    return Table({name: _column([record.get(name) for record in records]) for name in names})


def _column(values: list[Any]) -> np.ndarray:
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, np.int64)
    if any(isinstance(v, str) for v in values):
        return np.array(["" if v is None else v for v in values], str)
    return np.array(values, float)  # None becomes NaN, within lists, too
