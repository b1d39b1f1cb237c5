"""Makes forecaster.pt and forecaster_loss.pt beside this file, the model and the loss of torchscript16.json.

A PyTorch module becomes a TorchScript archive by torch.jit.script(module).save(file); lanewise trains it. The first
axis is the batch: its rows are samples of different streams.
"""

from pathlib import Path

import torch
from torch import Tensor, nn


class Forecaster(nn.Module):
    """A GRU cell and a head that says how far the next value is from the last one seen."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.state_size = hidden  # values that lanewise keeps for each stream
        self.cell = nn.GRUCell(features, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """x [rows, features], state [rows, state_size] -> y [rows, 1], the state after x."""
        state = self.cell(x, state)
        return x[:, -1:] + self.head(state), state


class LogCosh(nn.Module):
    """The mean of log cosh(out - y) over a row's values: one loss a row."""

    def forward(self, out: Tensor, y: Tensor) -> Tensor:
        error = (out - y).abs()
        return (error + torch.log1p(torch.exp(-2 * error)) - 0.6931471805599453).mean(1)


if __name__ == "__main__":
    here = Path(__file__).parent
    torch.manual_seed(16)
    torch.jit.script(Forecaster(features=4, hidden=24)).save(here / "forecaster.pt")
    torch.jit.script(LogCosh()).save(here / "forecaster_loss.pt")
