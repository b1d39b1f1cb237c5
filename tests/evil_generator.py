"""A generator that does one thing wrong, for the tests of those who start generators.

    evil_generator.py FAULT [--after N]       N good samples (3) come before the fault, where anything can

Without a fault it is a good one, whose sample k of a run is x = [k, seed % 1000], y = [k]. `--list` lists the faults.
"""

import argparse
import fcntl
import importlib.util
import json
import mmap
import os
import signal
import socket
import struct
import sys
import time
import traceback
import zlib
from pathlib import Path

# By itself: the package would load numpy, which takes longer than all that is done here.
_FILE = Path(__file__).resolve().parent.parent / "tools/python/lanewise/_protocol.py"
_SPEC = importlib.util.spec_from_file_location("lanewise_protocol", _FILE)
p = sys.modules["lanewise_protocol"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(p)

FORM = p.Form(p.Field("float32", (2,)), p.Field("float32", (1,)))


class Generator:
    """The child's side by hand, so that any part of it can be wrong."""

    def __init__(self):
        number = int(os.environ["LANEWISE_CONTROL"])
        os.set_inheritable(number, False)
        self.control = p.Control(socket.socket(fileno=number), "child")
        self.sequence = 0

    def hello(self, **changes):
        hello = json.loads(p.Hello("evil", FORM, True, True, "evil_generator.py").encode()) | changes
        self.control.send_body(p.HELLO, json.dumps(hello).encode())

    def welcome(self):
        _, body, memory = self.control.receive_with_descriptor()
        self.w = p.Welcome.decode(body, FORM)
        assert fcntl.fcntl(memory, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        self.memory = mmap.mmap(memory, self.w.memory_size)
        os.close(memory)
        self.seed, self.run, self.credit = self.w.seed, self.w.run, self.w.slots

    def frame(
        self,
        sequence=None,
        magic=p.FRAME_MAGIC,
        run=None,
        length=None,
        form=FORM,
        flags=0,
        weight=1.0,
        crc=0,
        values=None,
    ):
        """Writes a frame into the slot that is due, right but for what is given."""
        sequence = self.sequence if sequence is None else sequence
        payload = (
            struct.pack("<2f1f", sequence % 2**20, self.seed % 1000, sequence % 2**20) if values is None else values
        )
        header = p.FRAME_HEADER.pack(
            magic,
            flags,
            sequence,
            self.run if run is None else run,
            0,
            weight,
            FORM.payload if length is None else length,
            form.digest,
            0,
        )[: p.FRAME_CRC_AT]
        whole = header + struct.pack("<I", zlib.crc32(payload, zlib.crc32(header)) ^ crc) + payload
        at = self.sequence % self.w.slots * self.w.slot_size
        self.memory[at : at + len(whole)] = whole
        self.sequence += 1
        self.credit -= 1

    def bad_frame(self, **wrong):
        self.frame(**wrong)
        self.control.send(p.SAMPLES, 1)
        self.converse_for_ever()

    def good(self, count):
        """Gives so many good samples, answering what is asked."""
        for _ in range(count):
            self.converse()
            self.frame()
            self.control.send(p.SAMPLES, 1)

    def converse(self, wait=False):
        while (message := self.control.receive(wait or self.credit == 0)) is not None:
            kind, body = message
            values = p.values_of(kind, body)
            if kind == p.BYE:
                sys.exit(0)
            elif kind == p.CREDIT:
                self.credit += values[0]
            elif kind == p.SAVE:
                state = struct.pack("<Q", self.sequence)
                area = self.w.slots * self.w.slot_size
                self.memory[area : area + 8] = state
                self.control.send(p.STATE, self.sequence, 8, zlib.crc32(state))
            else:
                self.seed, self.run, self.credit = values[0], values[1], self.w.slots
                self.sequence = values[3] if kind == p.RESTORE else 0
                self.control.send(*((p.RESTORE_DONE, self.sequence) if kind == p.RESTORE else (p.RESET_DONE, self.run)))

    def converse_for_ever(self):
        while True:
            self.converse(wait=True)

    def raw(self, message):
        self.control.send_raw(message)
        self.converse_for_ever()


def message(kind=p.SAMPLES, body=struct.pack("<II", 1, 0), magic=p.MESSAGE_MAGIC, version=p.VERSION, size=None):
    return (
        p.MESSAGE_HEADER.pack(magic, version, kind, p.MESSAGE_HEADER.size + len(body) if size is None else size, 0)
        + body
    )


def crash(g):
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def exception(g):
    try:
        raise ValueError("the simulation has diverged at t = 0.3")
    except ValueError:
        g.control.send_body(p.ERROR, traceback.format_exc().encode())
        sys.exit(1)


def hang(g):
    while True:
        time.sleep(3600)


def spin(g):
    while True:
        pass


def fork_keeps(g):
    """A forked process keeps the socket and the outputs while its parent dies."""
    if os.fork() == 0:
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGKILL)


def orphan(g):
    """A forked process outlives bye."""
    if os.fork() == 0:
        time.sleep(3600)
    while True:
        g.good(1)


def deaf(g):
    """Leaves neither after bye nor after SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(g)


def close(g):
    """Closes the socket and lives on."""
    g.control.socket.close()
    hang(g)


def too_many(g):
    g.converse()
    g.control.send(p.SAMPLES, g.w.slots + 1)
    g.converse_for_ever()


def last_then_more(g):
    g.converse()
    g.frame(flags=p.LAST)
    g.frame()
    g.control.send(p.SAMPLES, 2)
    g.converse_for_ever()


def wrong_end(g):
    g.control.send(p.END, g.sequence + 1)
    g.converse_for_ever()


def samples_after_end(g):
    g.control.send(p.END, g.sequence)
    g.bad_frame()


def changes_slot(g):
    """Writes into a slot for ever after it was told of: what is read is right or found to be wrong."""
    g.good(1)
    while True:
        g.memory[64 : 64 + 12] = os.urandom(12)


def descriptors(g):
    """Sends descriptors that nobody wants, and is good."""
    for _ in range(100):
        g.converse()
        g.frame()
        socket.send_fds(g.control.socket, [message()], [0] * 50)
    g.good(10**9)


# What happens after the good samples. Beside each, how the parent is to name it.
AFTER = {
    "none": (lambda g: g.good(10**9), "good"),
    "end": (lambda g: (g.control.send(p.END, g.sequence), g.converse_for_ever()), "the end"),
    "end_exit": (lambda g: (g.control.send(p.END, g.sequence), sys.exit(0)), "the end"),
    "kill": (lambda g: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
    "segfault": (crash, "signal 11"),
    "exit_0": (lambda g: sys.exit(0), "status 0 before the end"),
    "exit_3": (lambda g: sys.exit(3), "status 3"),
    "exception": (exception, "the text of the exception"),
    "hang": (hang, "no sample"),
    "spin": (spin, "no sample, a core busy"),
    "stop": (lambda g: (os.kill(os.getpid(), signal.SIGSTOP), g.good(10**9)), "no sample until SIGCONT, then good"),
    "deaf": (deaf, "no sample; has to be killed"),
    "close": (close, "the socket is closed, the process lives"),
    "fork_keeps": (fork_keeps, "signal 9, though the socket stays open"),
    "orphan": (orphan, "good; a process is left to kill"),
    "random_bytes": (lambda g: g.raw(b"\xa5" * 200), "magic"),
    "short_message": (lambda g: g.raw(b"LWMS"), "size"),
    "empty_message": (lambda g: g.raw(b""), "the socket is closed"),
    "message_magic": (lambda g: g.raw(message(magic=b"LWMT")), "magic"),
    "message_version": (lambda g: g.raw(message(version=2)), "version"),
    "message_type": (lambda g: g.raw(message(kind=99)), "type"),
    "message_of_parent": (lambda g: g.raw(message(kind=p.CREDIT)), "type"),
    "message_truncated": (lambda g: g.raw(message()[:20]), "size"),
    "message_size": (lambda g: g.raw(message(size=2**31)), "size"),
    "message_long": (lambda g: g.raw(message(kind=p.ERROR, body=b"x" * 70000)), "size"),
    "message_body": (lambda g: g.raw(message(body=b"\x01\x00")), "size"),
    "second_hello": (lambda g: (g.hello(), g.converse_for_ever()), "order"),
    "answers_nothing": (lambda g: (g.control.send(p.RESET_DONE, 0), g.converse_for_ever()), "order"),
    "too_many": (too_many, "credit"),
    "no_samples": (lambda g: (g.control.send(p.SAMPLES, 0), g.converse_for_ever()), "credit"),
    "wrong_end": (wrong_end, "order"),
    "samples_after_end": (samples_after_end, "order, after the end"),
    "last_then_more": (last_then_more, "sequence"),
    "descriptors": (descriptors, "good"),
    "frame_random": (lambda g: g.bad_frame(magic=os.urandom(4)), "magic"),
    "frame_magic": (lambda g: g.bad_frame(magic=b"LWFQ"), "magic"),
    "frame_sequence": (lambda g: g.bad_frame(sequence=g.sequence + 1), "sequence"),
    "frame_repeated": (lambda g: g.bad_frame(sequence=max(g.sequence - 1, 0) if g.sequence else 1), "sequence"),
    "frame_run": (lambda g: g.bad_frame(run=g.run + 1), "run"),
    "frame_crc": (lambda g: g.bad_frame(crc=1), "crc"),
    "frame_length_0": (lambda g: g.bad_frame(length=0), "length"),
    "frame_length_over": (lambda g: g.bad_frame(length=FORM.payload + 1), "length"),
    "frame_length_max": (lambda g: g.bad_frame(length=2**26 + 1), "length"),
    "frame_length_2_63": (lambda g: g.bad_frame(length=2**63), "length"),
    "frame_truncated": (lambda g: g.bad_frame(values=struct.pack("<f", 1.0)), "crc"),
    "frame_dtype": (lambda g: g.bad_frame(form=p.Form(p.Field("int64", (1,)), p.Field("float32", (1,)))), "form"),
    "frame_shape": (lambda g: g.bad_frame(form=p.Form(p.Field("float32", (1, 2)), p.Field("float32", (1,)))), "form"),
    "frame_flags": (lambda g: g.bad_frame(flags=8), "flags"),
    "frame_weight": (lambda g: g.bad_frame(weight=2.0), "weight"),
    "frame_weight_nan": (lambda g: g.bad_frame(weight=float("nan")), "weight"),
    "changes_slot": (changes_slot, "crc, or nothing"),
}  # fmt: skip

# What happens instead of hello.
BEFORE = {
    "no_hello": (hang, "no sample"),
    "exit_before_hello": (lambda g: sys.exit(3), "status 3"),
    "exception_before_hello": (exception, "the text of the exception"),
    "samples_first": (lambda g: g.raw(message()), "order"),
    "hello_not_json": (lambda g: g.raw(message(p.HELLO, b"{")), "hello"),
    "hello_not_utf8": (lambda g: g.raw(message(p.HELLO, b"\xff{}")), "size"),
    "hello_deep": (lambda g: g.raw(message(p.HELLO, b"[" * 65000)), "hello"),
    "hello_array": (lambda g: g.raw(message(p.HELLO, b"[]")), "hello"),
    "hello_no_x": (lambda g: (g.hello(x=None), g.converse_for_ever()), "hello"),
    "hello_dtype": (lambda g: (g.hello(x={"dtype": "float16", "shape": [2]}), g.converse_for_ever()), "dtype"),
    "hello_negative": (lambda g: (g.hello(x={"dtype": "float32", "shape": [-1]}), g.converse_for_ever()), "shape"),
    "hello_empty": (lambda g: (g.hello(y={"dtype": "float32", "shape": [0]}), g.converse_for_ever()), "shape"),
    "hello_no_axis": (lambda g: (g.hello(y={"dtype": "float32", "shape": []}), g.converse_for_ever()), "shape"),
    "hello_huge": (lambda g: (g.hello(x={"dtype": "float32", "shape": [2**62]}), g.converse_for_ever()), "shape"),
    "hello_wraps": (lambda g: (g.hello(x={"dtype": "float64", "shape": [2**31, 2**31, 8]}), g.converse_for_ever()), "shape"),
    "hello_fraction": (lambda g: (g.hello(x={"dtype": "float32", "shape": [1.5]}), g.converse_for_ever()), "hello"),
    "hello_other_version": (lambda g: g.raw(message(p.HELLO, b"{}", version=7)), "version"),
}  # fmt: skip

# What happens to the log before the first good sample; all goes well after it.
LOG = {
    "stderr_10mb": lambda: [os.write(2, b"x" * 99 + b"\n") for _ in range(100_000)],
    "long_line": lambda: os.write(2, b"x" * 1_000_000),
    "stdout_noise": lambda: os.write(1, b"LWMS\x01\x00\x04\x00 a stray print\n" * 1000),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", nargs="?", default="none", choices=[*AFTER, *BEFORE, *LOG], metavar="FAULT")
    parser.add_argument("--after", type=int, default=3, metavar="N")
    parser.add_argument("--list", action="store_true", help="every fault, and how the parent is to name it")
    options = parser.parse_args()
    if options.list:
        answers = {k: v[1] for k, v in (AFTER | BEFORE).items()} | dict.fromkeys(LOG, "good")
        return print("\n".join(f"{fault:<24}{answer}" for fault, answer in answers.items()))

    g = Generator()
    try:
        if options.fault in BEFORE:
            BEFORE[options.fault][0](g)
        g.hello()
        g.welcome()
        if options.fault in LOG:
            LOG[options.fault]()
            g.good(10**9)
        g.good(options.after)
        AFTER[options.fault][0](g)
    except p.Closed:
        sys.exit(0)


if __name__ == "__main__":
    main()
