"""What `python -m lanewise check` tries, one after the other."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from lanewise import _protocol as p
from lanewise._parent import Child, ChildError, ChildExit, Sample, take

_MAX_STATE_BYTES = 16 << 20  # of a source, unless it says otherwise
_FAILURES = (p.ProtocolError, ChildError, ChildExit, TimeoutError)


def command_for(file: str, arguments: Sequence[str]) -> list[str]:
    """How to start FILE: Python files by this Python, others by themselves. Throws OSError when it cannot be."""
    if os.path.isdir(file):
        raise OSError(errno.EISDIR, "it is a directory; name the generator in it")
    if not os.path.isfile(file):
        raise OSError(errno.ENOENT, "there is no such file")
    if file.endswith(".py"):
        return [sys.executable, file, *arguments]
    if not os.access(file, os.X_OK):
        raise OSError(errno.EACCES, "it is neither a .py file nor executable")
    return [os.path.abspath(file), *arguments]


@dataclass(kw_only=True)
class Check:
    """What is tried with the generator that `command` starts."""

    command: Sequence[str]
    samples: int
    seed: int
    stream: str
    timeout: float  # seconds
    recorded: bool  # the samples need not depend on the seed
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self.good = True
        self.few = min(self.samples, 200)

    def all(self) -> bool:
        """Says a line for each thing tried. True: all is well."""
        with self._start() as child:
            alive = self._try("start", lambda: self._greet(child)) and self._try("samples", lambda: self._rate(child))
            if alive and self._try("reset", lambda: self._reset(child)):
                self._try("bye", lambda: self._bye(child))
        for name, text in (("stdout", child.output()), ("stderr", child.errors())):
            if text:
                self._note(name, "\n".join(line[:200] for line in text.decode(errors="replace").splitlines()[-5:]))
        if not alive:
            return self._verdict()
        self._try("seed", self._seeds)
        if self.hello.state:
            self._try("state", self._state)
        else:
            self._note(
                "state", "it cannot be saved; a resumed run makes the samples again from the first, and drops them"
            )
        return self._verdict()

    def _start(self, seed: int | None = None) -> Child:
        return Child(self.command, seed=self.seed if seed is None else seed, stream=self.stream)

    def _verdict(self) -> bool:
        self.say("this generator is ready for lanewise" if self.good else "this generator is not ready for lanewise")
        return self.good

    def _try(self, what: str, attempt: Callable[[], str | None]) -> bool:
        """`attempt` gives what to say about its success, or throws. False: the child can be asked nothing more."""
        try:
            self._line("ok", what, attempt() or "")
        except _FAILURES as e:
            self._line("BAD", what, str(e))
            self.good = False
            return False
        except _Bad as e:
            self._line("BAD", what, str(e))
            self.good = False
        return True

    def _note(self, what: str, text: str) -> None:
        self._line("note", what, text)

    def _line(self, mark: str, what: str, text: str) -> None:
        self.say(f"{mark:<5}{what:<9}{text}".rstrip().replace("\n", "\n" + " " * 14))

    def _greet(self, child: Child) -> str:
        begin = time.monotonic()
        self.hello = child.handshake(self.timeout)
        return (
            f"{self.hello.name}, after {time.monotonic() - begin:.2f} s: x {self.hello.form.x}, y {self.hello.form.y}"
        )

    def _rate(self, child: Child) -> str:
        begin, missing = time.perf_counter(), [0, 0]
        self.seen: list[Sample] = []
        count = 0
        while count < self.samples and (sample := child.sample(self.timeout)) is not None:
            count += 1
            for i, values in enumerate((sample.x, sample.y)):
                missing[i] += int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
            if len(self.seen) < self.few:
                self.seen.append(sample)
        seconds = time.perf_counter() - begin
        if count == 0:
            raise _Bad("the stream ends before its first sample")
        text = f"{count:,} in {seconds:.2f} s, {count / seconds:,.0f} samples/s"
        if count < self.samples:
            text += "; then the stream ends"
        if any(missing):
            text += f"; NaN: {missing[0]} values of x, {missing[1]} of y"
        return text

    def _reset(self, child: Child) -> str:
        if not self.hello.reset:
            return "it has none; lanewise starts another process for every run"
        child.reset(self.seed, 1, timeout=self.timeout)
        again = take(child, len(self.seen), self.timeout)
        self._same(again, "after a reset with the same seed")
        return "begins anew, with the same samples for the same seed"

    def _bye(self, child: Child) -> str:
        begin = time.monotonic()
        status = child.bye()
        if status is None:
            raise _Bad("it does not leave within 2 s")
        if status != 0:
            raise _Bad(f"it leaves with status {status}, not 0")
        return f"leaves after {time.monotonic() - begin:.2f} s"

    def _seeds(self) -> str:
        with self._start() as child:
            child.handshake(self.timeout)
            self._same(take(child, len(self.seen), self.timeout), "in another process with the same seed")
        with self._start((self.seed + 1) % 2**64) as child:
            child.handshake(self.timeout)
            others = take(child, len(self.seen), self.timeout)
        same = len(others) == len(self.seen) and all(a.same(b) for a, b in zip(others, self.seen))
        if same and not self.recorded:
            raise _Bad(
                "another seed gives the same samples: draw them from the seed, or say --recorded if they are "
                "recorded data"
            )
        return "the samples are recorded" if same else "the same seed gives the same samples, another one others"

    def _state(self) -> str:
        half = len(self.seen) // 2
        with self._start() as child:
            child.handshake(self.timeout)
            take(child, half, self.timeout)
            at, state = child.save(self.timeout)
            expected = take(child, at - half + self.few, self.timeout)[at - half :]
        with self._start() as child:
            child.handshake(self.timeout)
            child.restore(at, state, self.timeout)
            restored = take(child, self.few, self.timeout)
        for i, (a, b) in enumerate(zip(expected, restored)):
            if not a.same(b):
                raise _Bad(
                    f"sample {i} after a restored state is not the one that came after the saved one: {_differ(a, b)}"
                )
        if len(expected) != len(restored):
            raise _Bad(
                f"{len(restored)} samples come after a restored state, and {len(expected)} came after the saved one"
            )
        more = ""
        if len(state) > _MAX_STATE_BYTES:
            more = f"; more than {_MAX_STATE_BYTES:,}, so that max_state_bytes of the source has to be raised"
        return f"{len(state):,} bytes at sample {at}; goes on bit for bit in another process{more}"

    def _same(self, again: Sequence[Sample], when: str) -> None:
        for i, (a, b) in enumerate(zip(self.seen, again)):
            if not a.same(b):
                raise _Bad(f"sample {i} is another one {when}: {_differ(a, b)}")
        if len(again) != len(self.seen):
            raise _Bad(f"there are {len(again)} samples {when}, and there were {len(self.seen)}")


class _Bad(Exception):
    """What was tried works by the protocol, and is wrong."""


def _differ(a: Sample, b: Sample) -> str:
    """The first difference between two samples."""
    for name in ("x", "y"):
        before, now = getattr(a, name).ravel(), getattr(b, name).ravel()
        if before.tobytes() != now.tobytes():
            with np.errstate(invalid="ignore"), suppress(IndexError):
                i = int(np.flatnonzero((before != now) & ~((before != before) & (now != now)))[0])
                return f"{name}[{i}] was {before[i]!s} and is {now[i]!s}"
            return f"{name} has other bits"
    return f"start, time or weight was {(a.start, a.time, a.weight)} and is {(b.start, b.time, b.weight)}"
