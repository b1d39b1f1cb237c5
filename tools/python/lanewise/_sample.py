"""From what a generator yields to the x and y of a sample: reading, checking, the batch axis."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from typing import Any, Final, NamedTuple

import numpy as np

from lanewise._protocol import MOST_RANK, Field, Form

_KEYS: Final = ("x", "y", "time", "weight", "start")
# What is sent for what is given. Python's own numbers are float64 and int64.
_SENT: Final = {
    "float16": "float32", "float32": "float32", "float64": "float64", "bool": "int64", "int8": "int64",
    "int16": "int64", "int32": "int64", "int64": "int64", "uint8": "int64", "uint16": "int64", "uint32": "int64",
}  # fmt: skip


class SampleError(Exception):
    """A sample that lanewise cannot take; the text is for the author of the generator."""


class Parts(NamedTuple):
    """What one sample of the generator holds."""

    x: Any
    y: Any
    time: int | None = None
    weight: float = 1.0
    start: bool = False


def parts_of(item: Any) -> Parts:
    """Takes (x, y), or a dict with x, y and, where it likes, time, weight and start."""
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return Parts(item[0], item[1])
    if not isinstance(item, dict):
        raise SampleError(f"a sample is (x, y), or a dict with x and y; this is {_kind(item)}")
    for key in item:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            raise SampleError(
                f"a sample has no {key!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(_KEYS)}")
            )
    if "x" not in item or "y" not in item:
        raise SampleError(f"the sample has no {'y' if 'x' in item else 'x'}, only {', '.join(item) or 'nothing'}")
    time, weight = item.get("time"), item.get("weight", 1.0)
    if isinstance(time, np.datetime64):
        time = int(time.astype("datetime64[ns]").astype(np.int64))
    if time is not None and (isinstance(time, bool) or not isinstance(time, (int, np.integer))):
        raise SampleError(f"time is a whole number of nanoseconds or a numpy.datetime64, not {time!r}")
    if time is not None and not -(2**63) <= time < 2**63:
        raise SampleError(f"time {time} does not fit into 64 bits of nanoseconds")
    try:
        weight = float(weight)
    except (TypeError, ValueError):
        raise SampleError(f"weight is a number from 0 to 1, not {weight!r}") from None
    if not 0 <= weight <= 1:
        raise SampleError(f"weight is a number from 0 to 1, not {weight}")
    return Parts(item["x"], item["y"], None if time is None else int(time), weight, bool(item.get("start", False)))


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as e:
        raise SampleError(f"{name} cannot be read as numbers: {e}") from None
    if array.dtype.name not in _SENT and array.dtype.newbyteorder("=").name not in _SENT:
        raise SampleError(f"{name} is {_kind(value)} of {array.dtype}; it can be floats or integers of at most 64 bits")
    return array


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


@dataclasses.dataclass(frozen=True)
class Given:
    """How the generator gives x or y: what its first sample was like, which all others have to be, too."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    plain: bool  # Python's own numbers, in lists

    @staticmethod
    def first(name: str, value: Any) -> Given:
        array = _array(name, value)
        return Given(name, array.dtype, array.shape, not hasattr(value, "dtype"))

    def put(self, value: Any, slot: np.ndarray, nan: bool) -> None:
        """Writes a value into a slot, which has this shape. Throws SampleError when it is unlike the first."""
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            value = self._alike(value)
        if value.shape != self.shape:
            raise SampleError(
                f"{self.name} was of shape {_shape(self.shape)} and is now {_shape(value.shape)}; "
                "all samples of a stream have one shape"
            )
        slot[...] = value
        if not nan and slot.dtype.kind == "f" and np.isnan(slot).any():
            raise SampleError(f"{self.name} holds NaN, and serve(…, nan=…) does not allow it there")

    def _alike(self, value: Any) -> np.ndarray:
        array = _array(self.name, value)
        if array.dtype == self.dtype:
            return array
        plain = not hasattr(value, "dtype")
        if (plain or self.plain) and (array.dtype.kind in "iub" or self.dtype.kind == "f"):
            return array  # numbers that Python or a list does not give a width
        raise SampleError(
            f"{self.name} was {self.dtype} and is now {array.dtype}; give one dtype always, as by "
            f'numpy.asarray({self.name}, "float32")'
        )


def form_of(parts: Parts, drop_batch_axis: bool) -> tuple[Form, Given, Given]:
    """The form that a first sample makes. A batch axis of 1 is dropped, and said on standard error."""
    x, y = Given.first("x", parts.x), Given.first("y", parts.y)
    x_shape, y_shape = x.shape, y.shape
    batched = drop_batch_axis and len(x_shape) >= 2 and x_shape[0] == 1 and len(y_shape) >= 1 and y_shape[0] == 1
    if batched:
        x_shape, y_shape = x_shape[1:], y_shape[1:]
    x_shape, y_shape = x_shape or (1,), y_shape or (1,)
    for given, shape in ((x, x_shape), (y, y_shape)):
        if 0 in shape:
            raise SampleError(f"{given.name} of shape {_shape(given.shape)} holds no value")
        if len(shape) > MOST_RANK:
            raise SampleError(f"{given.name} of shape {_shape(given.shape)} has more than {MOST_RANK} axes")
    if batched:
        print(
            f"lanewise: the samples have a batch axis of 1: x {_shape(x.shape)}, y {_shape(y.shape)}; it is dropped: x "
            f"{_shape(x_shape)}, y {_shape(y_shape)}. If that axis is time, say serve(…, drop_batch_axis=False)",
            file=sys.stderr,
            flush=True,
        )
    names = [_SENT[g.dtype.newbyteorder("=").name] for g in (x, y)]
    return Form(Field(names[0], x_shape), Field(names[1], y_shape)), x, y
