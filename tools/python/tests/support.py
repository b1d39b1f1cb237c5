"""What the tests share: a generator from a text, as a child."""

import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "tools/python"
EVIL = ROOT / "tests/evil_generator.py"
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

from lanewise._parent import Child  # noqa: E402

ENVIRONMENT = dict(os.environ) | {"PYTHONPATH": str(PACKAGE), "OPENBLAS_NUM_THREADS": "1"}


class GeneratorTest(unittest.TestCase):
    """Has a folder of its own; children that it starts end with it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, source, name="sim.py"):
        """A program that begins with the usual imports."""
        file = self.folder / name
        file.write_text("import numpy as np\nfrom lanewise import from_env, serve\n" + textwrap.dedent(source))
        return file

    def child(self, source, greet=True, **options):
        return self.started([sys.executable, str(self.write(source))], greet, **options)

    def started(self, command, greet=True, **options):
        child = Child(command, env=ENVIRONMENT, cwd=str(self.folder), **options)
        self.addCleanup(child.close)
        if greet:
            child.handshake()
        return child
