"""The parent's side of the generator protocol, in Python: for `check` and the tests.

Everything that the child sends is checked; what is wrong becomes a ProtocolError with the document's word for it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import mmap
import os
import select
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final

import numpy as np

from lanewise import _protocol as p

MIB: Final = 1 << 20
_LOG_BYTES: Final = 65536  # kept of each of the child's outputs


class ChildError(Exception):
    """The generator's own code has failed; the text is what it says about it."""


class ChildExit(Exception):
    """The child is gone before its time. `status` is negative for a signal, None where it only closed the socket."""

    def __init__(self, status: int | None, log: str) -> None:
        if status is None:
            how = "has closed its control socket"
        elif status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        else:
            how = f"has left with status {status}"
        super().__init__(f"the generator {how}" + (f"; it said last:\n{log}" if log else ""))
        self.status = status


@dataclasses.dataclass(frozen=True)
class Sample:
    x: np.ndarray
    y: np.ndarray
    sequence: int
    run: int
    start: bool
    last: bool
    time: int | None
    weight: float

    def same(self, other: Sample) -> bool:
        """Bit for bit, NaN included."""
        return (
            self.x.tobytes() == other.x.tobytes()
            and self.y.tobytes() == other.y.tobytes()
            and (self.start, self.time, self.weight) == (other.start, other.time, other.weight)
        )


class Child:
    """One generator process. Made, it is starting; `handshake()` waits until it gives samples."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        seed: int = 0,
        stream: str = "gen0",
        run: int = 0,
        mode: str = "train",
        slots: int = 16,
        most_sample: int = 64 * MIB,
        most_state: int = 64 * MIB,
        hint: bool = True,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.seed, self.stream, self.run, self.mode = seed, stream, run, mode
        self.slots, self._most_sample, self._most_state = slots, most_sample, most_state
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = dict(os.environ if env is None else env) | {"LANEWISE_CONTROL": str(theirs.fileno())}
        if hint:
            environment |= {"LANEWISE_SEED": str(seed), "LANEWISE_STREAM": stream}
        with theirs:
            try:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
                    env=environment, pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        self.control = p.Control(ours, "parent")
        self._pidfd = os.pidfd_open(self.process.pid)
        assert self.process.stdout and self.process.stderr
        self._logs = [_Log(self.process.stdout.fileno()), _Log(self.process.stderr.fileno())]
        self._memory: mmap.mmap | None = None
        self.hello: p.Hello
        self._ended = False
        self._gone = False  # the socket has nothing more to give
        self._asked: int | None = None  # the request that is not answered yet
        self._answer: tuple[int, ...] | None = None
        self._begin_run(0)

    # ----------------------------------------------------------------------------------------------------- what it does

    def handshake(self, timeout: float = 60) -> p.Hello:
        deadline = time.monotonic() + timeout
        while (message := self._next_message(deadline)) is not None:
            kind, body = message
            if kind == p.ERROR:
                self._fail(body)
            if kind != p.HELLO:
                raise p.ProtocolError("order", f"{p.NAMES[kind]} comes before hello")
            self.hello = p.Hello.decode(body, self._most_sample)
            self._welcome()
            return self.hello
        raise TimeoutError(f"the generator has said nothing in {timeout:g} s")

    def sample(self, timeout: float = 60) -> Sample | None:
        """The next sample, or None at the end of the stream."""
        deadline = time.monotonic() + timeout
        while not self._ready:
            if self._ended:
                return None
            message = self._next_message(deadline)
            if message is None:
                raise TimeoutError(f"no sample in {timeout:g} s")
            self._take(*message)
        return self._read()

    def reset(self, seed: int, run: int, mode: str = "train", timeout: float = 60) -> None:
        self._ask(p.RESET, seed, run, p.MODES.index(mode))
        (told,) = self._await(p.RESET_DONE, timeout)
        if told != run:
            raise p.ProtocolError("order", f"reset_done is for run {told}, and {run} was asked")
        self.seed, self.run, self.mode = seed, run, mode
        self._begin_run(0)

    def save(self, timeout: float = 60) -> tuple[int, bytes]:
        """The sequence of the next frame that the child will make, and its state before that."""
        self._ask(p.SAVE)
        sequence, size, crc = self._await(p.STATE, timeout)
        if size > len(self._state_area):
            raise p.ProtocolError("state", f"{size} bytes in an area of {len(self._state_area)}")
        state = bytes(self._state_area[:size])
        if zlib.crc32(state) != crc:
            raise p.ProtocolError("crc", "of a state")
        if sequence != self._announced:
            raise p.ProtocolError(
                "order", f"state is of sequence {sequence}, and {self._announced} frames were told of"
            )
        return sequence, state

    def restore(self, sequence: int, state: bytes, timeout: float = 60) -> None:
        """Under the seed, run and mode that the child has now."""
        if len(state) > len(self._state_area):
            raise ValueError(f"the state has {len(state)} bytes, and there is room for {len(self._state_area)}")
        self._state_area[: len(state)] = state
        self._ask(p.RESTORE, self.seed, self.run, p.MODES.index(self.mode), sequence, len(state), zlib.crc32(state))
        (told,) = self._await(p.RESTORE_DONE, timeout)
        if told != sequence:
            raise p.ProtocolError("order", f"restore_done is for sequence {told}, and {sequence} was asked")
        self._begin_run(sequence)

    def bye(self, timeout: float = 2) -> int | None:
        """Asks the child to leave: its exit status, or None if it did not leave in time. It is gone either way."""
        with contextlib.suppress(p.Closed):
            self.control.send(p.BYE)
        self.control.socket.close()
        left = self._dead(timeout)
        self.close()
        return self.process.returncode if left else None

    def close(self) -> None:
        """Ends the child and what it has started, whatever they are doing."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(
                    self.process.pid, signal.SIGKILL
                )  # its leader is not yet waited for, so the number is its own
            self.process.wait()
            os.close(self._pidfd)
            self._pidfd = -1
            for log in self._logs:
                log.stop()
            assert self.process.stdout and self.process.stderr
            self.process.stdout.close()
            self.process.stderr.close()
        self.control.socket.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def output(self) -> bytes:
        """The end of the child's standard output."""
        return self._logs[0].end()

    def errors(self) -> bytes:
        """The end of its standard error."""
        return self._logs[1].end()

    def pump(self) -> int:
        """Takes what the child has sent, without waiting: how many samples lie ready."""
        message = self._receive()
        while message is not None:
            self._take(*message)
            try:
                message = self.control.receive(wait=False)
            except p.Closed:
                break  # for the next call to say
        return self._ready

    @property
    def ended(self) -> bool:
        return self._ended and not self._ready

    # ------------------------------------------------------------------------------------------------------- the socket

    def _receive(self) -> tuple[int, bytes] | None:
        """What is there now. Throws ChildExit when nothing can follow."""
        try:
            message = self.control.receive(wait=False)
            if message is None and self._dead():
                message = self.control.receive(wait=False)  # what it sent before it died
                if message is None:
                    self._exit()
        except p.Closed:
            self._exit()
        return message

    def _dead(self, wait: float = 0) -> bool:
        return bool(select.select([self._pidfd], [], [], wait)[0])

    def _next_message(self, deadline: float) -> tuple[int, bytes] | None:
        """None: there is none until the deadline."""
        while (message := self._receive()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.control.fileno(), self._pidfd], [], [], left)[0]:
                return None
        return message

    def _exit(self) -> None:
        dead = self._dead(1)  # the socket closes a moment before the process is gone
        status = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG) if dead else None
        for log in self._logs:
            log.settle()
        end = self.errors().decode(errors="replace").splitlines()[-20:]
        code = None if status is None else status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        raise ChildExit(code, "\n".join(line[-1000:] for line in end))

    def _fail(self, body: bytes) -> None:
        try:
            raise ChildError(body.decode())
        except UnicodeDecodeError:
            raise p.ProtocolError("size", "the text of an error is not UTF-8") from None

    def _take(self, kind: int, body: bytes) -> None:
        if kind == p.ERROR:
            self._fail(body)
        if kind == p.HELLO:
            raise p.ProtocolError("order", "a second hello")
        void = self._asked in (p.RESET, p.RESTORE)
        values = p.values_of(kind, body)
        if kind == p.SAMPLES:
            if self._ended:
                raise p.ProtocolError("order", "samples come after the end")
            if not 1 <= values[0] <= self.credit:
                raise p.ProtocolError("credit", f"{values[0]} samples for a credit of {self.credit}")
            self.credit -= values[0]
            self._announced += values[0]
            if not void:
                self._ready += values[0]
        elif kind == p.END:
            if self._ended or values[0] != self._announced:
                raise p.ProtocolError(
                    "order", f"the end is told after {values[0]} samples, and {self._announced} were told of"
                )
            self._ended = True
        elif {p.RESET: p.RESET_DONE, p.SAVE: p.STATE, p.RESTORE: p.RESTORE_DONE}.get(self._asked or 0) == kind:
            self._answer = values
        else:
            raise p.ProtocolError("order", f"{p.NAMES[kind]} answers nothing")

    def _ask(self, kind: int, *values: int) -> None:
        if not (self.hello.reset if kind == p.RESET else self.hello.state):
            raise ValueError(f"the generator takes no {p.NAMES[kind]}")
        self._asked, self._answer = kind, None
        self._send(kind, *values)

    def _await(self, kind: int, timeout: float) -> tuple[int, ...]:
        deadline = time.monotonic() + timeout
        while self._answer is None:
            message = self._next_message(deadline)
            if message is None:
                raise TimeoutError(f"no {p.NAMES[kind]} in {timeout:g} s")
            self._take(*message)
        self._asked = None
        return self._answer

    def _send(self, kind: int, *values: int) -> None:
        # A child that is gone is noticed where its messages are read: there may be some left.
        with contextlib.suppress(p.Closed):
            self.control.send(kind, *values)

    # ------------------------------------------------------------------------------------------------------- the memory

    def _welcome(self) -> None:
        form = self.hello.form
        state_size = self._most_state if self.hello.state else 0
        welcome = p.Welcome(self.seed, self.run, self.stream, self.mode, self.slots, form.slot_size, state_size)
        memory = os.memfd_create("lanewise", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(memory, welcome.memory_size)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._memory = mmap.mmap(memory, welcome.memory_size)
            with contextlib.suppress(p.Closed):
                self.control.send_body(p.WELCOME, welcome.encode(), memory)
        finally:
            os.close(memory)
        whole = memoryview(self._memory)
        self._slots = [whole[i * form.slot_size :][: form.slot_size] for i in range(self.slots)]
        self._state_area = whole[self.slots * form.slot_size :]
        self._digest = form.digest

    def _begin_run(self, sequence: int) -> None:
        self.credit = self.slots  # that the child has
        self._owed = 0  # slots read and not given back yet
        self._ready = 0  # frames told of and not read yet
        self._next = self._announced = sequence
        self._ended = self._over = False

    def _read(self) -> Sample:
        """Copies the next frame out of its slot, checks the copy, and gives the slot back."""
        form, slot = self.hello.form, self._slots[self._next % self.slots]
        header = bytes(slot[: p.FRAME_HEADER.size])
        magic, flags, sequence, run, at, weight, length, digest, crc = p.FRAME_HEADER.unpack(header)
        here = f"frame {self._next}"
        if magic != p.FRAME_MAGIC:
            raise p.ProtocolError("magic", f"{here} begins with {magic!r}, not {p.FRAME_MAGIC!r}")
        if length != form.payload:
            raise p.ProtocolError("length", f"{here} says {length} bytes, and {form} has {form.payload}")
        payload = bytearray(slot[p.FRAME_HEADER.size :][: form.payload])
        if zlib.crc32(payload, zlib.crc32(header[: p.FRAME_CRC_AT])) != crc:
            raise p.ProtocolError("crc", f"of {here}")
        if sequence != self._next or self._over:
            raise p.ProtocolError(
                "sequence", f"{here} comes after the last one" if self._over else f"{here} says that it is {sequence}"
            )
        if run != self.run:
            raise p.ProtocolError("run", f"{here} is of run {run}, and this is run {self.run}")
        if digest != self._digest:
            raise p.ProtocolError("form", f"{here} is not {form}, as hello promised")
        if flags & ~(p.START | p.LAST | p.TIMED):
            raise p.ProtocolError("flags", f"{here} has unknown flags {flags:#x}")
        if not 0 <= weight <= 1:
            raise p.ProtocolError("weight", f"{here} has weight {weight}, not one from 0 to 1")
        x = np.frombuffer(payload, form.x.dtype, count=form.x.size // p.ITEM_SIZES[form.x.dtype]).reshape(form.x.shape)
        y = np.frombuffer(payload, form.y.dtype, offset=form.y_at).reshape(form.y.shape)
        self._next += 1
        self._ready -= 1
        self._over = bool(flags & p.LAST)
        self._owed += 1
        if 2 * self._owed >= self.slots:
            self.credit += self._owed
            self._send(p.CREDIT, self._owed)
            self._owed = 0
        return Sample(x, y, sequence, run, bool(flags & p.START), self._over, at if flags & p.TIMED else None, weight)


class _Log:
    """Reads one of the child's outputs as long as there is any, and keeps the end of it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._kept: collections.deque[bytes] = collections.deque()
        self._size = 0
        self._lock = threading.Lock()
        self._stop, self._stopper = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            ready = select.select([self._descriptor, self._stop], [], [])[0]
            data = os.read(self._descriptor, 65536) if self._descriptor in ready else b""
            if not data:
                return
            with self._lock:
                self._kept.append(data)
                self._size += len(data)
                while self._size - len(self._kept[0]) >= _LOG_BYTES:
                    self._size -= len(self._kept.popleft())

    def settle(self) -> None:
        """Waits a little for the rest; a process that the child has forked may keep the output open."""
        self._thread.join(0.5)

    def end(self) -> bytes:
        with self._lock:
            return b"".join(self._kept)[-_LOG_BYTES:]

    def stop(self) -> None:
        os.close(self._stopper)
        self._thread.join()
        os.close(self._descriptor)
        os.close(self._stop)


def take(child: Child, count: int, timeout: float = 60) -> list[Sample]:
    """Up to `count` samples; fewer where the stream ends before."""
    samples: list[Sample] = []
    while len(samples) < count and (sample := child.sample(timeout)) is not None:
        samples.append(sample)
    return samples
