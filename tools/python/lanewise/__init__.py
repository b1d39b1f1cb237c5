"""Generators for lanewise, and what its runs leave.

    from lanewise import serve      # gives the samples of a stream; see serve's own text
    from lanewise import from_env   # makes such a generator of a Gymnasium environment
    lanewise.load_run("runs/first")       # metrics, evaluations, report, predictions, weights as numpy
    lanewise.load_model("runs/first")     # the trained model as a torch.nn.Module
"""

from lanewise._serve import serve
from lanewise._version import __version__

__all__ = ["__version__", "serve"]
