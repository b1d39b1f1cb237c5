"""The parent, and tests/evil_generator.py: every fault is found, and named by its word."""

import concurrent.futures
import re
import subprocess
import sys
import time
import unittest

from support import ENVIRONMENT, EVIL, GeneratorTest

from lanewise import _protocol as p
from lanewise._parent import ChildError, ChildExit, take


def outcome(child):
    """What the parent says about a child after at most 200 samples."""
    try:
        child.handshake(1 if "no_hello" in child.process.args else 60)
        samples = []
        while len(samples) < 200 and (sample := child.sample(0.5)) is not None:
            samples.append(sample)
        if len(samples) == 200:
            return "good" if [int(s.y[0]) for s in samples] == list(range(200)) else "wrong samples"
        try:
            for _ in range(30):  # what comes after the end
                child.pump()
                time.sleep(0.01)
        except p.ProtocolError as e:
            return f"{e.kind}, after the end"
        except ChildExit as e:
            return f"the end, status {e.status}"
        return "the end"
    except p.ProtocolError as e:
        return e.kind
    except ChildExit as e:
        return str(e)
    except ChildError as e:
        return f"error: {e}"
    except TimeoutError:
        return "no sample"


class Faults(GeneratorTest):
    def test_every_fault_is_found_and_named(self):
        listed = subprocess.run(
            [sys.executable, str(EVIL), "--list"], env=ENVIRONMENT, capture_output=True, text=True, check=True
        )
        faults = dict(line.split(None, 1) for line in listed.stdout.splitlines())
        self.assertGreater(len(faults), 60)
        special = {
            "signal 9": r"killed by signal 9 \(SIGKILL\)", "signal 11": r"killed by signal 11 \(SIGSEGV\)",
            "signal 9, though the socket stays open": "killed by signal 9", "status 0 before the end": "left with status 0",
            "status 3": "left with status 3", "the socket is closed": "has closed its control socket",
            "the socket is closed, the process lives": "has closed its control socket", "the end": "^the end(, status 0)?$",
            "the text of the exception": r"(?s)^error: Traceback.*ValueError: the simulation has diverged at t = 0.3$",
            "no sample, a core busy": "^no sample$", "no sample until SIGCONT, then good": "^no sample$",
            "no sample; has to be killed": "^no sample$", "good; a process is left to kill": "^good$", "crc, or nothing": "^crc$|^no sample$",
        }  # fmt: skip

        def tried(name):
            with self.started([sys.executable, str(EVIL), name], greet=False, seed=7) as child:
                return outcome(child)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for name, found in zip(faults, pool.map(tried, faults)):
                with self.subTest(name):
                    self.assertRegex(found, special.get(faults[name], f"^{re.escape(faults[name])}$"))

    def test_a_stopped_child_goes_on_without_loss(self):
        child = self.started([sys.executable, str(EVIL), "stop"])
        self.assertEqual(len(take(child, 3)), 3)
        with self.assertRaises(TimeoutError):
            child.sample(0.3)
        child.process.send_signal(18)  # SIGCONT
        self.assertEqual([int(s.y[0]) for s in take(child, 50)], list(range(3, 53)))

    def test_a_child_that_is_deaf_is_killed_with_all_that_it_has_started(self):
        child = self.started([sys.executable, str(EVIL), "deaf"])
        take(child, 3)
        self.assertIsNone(child.bye(timeout=0.3))
        self.assertEqual(child.process.returncode, -9)
        child = self.started([sys.executable, str(EVIL), "orphan"])
        take(child, 10)
        group = child.process.pid
        child.close()
        left = subprocess.run(["ps", "-o", "stat=", "-g", str(group)], capture_output=True, text=True).stdout.split()
        self.assertEqual([state for state in left if not state.startswith("Z")], [])

    def test_the_end_of_a_flood_on_standard_error_is_kept(self):
        child = self.started([sys.executable, str(EVIL), "stderr_10mb"])
        take(child, 3)
        self.assertEqual(child.errors(), (b"x" * 99 + b"\n")[-(65536 % 100) :] + (b"x" * 99 + b"\n") * 655)

    def test_a_program_that_cannot_be_started_is_an_oserror(self):
        for command, error in ((["./nothing"], FileNotFoundError), ([str(self.write(""))], PermissionError)):
            with self.assertRaises(error):
                self.started(command)


if __name__ == "__main__":
    unittest.main()
