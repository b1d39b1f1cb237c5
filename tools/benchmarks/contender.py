"""What PyTorch's contenders of tools/bench have in common: the data and the initial weights that files.py has written."""
import csv

import torch
from safetensors.numpy import load_file

WINDOW = 32  # time steps of a sample of the gru


class Gru(torch.nn.Module):
    """The gru of lanewise, with the names of its weights."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(8, 64, batch_first=True)
        self.head = torch.nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def network(kind):
    if kind == "gru":
        return Gru()
    return torch.nn.Sequential(torch.nn.Linear(8, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(),
                               torch.nn.Linear(128, 1))


def load(folder, kind, streams):
    """The network as it begins, and [streams, steps, 9] of these streams."""
    tables = []
    for stream in streams:
        with open(f"{folder}/{stream}.csv") as f:
            tables.append([[float(v) for v in row] for row in list(csv.reader(f))[1:]])
    net = network(kind)
    net.load_state_dict({name: torch.from_numpy(p) for name, p in load_file(f"{folder}/{kind}.safetensors").items()})
    return net, torch.tensor(tables)


def batch_of(kind, data, step):
    """x and y of a step."""
    if kind == "gru":
        window = data[:, step:step + WINDOW]
        return window[:, :, :8], window[:, -1, 8:]
    return data[:, step, :8], data[:, step, 8:]


def train(net, kind, data, steps, warm, clock):
    """Steps of SGD; microseconds a step behind the first `warm`, and the mean loss of the last 100."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        if step == warm:
            started = clock()
        x, y = batch_of(kind, data, step)
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    seconds = clock() - started
    return 1e6 * seconds / (steps - warm), torch.stack(losses[-100:]).mean()
