"""Generators for lanewise, and what its runs leave.

    from lanewise import serve            # gives the samples of a stream; see serve's own text
    from lanewise import from_env         # makes such a generator of a Gymnasium environment
    lanewise.load_run("runs/first")       # metrics, evaluations, report, predictions, weights as numpy
    lanewise.load_model("runs/first")     # the trained model as a torch.nn.Module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise._env import from_env
from lanewise._serve import serve
from lanewise._version import __version__

if TYPE_CHECKING:
    from lanewise._models import Model, load_model
    from lanewise._run import Run, Table, load_predictions, load_run

__all__ = ["Model", "Run", "Table", "__version__", "from_env", "load_model", "load_predictions", "load_run", "serve"]


def __getattr__(name: str) -> Any:
    # A generator needs none of these, and torch least of all.
    if name in ("Run", "Table", "load_predictions", "load_run"):
        from lanewise import _run as module
    elif name in ("Model", "load_model"):
        from lanewise import _models as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module 'lanewise' has no attribute {name!r}")
    return getattr(module, name)
