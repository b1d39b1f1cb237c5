"""What both sides of the generator protocol share: messages, frames, the form of samples.

docs/generator-protocol.md is the protocol."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import select
import socket
import struct
import zlib
from typing import Any, Final

VERSION: Final = 1
MESSAGE_MAGIC: Final = b"LWMS"
FRAME_MAGIC: Final = b"LWFR"
MESSAGE_HEADER: Final = struct.Struct("<4sHHII")  # magic, version, type, size, 0
FRAME_HEADER: Final = struct.Struct("<4sIQQqdQI8xI")  # magic, flags, sequence, run, time, weight, payload, form, CRC
FRAME_CRC_AT: Final = 60
MOST_FROM_CHILD: Final = 65536  # bytes of a message
MOST_FROM_PARENT: Final = 4096
MOST_SLOTS: Final = 4096
MOST_RANK: Final = 8

HELLO, WELCOME, CREDIT, SAMPLES, RESET, RESET_DONE, SAVE, STATE, RESTORE, RESTORE_DONE, END, ERROR, BYE = range(1, 14)
NAMES: Final = (
    "", "hello", "welcome", "credit", "samples", "reset", "reset_done", "save", "state", "restore", "restore_done",
    "end", "error", "bye",
)  # fmt: skip
FROM_CHILD: Final = frozenset({HELLO, SAMPLES, RESET_DONE, STATE, RESTORE_DONE, END, ERROR})
FROM_PARENT: Final = frozenset({WELCOME, CREDIT, RESET, SAVE, RESTORE, BYE})
BODIES: Final = {
    CREDIT: struct.Struct("<I4x"),
    SAMPLES: struct.Struct("<I4x"),
    RESET: struct.Struct("<QQI4x"),
    RESET_DONE: struct.Struct("<Q"),
    SAVE: struct.Struct(""),
    STATE: struct.Struct("<QQI4x"),
    RESTORE: struct.Struct("<QQI4xQQI4x"),
    RESTORE_DONE: struct.Struct("<Q"),
    END: struct.Struct("<Q"),
    BYE: struct.Struct(""),
}

START, LAST, TIMED = 1, 2, 4
MODES: Final = ("train", "evaluate")
_WHOLE_SIZE: Final = int(socket.MSG_TRUNC)  # receiving returns a message's size, also where it was cut
_NO_SIGNAL: Final = int(socket.MSG_NOSIGNAL)
ITEM_SIZES: Final = {"float32": 4, "float64": 8, "int64": 8}


class ProtocolError(Exception):
    """The other side broke the protocol. `kind` is the document's word for how."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Closed(Exception):
    """The other side has closed the socket, or is gone."""


@dataclasses.dataclass(frozen=True)
class Field:
    """Dtype and shape of x or y."""

    dtype: str
    shape: tuple[int, ...]

    @functools.cached_property
    def size(self) -> int:
        return ITEM_SIZES[self.dtype] * math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape)}


@dataclasses.dataclass(frozen=True)
class Form:
    """What every sample of a stream looks like, and so the payload of its frames."""

    x: Field
    y: Field

    @functools.cached_property
    def y_at(self) -> int:
        return (self.x.size + 7) // 8 * 8

    @functools.cached_property
    def payload(self) -> int:
        return self.y_at + self.y.size

    @functools.cached_property
    def slot_size(self) -> int:
        """The smallest slot that takes a frame."""
        return (FRAME_HEADER.size + self.payload + 63) // 64 * 64

    @functools.cached_property
    def digest(self) -> int:
        return zlib.crc32(str(self).encode())

    def __str__(self) -> str:
        return f"{self.x} {self.y}"


@dataclasses.dataclass(frozen=True)
class Hello:
    name: str
    form: Form
    state: bool
    reset: bool
    helper: str = ""

    def encode(self) -> bytes:
        fields = {
            "name": self.name,
            "x": self.form.x.json(),
            "y": self.form.y.json(),
            "state": self.state,
            "reset": self.reset,
        }
        return json.dumps(fields | {"helper": self.helper}).encode()

    @staticmethod
    def decode(body: bytes, most_bytes: int) -> Hello:
        """Throws ProtocolError where it is not a hello, or one sample would have more than `most_bytes`."""
        fields = _object("hello", body)
        name = _take("hello", fields, "name", str)
        form = Form(_field(fields, "x"), _field(fields, "y"))
        if form.payload > most_bytes:
            raise ProtocolError(
                "shape", f"a sample {form} has {form.payload} bytes, and at most {most_bytes} are allowed"
            )
        helper = _take("hello", {"helper": ""} | fields, "helper", str)
        return Hello(name, form, _take("hello", fields, "state", bool), _take("hello", fields, "reset", bool), helper)


@dataclasses.dataclass(frozen=True)
class Welcome:
    seed: int
    run: int
    stream: str
    mode: str
    slots: int
    slot_size: int
    state_size: int

    @property
    def memory_size(self) -> int:
        return self.slots * self.slot_size + self.state_size

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False).encode()

    @staticmethod
    def decode(body: bytes, form: Form) -> Welcome:
        fields = _object("welcome", body)
        if set(fields) != {f.name for f in dataclasses.fields(Welcome)}:
            raise ProtocolError("welcome", f"it has the keys {', '.join(fields)}")
        seed, run, slots, slot_size, state_size = (
            _take("welcome", fields, key, int) for key in ("seed", "run", "slots", "slot_size", "state_size")
        )
        stream, mode = _take("welcome", fields, "stream", str), _take("welcome", fields, "mode", str)
        if not (0 <= seed < 2**64 and 0 <= run < 2**64 and mode in MODES and 1 <= slots <= MOST_SLOTS):
            raise ProtocolError("welcome", f"seed {seed}, run {run}, mode {mode} or {slots} slots is out of range")
        if len(stream.encode()) > 512:
            raise ProtocolError("welcome", "the stream's id is longer than 512 bytes")
        if slot_size % 64 or slot_size < FRAME_HEADER.size + form.payload or state_size < 0:
            raise ProtocolError("welcome", f"slots of {slot_size} bytes do not hold a frame of {form}")
        welcome = Welcome(seed, run, stream, mode, slots, slot_size, state_size)
        if welcome.memory_size >= 2**63:
            raise ProtocolError("welcome", f"{slots} slots of {slot_size} bytes are more than any memory")
        return welcome


def _object(what: str, body: bytes) -> dict[str, Any]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ProtocolError("size", f"{what} is not UTF-8") from None
    depth = deepest = 0
    for c in text:  # also of brackets inside strings: a name with eight of them is nobody's
        depth += (c in "[{") - (c in "]}")
        deepest = max(deepest, depth)
    if deepest > 8:
        raise ProtocolError(what, "it is nested deeper than 8")
    try:
        fields = json.loads(text)
    except ValueError as e:
        raise ProtocolError(what, f"it is not JSON: {e}") from None
    if not isinstance(fields, dict):
        raise ProtocolError(what, "it is not a JSON object")
    return fields


def _take(what: str, fields: dict[str, Any], key: str, kind: type) -> Any:
    value = fields.get(key)
    if type(value) is not kind:
        raise ProtocolError(
            what, f"{key} is missing" if key not in fields else f"{key} is {value!r}, not {kind.__name__}"
        )
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ProtocolError(what, f"{key} holds half of a surrogate pair") from None
    return value


def _field(fields: dict[str, Any], key: str) -> Field:
    field = _take("hello", fields, key, dict)
    dtype, shape = _take("hello", field, "dtype", str), _take("hello", field, "shape", list)
    if dtype not in ITEM_SIZES:
        raise ProtocolError("dtype", f"{key} is {dtype!r}; it can be {', '.join(ITEM_SIZES)}")
    if any(type(n) is not int for n in shape):
        raise ProtocolError("hello", f"the shape of {key} is {shape}")
    if not 1 <= len(shape) <= MOST_RANK or any(n < 1 for n in shape):
        raise ProtocolError("shape", f"{key} is {shape}; it has 1 to {MOST_RANK} lengths of at least 1")
    return Field(dtype, tuple(shape))


class Control:
    """One end of the socket. `side` is whose end it is: "parent" or "child"."""

    def __init__(self, end: socket.socket, side: str) -> None:
        self.socket = end
        self.peer, self._types, most = (
            ("child", FROM_CHILD, MOST_FROM_CHILD) if side == "parent" else ("parent", FROM_PARENT, MOST_FROM_PARENT)
        )
        self._buffer = bytearray(most)
        self._view = memoryview(self._buffer)
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, kind: int, *values: int) -> None:
        self.send_body(kind, BODIES[kind].pack(*values))

    def send_body(self, kind: int, body: bytes, descriptor: int | None = None) -> None:
        message = MESSAGE_HEADER.pack(MESSAGE_MAGIC, VERSION, kind, MESSAGE_HEADER.size + len(body), 0) + body
        self.send_raw(message, descriptor)

    def send_raw(self, message: bytes, descriptor: int | None = None) -> None:
        """Waits while the socket is full. Throws Closed when nobody reads it any more."""
        try:
            if descriptor is None:
                self.socket.send(message, _NO_SIGNAL)
            else:
                socket.send_fds(self.socket, [message], [descriptor], _NO_SIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def receive(self, wait: bool) -> tuple[int, bytes] | None:
        """The next message: type and body, of the right size for the type. None: there is none now. A descriptor that
        came along is dropped."""
        if not wait and not self._poll.poll(0):
            return None
        try:
            size = self.socket.recv_into(self._buffer, 0, _WHOLE_SIZE)
        except ConnectionResetError:
            raise Closed from None
        return self._message(size)

    def receive_with_descriptor(self) -> tuple[int, bytes, int | None]:
        """Waits for a message that may carry a descriptor, which the caller has to close."""
        try:
            size, data, flags, _ = self.socket.recvmsg_into(
                [self._buffer], socket.CMSG_LEN(struct.calcsize("i")), socket.MSG_CMSG_CLOEXEC | socket.MSG_TRUNC
            )
        except ConnectionResetError:
            raise Closed from None
        descriptor = None
        for level, kind, content in data:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(content) >= 4:
                descriptor = struct.unpack_from("i", content)[0]
        return *self._message(size), descriptor

    def _message(self, size: int) -> tuple[int, bytes]:
        if size == 0:
            raise Closed
        if size < MESSAGE_HEADER.size:
            raise ProtocolError("size", f"a message of {size} bytes is shorter than its header")
        magic, version, kind, told, _ = MESSAGE_HEADER.unpack_from(self._buffer)
        if magic != MESSAGE_MAGIC:
            raise ProtocolError("magic", f"a message begins with {magic!r}, not {MESSAGE_MAGIC!r}")
        if version != VERSION:
            raise ProtocolError("version", f"the {self.peer} speaks version {version} and this is version {VERSION}")
        if size > len(self._buffer):
            raise ProtocolError("size", f"a message of {size} bytes is longer than the {len(self._buffer)} allowed")
        if size != told:
            raise ProtocolError("size", f"a message of {size} bytes says that it has {told}")
        if kind not in self._types:
            raise ProtocolError("type", f"the {self.peer} sends no message of type {kind}")
        return kind, bytes(self._view[MESSAGE_HEADER.size : size])


def values_of(kind: int, body: bytes) -> tuple[int, ...]:
    """The integers of a message's body."""
    layout = BODIES[kind]
    if len(body) != layout.size:
        raise ProtocolError("size", f"{NAMES[kind]} has a body of {len(body)} bytes, not {layout.size}")
    return layout.unpack(body)
