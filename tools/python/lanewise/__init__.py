"""Generators for lanewise, and what its runs leave.

from lanewise import serve            # gives the samples of a stream; see serve's own text
from lanewise import from_env         # makes such a generator of a Gymnasium environment
lanewise.load_run("runs/first")       # metrics, evaluations, report, predictions, weights as numpy
lanewise.load_model("runs/first")     # the trained model as a torch.nn.Module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise._version import __version__

if TYPE_CHECKING:
    from lanewise._env import from_env
    from lanewise._models import Model, load_model
    from lanewise._run import Run, Table, load_predictions, load_run
    from lanewise._serve import serve

__all__ = ["Model", "Run", "Table", "__version__", "from_env", "load_model", "load_predictions", "load_run", "serve"]
_MODULES = {
    "_env": ("from_env",), "_models": ("Model", "load_model"), "_run": ("Run", "Table", "load_predictions", "load_run"),
    "_serve": ("serve",),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Each is imported when it is asked for: a generator needs neither torch nor what reads runs.
    import importlib

    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"lanewise.{module}"), name)
    raise AttributeError(f"module 'lanewise' has no attribute {name!r}")
