"""serve(): the generator's side of the protocol (docs/generator-protocol.md)."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
import traceback
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from lanewise import _protocol as p
from lanewise._sample import Given, Parts, SampleError, form_of, parts_of
from lanewise._version import __version__

_BYE_S: Final = 1.0  # so long may the generator's own code run on after bye
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def serve(sim: Any, *, name: str | None = None, nan: str = "xy", drop_batch_axis: bool = True) -> None:
    """Gives lanewise the samples of one stream, until lanewise has had enough; then it returns.

    `sim` is one of

    * a function `sim(seed, stream)` that yields samples: the plainest, and enough for most;
    * a class, or a function that makes an object: `sim(seed, stream)` can be iterated over; with methods `state()` and
      `restore(state)` a resumed run goes on exactly where it was;
    * an object that can be iterated over, with `state()` and `restore(state)`, and `reset(seed, stream)`, where it has
      them.

    A sample is `(x, y)`, or a dict with `x`, `y` and, where wanted, `time` (int nanoseconds or numpy.datetime64),
    `weight` (0 to 1) and `start` (true: a new sequence begins here). x and y are numbers, lists, arrays or tensors of
    floats or integers, of one dtype and shape throughout, without a batch axis; if the first have one of length 1, it
    is dropped from all, unless `drop_batch_axis` is false. All randomness has to come from `seed`, an int of 64 bits.

    `state()` is bytes, or what JSON can hold; `restore` gets it back, on an object that has just been made, and what is
    yielded afterwards has to be what would have come after state().

    `name` is for messages; without it, it is the program's file. `nan`: where NaN (a missing value) may stand: "xy",
    "x", "y" or "".
    """
    if not set(nan) <= set("xy"):
        raise ValueError(f'nan is "xy", "x", "y" or "", not {nan!r}')
    file = os.path.basename(sys.argv[0]) if sys.argv else ""
    control = _control(file or "FILE")
    stream = _Stream(sim)
    threading.Thread(target=_leave_with_parent, args=(control.socket.fileno(),), daemon=True).start()
    session = _Session(control, stream, name or file or "generator", nan, drop_batch_axis)
    try:
        session.run()
    except p.Closed:
        pass
    except p.ProtocolError as e:
        sys.exit(f"lanewise broke the generator protocol: {e}")
    except SampleError as e:
        session.fail(f"sample {session.sequence}: {e}" if session.started else str(e))
    except Exception as e:
        session.fail(_text_of(e))


def _control(file: str) -> p.Control:
    try:
        number = int(os.environ.pop("LANEWISE_CONTROL"))
        os.set_inheritable(number, False)
        end = socket.socket(fileno=number)
        if end.family != socket.AF_UNIX or end.type != socket.SOCK_SEQPACKET:
            raise OSError
    except (KeyError, ValueError, OSError):
        sys.exit(
            "this program gives samples to lanewise and was started without it; run it with lanewise, or try: "
            f"python -m lanewise check {file}"
        )
    return p.Control(end, "child")


def _leave_with_parent(descriptor: int) -> None:
    """Ends the process when lanewise is gone and the generator's code does not come back."""
    poll = select.poll()
    poll.register(descriptor, 0)  # the end alone
    poll.poll()
    time.sleep(_BYE_S)
    os._exit(0)


def _text_of(error: BaseException) -> str:
    """The traceback, from the generator's own code on."""
    here, trace = os.path.dirname(__file__), error.__traceback__
    while trace and trace.tb_next and os.path.dirname(trace.tb_frame.f_code.co_filename) == here:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


class _Stream:
    """A generator as serve() takes it, behind one interface: begin a run, give samples, save, restore."""

    def __init__(self, sim: Any) -> None:
        self._make: Callable[[int, str], Any] | None = None
        self._object: Any = None
        if isinstance(sim, type) or not (hasattr(sim, "__iter__") or hasattr(sim, "__next__")):
            if not callable(sim):
                raise TypeError(
                    f"serve() takes a function, a class or something to iterate over, not {type(sim).__name__}"
                )
            self._make = sim
        else:
            self._object = sim
        self.can_reset = self._make is not None or hasattr(sim, "reset")
        self._samples: Iterator[Any] | None = None

    @property
    def can_save(self) -> bool:
        """Known once a run has begun."""
        return hasattr(self._object, "state") and hasattr(self._object, "restore")

    def begin(self, seed: int, stream: str, *restored: Any) -> None:
        """Begins a run; from a state, where one is given."""
        self.close()
        if self._make:
            self._object = self._make(seed, stream)
        elif not restored and self.can_reset:
            self._object.reset(seed, stream)
        if restored:
            self._object.restore(restored[0])
        if not hasattr(self._object, "__iter__") and not hasattr(self._object, "__next__"):
            raise TypeError(
                f"{self._make!r} gave {self._object!r}, which has no samples to iterate over; does it lack a yield?"
            )

    def next(self) -> Parts | None:
        """The next sample; None at the end."""
        if self._samples is None:
            self._samples = iter(self._object) if hasattr(self._object, "__iter__") else self._object
        try:
            item = next(self._samples)
        except StopIteration:
            return None
        return parts_of(item)

    def state(self) -> bytes:
        return _encode(self._object.state())

    def close(self) -> None:
        """Ends a generator function that is in the middle, so that its `finally` runs."""
        samples, self._samples = self._samples, None
        if isinstance(samples, types.GeneratorType):
            samples.close()


def _encode(state: Any) -> bytes:
    if isinstance(state, (bytes, bytearray, memoryview)):
        return b"B" + bytes(state)

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(
            f"state() holds {type(value).__name__}; give bytes, or what JSON can hold (of an array, .tolist())"
        )

    return b"J" + json.dumps(state, default=plain).encode()


def _decode(state: bytes) -> Any:
    if state[:1] == b"J":
        return json.loads(state[1:])
    if state[:1] == b"B":
        return state[1:]
    raise p.ProtocolError("state", "the state is not one that this program has given")


class _Session:
    """The conversation with the parent, from hello to bye."""

    def __init__(self, control: p.Control, stream: _Stream, name: str, nan: str, drop_batch_axis: bool) -> None:
        self.control = control
        self.stream = stream
        self.name = name
        self.nan = ("x" in nan, "y" in nan)
        self.drop_batch_axis = drop_batch_axis
        self.started = False  # there was a sample
        self.sequence = 0  # of the next frame
        self.run_number = 0
        self.credit = 0
        self.ended = False
        # The first sample is made before hello, which tells its shapes. `before` is the state before it.
        self.first: Parts | None = None
        self.before = b""

    def run(self) -> None:
        welcome = self._greet()
        self._map(welcome)
        while self._converse():
            parts, self.first = self.first or self.stream.next(), None
            if parts is None:
                self.ended = True
                self.control.send(p.END, self.sequence)
                continue
            self._write(parts)
            self.control.send(p.SAMPLES, 1)
        self.stream.close()

    def fail(self, text: str) -> None:
        encoded = text.encode(errors="replace")
        most = p.MOST_FROM_CHILD - p.MESSAGE_HEADER.size
        if len(encoded) > most:  # the end says more than the beginning
            encoded = b"... " + encoded[-(most - 8) :].decode(errors="ignore").encode()
        try:
            self.control.send_body(p.ERROR, encoded)
        except p.Closed:
            print(text, file=sys.stderr)
        sys.exit(1)

    def _greet(self) -> p.Welcome:
        hint_seed, hint_stream = os.environ.pop("LANEWISE_SEED", "0"), os.environ.pop("LANEWISE_STREAM", "")
        seed = int(hint_seed) if hint_seed.isdecimal() else 0
        self._begin(seed, hint_stream)
        if self.stream.can_save:
            self.before = self.stream.state()
        self.first = self.stream.next()
        if self.first is None:
            raise SampleError("the generator has ended without any sample")
        self.form, self.x, self.y = form_of(self.first, self.drop_batch_axis)
        hello = p.Hello(
            self.name, self.form, self.stream.can_save, self.stream.can_reset, f"lanewise-python {__version__}"
        )
        self.control.send_body(p.HELLO, hello.encode())
        kind, body, self.memory = self.control.receive_with_descriptor()
        if kind == p.BYE:
            raise p.Closed
        if kind != p.WELCOME:
            raise p.ProtocolError("order", f"{p.NAMES[kind]} comes before welcome")
        welcome = p.Welcome.decode(body, self.form)
        self.started = True
        self.run_number, self.stream_id = welcome.run, welcome.stream
        if (welcome.seed, welcome.stream) != (seed, hint_stream):
            self._begin(welcome.seed, welcome.stream)
            self.first = None
            if self.stream.can_save:
                self.before = self.stream.state()
        return welcome

    def _begin(self, seed: int, stream: str, *restored: Any) -> None:
        self.first, self.before, self.ended, self.sequence = None, b"", False, 0
        self.stream.begin(seed, stream, *restored)

    def _map(self, welcome: p.Welcome) -> None:
        if self.memory is None:
            raise p.ProtocolError("descriptor", "welcome came without memory")
        try:
            size = os.fstat(self.memory).st_size
            if size != welcome.memory_size:
                raise p.ProtocolError("descriptor", f"the memory has {size} bytes, not {welcome.memory_size}")
            try:
                sealed = fcntl.fcntl(self.memory, fcntl.F_GET_SEALS) & _SEALS == _SEALS
            except OSError:
                sealed = False
            if not sealed:
                raise p.ProtocolError("descriptor", "the memory is not sealed")
            memory = mmap.mmap(self.memory, size)
        finally:
            os.close(self.memory)
        whole = memoryview(memory)
        self.slots = self.credit = welcome.slots
        self.slot: list[tuple[memoryview, memoryview, memoryview, np.ndarray, np.ndarray]] = []
        for i in range(welcome.slots):
            at = i * welcome.slot_size
            header, payload = (
                whole[at : at + p.FRAME_HEADER.size],
                whole[at + p.FRAME_HEADER.size :][: self.form.payload],
            )
            self.slot.append(
                (
                    header,
                    header[: p.FRAME_CRC_AT],
                    payload,
                    self._values(payload, 0, self.form.x, self.x),
                    self._values(payload, self.form.y_at, self.form.y, self.y),
                )
            )
        self.state_area = whole[welcome.slots * welcome.slot_size :]

    @staticmethod
    def _values(payload: memoryview, at: int, field: p.Field, given: Given) -> np.ndarray:
        """A field's place in a slot, shaped like what the generator gives."""
        return np.frombuffer(payload[at : at + field.size], np.dtype(field.dtype).newbyteorder("<")).reshape(
            given.shape
        )

    def _write(self, parts: Parts) -> None:
        header, checked, payload, x, y = self.slot[self.sequence % self.slots]
        self.x.put(parts.x, x, self.nan[0])
        self.y.put(parts.y, y, self.nan[1])
        flags = p.START if parts.start or self.sequence == 0 else 0
        if parts.time is not None:
            flags |= p.TIMED
        p.FRAME_HEADER.pack_into(
            header, 0, p.FRAME_MAGIC, flags, self.sequence, self.run_number, parts.time or 0, parts.weight,
            self.form.payload, self.form.digest, 0,
        )  # fmt: skip
        struct.pack_into("<I", header, p.FRAME_CRC_AT, zlib.crc32(payload, zlib.crc32(checked)))
        self.sequence += 1
        self.credit -= 1

    def _converse(self) -> bool:
        """Answers what lanewise has said, and waits until it wants a sample. False: it says bye."""
        while True:
            message = self.control.receive(wait=self.ended or self.credit == 0)
            if message is None:
                return True
            kind, body = message
            if kind == p.BYE:
                p.values_of(kind, body)
                return False
            if kind == p.WELCOME:
                raise p.ProtocolError("order", "a second welcome")
            values = p.values_of(kind, body)
            if kind == p.CREDIT:
                self._take_credit(*values)
            elif kind == p.RESET:
                self._reset(*values)
            elif kind == p.SAVE:
                self._save()
            elif kind == p.RESTORE:
                self._restore(*values)

    def _take_credit(self, count: int) -> None:
        if count < 1 or self.credit + count > self.slots:
            raise p.ProtocolError("credit", f"{count} more than {self.credit} of {self.slots} slots")
        self.credit += count

    def _reset(self, seed: int, run: int, mode: int) -> None:
        if not self.stream.can_reset:
            raise p.ProtocolError("order", "reset, and hello said that there is none")
        self._begin(seed, self.stream_id)
        self.run_number, self.credit = run, self.slots
        self.control.send(p.RESET_DONE, run)

    def _save(self) -> None:
        self._require_state("save")
        state = self.before if self.first is not None else self.stream.state()
        if len(state) > len(self.state_area):
            raise SampleError(f"state() has {len(state)} bytes, and lanewise takes at most {len(self.state_area)}")
        self.state_area[: len(state)] = state
        self.control.send(p.STATE, self.sequence, len(state), zlib.crc32(state))

    def _restore(self, seed: int, run: int, mode: int, sequence: int, size: int, crc: int) -> None:
        self._require_state("restore")
        if size > len(self.state_area):
            raise p.ProtocolError("state", f"{size} bytes in an area of {len(self.state_area)}")
        state = bytes(self.state_area[:size])
        if zlib.crc32(state) != crc:
            raise p.ProtocolError("crc", "of the state to restore")
        self._begin(seed, self.stream_id, _decode(state))
        self.run_number, self.credit, self.sequence = run, self.slots, sequence
        self.control.send(p.RESTORE_DONE, sequence)

    def _require_state(self, what: str) -> None:
        if not self.stream.can_save:
            raise p.ProtocolError("order", f"{what}, and hello said that there is no state")
