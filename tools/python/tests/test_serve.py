"""serve() against a parent that follows the protocol."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from support import ENVIRONMENT, GeneratorTest

from lanewise import _protocol as p
from lanewise._parent import ChildError, ChildExit, take

COUNT = """
    def sim(seed, stream):
        for k in range(100):
            yield [float(k), float(seed)], [k]
    serve(sim)
"""
WALK = """
    class Walk:
        def __init__(self, seed, stream):
            self.rng, self.x = np.random.default_rng(seed), np.zeros(3)
        def __iter__(self):
            while True:
                self.x = self.x + self.rng.standard_normal(3)
                yield self.x, self.x.sum()
        def state(self):
            return {"rng": self.rng.bit_generator.state, "x": self.x.tolist()}
        def restore(self, state):
            self.rng.bit_generator.state, self.x = state["rng"], np.array(state["x"])
    serve(Walk)
"""


def numbers(samples):
    return [int(s.y[0]) for s in samples]


class Samples(GeneratorTest):
    def test_values_of_every_dtype_arrive_bit_for_bit(self):
        child = self.child("""
            def sim(seed, stream):
                yield np.array([[1.5, np.nan, -0.0]], "float32").T, np.array([1e300, np.inf], "float64")
                yield np.array([[0.1, 1e-45, 3e38]], "float32").T, np.array([-1e-320, np.nan], "float64")
            serve(sim)
        """)
        self.assertEqual(str(child.hello.form), "float32[3,1] float64[2]")
        samples = take(child, 9)
        self.assertEqual(samples[0].x.tobytes(), np.array([1.5, np.nan, -0.0], "float32").tobytes())
        self.assertEqual(samples[1].x.tobytes(), np.array([0.1, 1e-45, 3e38], "float32").tobytes())
        self.assertEqual(samples[1].y.tobytes(), np.array([-1e-320, np.nan]).tobytes())
        self.assertEqual(samples[1].x.shape, (3, 1))

    def test_integers_and_plain_numbers_become_int64_and_float64(self):
        child = self.child("""
            def sim(seed, stream):
                yield 2.5, 2**62 + 1
                yield 3, -7
            serve(sim)
        """)
        self.assertEqual(str(child.hello.form), "float64[1] int64[1]")
        self.assertEqual([(s.x[0], s.y[0]) for s in take(child, 9)], [(2.5, 2**62 + 1), (3.0, -7)])

    def test_a_dict_tells_time_weight_and_start(self):
        child = self.child("""
            def sim(seed, stream):
                yield {"x": [1.0], "y": [1.0], "time": 1550083467346370123, "weight": 0.25}
                yield {"x": [1.0], "y": [1.0], "time": np.datetime64("1970-01-02"), "start": True}
                yield [1.0], [1.0]
            serve(sim)
        """)
        told = [(s.time, s.weight, s.start) for s in take(child, 9)]
        self.assertEqual(told, [(1550083467346370123, 0.25, True), (86400 * 10**9, 1.0, True), (None, 1.0, False)])

    def test_samples_of_a_mebibyte_arrive_and_the_end_after_them(self):
        child = self.child("""
            def sim(seed, stream):
                for k in range(40):
                    yield np.full(262144, k, "float32"), [k]
            serve(sim)
        """, slots=4)  # fmt: skip
        samples = take(child, 99)
        self.assertEqual(numbers(samples), list(range(40)))
        self.assertTrue(all((s.x == s.y[0]).all() and s.x.nbytes == 2**20 for s in samples))

    def test_sizes_around_that_of_a_pipe_arrive_whole(self):
        for size in (65535, 65536, 65537):
            child = self.child(f"""
                def sim(seed, stream):
                    for k in range(5):
                        yield np.arange({size} // 8 + 1) + k, [k]
                serve(sim)
            """)
            self.assertEqual([s.x[-1] for s in take(child, 9)], [size // 8 + k for k in range(5)])

    def test_seed_and_stream_arrive_whole(self):
        source = """
            def sim(seed, stream):
                yield seed >> 32, seed & 0xFFFFFFFF
                yield len(stream), hash(stream) == hash('gén "3"')
            serve(sim)
        """
        for hint in (True, False):  # whether the environment tells them before welcome does
            child = self.child(source, seed=2**64 - 2, stream='gén "3"', hint=hint)
            self.assertEqual([(s.x[0], s.y[0]) for s in take(child, 9)], [(2**32 - 1, 2**32 - 2), (7, 1)])

    def test_a_batch_axis_of_one_is_dropped_and_said_once(self):
        child = self.child("""
            def sim(seed, stream):
                for k in range(9):
                    yield np.full([1, 8], k), np.full([1, 1], k)
            serve(sim)
        """)
        self.assertEqual(str(child.hello.form), "int64[8] int64[1]")
        self.assertEqual(numbers(take(child, 9)), list(range(9)))
        self.assertEqual(child.bye(), 0)
        self.assertEqual(
            child.errors().decode(),
            "lanewise: the samples have a batch axis of 1: x [1, 8], y [1, 1]; it is dropped: x [8], y [1]. "
            "If that axis is time, say serve(…, drop_batch_axis=False)\n",
        )

    def test_a_time_axis_of_one_is_kept_when_asked_to(self):
        child = self.child("""
            def sim(seed, stream):
                yield np.zeros([1, 8]), [1.0]
            serve(sim, drop_batch_axis=False)
        """)
        self.assertEqual(str(child.hello.form), "float64[1,8] float64[1]")
        self.assertEqual(child.errors(), b"")

    def test_a_stray_print_and_ten_megabytes_of_it_do_not_matter(self):
        child = self.child("""
            import os, sys
            print("hello", flush=True)
            os.write(2, b"x" * 10_000_000)
            def sim(seed, stream):
                for k in range(100):
                    print("LWMS", k, flush=True)
                    yield k, k
            serve(sim)
        """)
        self.assertEqual(numbers(take(child, 999)), list(range(100)))

    def test_a_function_that_makes_an_object_and_one_that_is_made_already_are_generators_too(self):
        source = """
            class Count:
                k = 0
                def __next__(self):
                    self.k += 1
                    if self.k > 3: raise StopIteration
                    return self.k, self.k
                def reset(self, seed, stream): self.k = seed
            serve({})
        """
        child = self.child(source.format("lambda seed, stream: Count()"))
        self.assertEqual(numbers(take(child, 9)), [1, 2, 3])
        child = self.child(source.format("Count()"), seed=1)
        self.assertEqual(numbers(take(child, 9)), [2, 3])
        child.reset(2, 1)
        self.assertEqual(numbers(take(child, 9)), [3])

    def test_torch_tensors_are_samples(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("there is no torch")
        child = self.child("""
            import torch
            def sim(seed, stream):
                yield torch.arange(3.), torch.tensor(2)
            serve(sim)
        """)
        (sample,) = take(child, 9)
        self.assertEqual(
            (sample.x.tolist(), sample.y.tolist(), str(child.hello.form)), ([0, 1, 2], [2], "float32[3] int64[1]")
        )


class Flow(GeneratorTest):
    def test_a_child_makes_no_more_samples_than_it_has_credit_for(self):
        for slots in (1, 5):
            child = self.child("""
                def sim(seed, stream):
                    for k in range(100):
                        open("made", "w").write(str(k + 1))
                        yield k, k
                serve(sim)
            """, slots=slots)  # fmt: skip
            while child.pump() < slots:
                time.sleep(0.01)
            time.sleep(0.2)
            self.assertEqual((child.pump(), (self.folder / "made").read_text()), (slots, str(slots)))
            self.assertEqual(numbers(take(child, 999)), list(range(100)))

    def test_waiting_for_credit_costs_no_processor_time(self):
        child = self.child(COUNT, slots=2)
        while child.pump() < 2:
            time.sleep(0.01)
        before = sum(map(int, status(child.process.pid)[11:13]))  # hundredths of a second
        time.sleep(0.5)
        self.assertLessEqual(sum(map(int, status(child.process.pid)[11:13])) - before, 1)

    def test_a_reset_voids_what_was_there_and_begins_with_the_new_seed(self):
        child = self.child(COUNT, seed=3, slots=8)
        self.assertEqual([s.x.tolist() for s in take(child, 3)], [[0, 3], [1, 3], [2, 3]])
        child.reset(9, run=1, mode="evaluate")
        samples = take(child, 999)
        self.assertEqual([s.x.tolist() for s in samples], [[k, 9] for k in range(100)])
        self.assertEqual({(s.run, s.start == (s.sequence == 0)) for s in samples}, {(1, True)})

    def test_a_stream_that_has_ended_can_be_reset(self):
        child = self.child(COUNT)
        for run in range(3):
            self.assertEqual(numbers(take(child, 999)), list(range(100)))
            self.assertIsNone(child.sample())
            child.reset(run, run + 1)

    def test_a_reset_closes_a_generator_function_that_is_in_the_middle(self):
        child = self.child("""
            def sim(seed, stream):
                try:
                    for k in range(100):
                        yield k, k
                finally:
                    open("closed", "a").write(f"{seed} ")
            serve(sim)
        """, slots=2, seed=1)  # fmt: skip
        take(child, 1)
        child.reset(2, 1)
        take(child, 1)
        self.assertEqual((child.bye(), (self.folder / "closed").read_text()), (0, "1 2 "))


class State(GeneratorTest):
    def test_a_restored_child_goes_on_bit_for_bit(self):
        first = self.child(WALK, seed=5)
        take(first, 30)
        at, state = first.save()
        rest = [s for s in take(first, 100) if s.sequence >= at]
        self.assertTrue(30 <= at <= 46 and len(rest) > 50)
        second = self.child(WALK, seed=5)
        second.restore(at, state)
        again = take(second, len(rest))
        self.assertTrue(all(a.same(b) and a.sequence == b.sequence for a, b in zip(rest, again)))
        self.assertFalse(again[0].start)

    def test_a_state_asked_for_at_the_very_beginning_is_right(self):
        child = self.child(WALK, seed=5)
        child._ask(p.SAVE)  # before a look at what it has made
        at, size, _ = child._await(p.STATE, 9)
        state = bytes(child._state_area[:size])
        samples = take(child, 40)
        child.restore(at, state)
        self.assertTrue(all(a.same(b) for a, b in zip(samples[at:], take(child, 40 - at), strict=True)))
        child.restore(
            0, b'J{"rng": %s, "x": [0, 0, 0]}' % json.dumps(np.random.default_rng(5).bit_generator.state).encode()
        )
        self.assertTrue(all(a.same(b) for a, b in zip(samples, take(child, 40), strict=True)))

    def test_a_state_of_bytes_may_be_large_and_one_above_the_limit_is_refused(self):
        source = """
            class Big:
                def __init__(self, seed, stream): self.k = 0
                def __iter__(self):
                    while True:
                        self.k += 1
                        yield self.k, self.k
                def state(self): return self.k.to_bytes(4, "little") * (2 << 20)
                def restore(self, state): self.k = int.from_bytes(state[-4:], "little")
            serve(Big)
        """
        child = self.child(source)
        take(child, 3)
        at, state = child.save()
        self.assertEqual(len(state), (8 << 20) + 1)
        child.restore(at, state)
        self.assertEqual(numbers(take(child, 2)), [at + 1, at + 2])
        small = self.child(source, most_state=1 << 20)
        with self.assertRaisesRegex(ChildError, r"state\(\) has 8388609 bytes, and lanewise takes at most 1048576"):
            small.save()

    def test_an_ended_stream_can_be_saved_and_restored(self):
        child = self.child("""
            class Three:
                def __init__(self, seed, stream): self.k = 0
                def __next__(self):
                    if self.k == 3: raise StopIteration
                    self.k += 1
                    return self.k, self.k
                def state(self): return self.k
                def restore(self, k): self.k = k
            serve(Three)
        """)
        self.assertEqual(numbers(take(child, 9)), [1, 2, 3])
        self.assertIsNone(child.sample())
        self.assertEqual(child.save(), (3, b"J3"))
        child.restore(3, b"J3")
        self.assertIsNone(child.sample())
        child.restore(1, b"J1")
        self.assertEqual([(s.sequence, int(s.y[0])) for s in take(child, 9)], [(1, 2), (2, 3)])

    def test_a_state_of_something_else_is_refused_in_words(self):
        child = self.child("""
            class Bad:
                def __init__(self, seed, stream): pass
                def __iter__(self):
                    while True: yield 1, 1
                def state(self): return {"x": np.zeros(3)}
                def restore(self, state): pass
            serve(Bad)
        """, greet=False)  # fmt: skip
        with self.assertRaisesRegex(ChildError, r"state\(\) holds ndarray; give bytes, or what JSON can hold"):
            child.handshake()


class Errors(GeneratorTest):
    def fails_with(self, source, text, **options):
        child = self.child(source, greet=False, **options)
        with self.assertRaises(ChildError) as raised:
            child.handshake()
            take(child, 999)
        self.assertRegex(str(raised.exception), text)
        return child

    def test_the_text_of_an_exception_arrives_from_the_users_code_on(self):
        child = self.fails_with("""
            def step(): return 1 / 0
            def sim(seed, stream):
                yield 1, 1
                yield step(), 1
            serve(sim)
        """, r'(?s)^Traceback[^\n]*\n  File "[^"]*sim.py", line 7, in sim.*line 4, in step.*ZeroDivisionError: division by zero$')  # fmt: skip
        with self.assertRaises(ChildExit) as gone:
            child.sample()
        self.assertEqual(gone.exception.status, 1)

    def test_what_is_wrong_with_a_sample_is_said_with_its_number(self):
        cases = {
            "yield [1.0], [1.0]; yield [1.0, 2.0], [1.0]": r"^sample 1: x was of shape \[1\] and is now \[2\]; all samples",
            "yield [1], [1.0]; yield [1.5], [1.0]": r"^sample 1: x was int64 and is now float64; give one dtype always",
            "yield np.float32([1]), 1; yield np.float64([1]), 1": r"^sample 1: x was float32 and is now float64",
            "yield 1, 1j": r"^y is a complex of complex128; it can be floats or integers",
            "yield 1, 'a'": r"^y is a str of <U1",
            "yield [[1], [1, 2]], 1": r"^x cannot be read as numbers",
            "yield 1": r"^a sample is \(x, y\), or a dict with x and y; this is a int",
            "yield 1, 2, 3": r"this is a tuple of 3",
            "yield {'x': 1}": r"^the sample has no y, only x",
            "yield {'x': 1, 'y': 1, 'wieght': 1}": r"^a sample has no 'wieght'; did you mean 'weight'\?",
            "yield {'x': 1, 'y': 1, 'weight': 2}": r"^weight is a number from 0 to 1, not 2",
            "yield {'x': 1, 'y': 1, 'time': 0.5}": r"^time is a whole number of nanoseconds",
            "yield np.zeros([0]), 1": r"^x of shape \[0\] holds no value",
            "return; yield": r"^the generator has ended without any sample",
        }
        children = []
        for i, source in enumerate(cases):
            file = self.write(f"def sim(seed, stream):\n    {source}\nserve(sim)\n", f"sim{i}.py")
            children.append(self.started([sys.executable, str(file)], greet=False))
        for child, (source, text) in zip(children, cases.items()):
            with self.subTest(source), self.assertRaisesRegex(ChildError, text):
                child.handshake()
                take(child, 9)

    def test_nan_is_allowed_unless_it_is_not(self):
        source = """
            def sim(seed, stream):
                yield 1.0, float("nan")
                yield float("nan"), 1.0
            serve(sim, nan={!r})
        """
        self.assertEqual(len(take(self.child(source.format("xy")), 9)), 2)
        self.fails_with(source.format("y"), r"^sample 1: x holds NaN, and serve\(…, nan=…\) does not allow it there")

    def test_a_long_text_is_cut_at_its_beginning(self):
        self.fails_with("""
            def sim(seed, stream):
                yield 1, 1
                raise ValueError("x" * 200000 + "the end")
            serve(sim)
        """, r"^\.\.\. x{60000}x*the end$")  # fmt: skip

    def test_without_lanewise_it_says_what_to_do(self):
        file = self.write(COUNT)
        for control in (None, "99", "nonsense"):
            env = ENVIRONMENT | ({"LANEWISE_CONTROL": control} if control else {})
            done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(
                done.stderr,
                "this program gives samples to lanewise and was started without it; run it with lanewise, or try: "
                "python -m lanewise check sim.py\n",
            )

    def test_a_parent_that_breaks_the_protocol_is_named_and_left(self):
        def credit(child):
            child.handshake()
            child.control.send(p.CREDIT, 17)

        def reset_before_welcome(child):
            child._next_message(time.monotonic() + 60)
            child.control.send(p.RESET, 0, 0, 0)

        def unsealed(child):
            welcome(child, 16 * 128, seal=False)

        def too_small(child):
            welcome(child, 15 * 128)

        def no_memory(child):
            child._next_message(time.monotonic() + 60)
            child.control.send_body(p.WELCOME, p.Welcome(0, 0, "", "train", 16, 128, 0).encode())

        def welcome(child, size, seal=True):
            child._next_message(time.monotonic() + 60)
            memory = os.memfd_create("test", os.MFD_ALLOW_SEALING)
            os.ftruncate(memory, size)
            if seal:
                fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            child.control.send_body(p.WELCOME, p.Welcome(0, 0, "", "train", 16, 128, 0).encode(), memory)
            os.close(memory)

        def other_version(child):
            child._next_message(time.monotonic() + 60)
            child.control.send_raw(p.MESSAGE_HEADER.pack(p.MESSAGE_MAGIC, 2, p.WELCOME, 16, 0))

        def small_slots(child):
            child._next_message(time.monotonic() + 60)
            child.control.send_body(p.WELCOME, p.Welcome(0, 0, "", "train", 16, 64, 0).encode())

        cases = {
            credit: "credit: 17 more than", reset_before_welcome: "order: reset comes before welcome",
            unsealed: "descriptor: the memory is not sealed", too_small: "descriptor: the memory has 1920 bytes, not 2048",
            no_memory: "descriptor: welcome came without memory", small_slots: "welcome: slots of 64 bytes do not hold a frame",
            other_version: "version: the parent speaks version 2 and this is version 1",
        }  # fmt: skip
        file = self.write(COUNT)
        children = [self.started([sys.executable, str(file)], greet=False) for _ in cases]
        for child, (broken, text) in zip(children, cases.items()):
            with self.subTest(broken.__name__):
                broken(child)
                self.assertEqual(child.process.wait(20), 1)
                child._logs[1].settle()
                self.assertIn(f"lanewise broke the generator protocol: {text}", child.errors().decode())


class Leaving(GeneratorTest):
    def test_it_leaves_with_status_0_when_asked_even_from_the_middle_of_a_sample(self):
        for source in (COUNT, COUNT.replace("yield", "__import__('time').sleep(60 if k == 2 else 0); yield")):
            child = self.child(source)
            take(child, 2)
            self.assertEqual(child.bye(), 0)

    def test_what_follows_serve_in_the_program_runs_after_bye(self):
        child = self.child(COUNT.replace("serve(sim)", "serve(sim); open('after', 'w').close()"))
        take(child, 2)
        self.assertEqual((child.bye(), (self.folder / "after").exists()), (0, True))

    def test_a_closed_socket_is_no_sigpipe(self):
        child = self.child(
            COUNT.replace("def sim", "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n    def sim"),
            slots=2,
        )
        take(child, 2)
        child.control.socket.close()
        self.assertEqual(child.process.wait(5), 0)

    def test_when_the_parent_is_killed_it_ends_within_two_seconds(self):
        parent = """
            import sys, time
            from lanewise._parent import Child, take
            children = [Child([sys.executable, name]) for name in sys.argv[1:]]
            for child in children:
                child.handshake()
                take(child, 2)
            print(*(child.process.pid for child in children), flush=True)
            time.sleep(60)
        """
        waits = self.write(COUNT, "waits.py")
        sleeps = self.write(COUNT.replace("yield", "__import__('time').sleep(60 if k == 2 else 0); yield"), "sleeps.py")
        spins = self.write(COUNT.replace("yield", "\n            while k == 2: pass\n            yield"), "spins.py")
        command = [sys.executable, str(self.write(parent, "parent.py")), str(waits), str(sleeps), str(spins)]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            pids = [int(pid) for pid in process.stdout.readline().split()]
            self.assertEqual(len(pids), 3)
            process.kill()
            deadline = time.monotonic() + 2
            while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
                time.sleep(0.02)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [])


def alive(pid):
    """Neither gone nor a zombie that nobody waits for."""
    try:
        return status(pid)[0] != "Z"
    except OSError:
        return False


def status(pid):
    """What the kernel says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
