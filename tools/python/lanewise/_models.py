"""load_model(): a trained model as a torch.nn.Module, with lanewise's names, formulas and normalisation."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lanewise._run import Run, read_json, read_safetensors


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What a stream's values become for the model, per column: (value - mean) / scale. Empty: they stay as they are."""

    mean: np.ndarray
    scale: np.ndarray

    @staticmethod
    def none() -> Scaling:
        return Scaling(np.empty(0), np.empty(0))

    def then(self, next_one: Scaling) -> Scaling:
        """First this, then the next."""
        if not self.mean.size or not next_one.mean.size:
            return next_one if next_one.mean.size else self
        return Scaling(self.mean + self.scale * next_one.mean, self.scale * next_one.scale)


@dataclasses.dataclass(frozen=True)
class Normalization:
    """That of one stream: of its x, and of its y and the prediction."""

    x: Scaling
    y: Scaling


class Model(nn.Module):
    """A model trained by lanewise. Parameters and buffers have lanewise's names; `normalization` has an entry a stream.

    Calling it computes in the units that the model sees, like any module. `predict` takes and gives original units.
    """

    recurrent = False

    def __init__(self) -> None:
        super().__init__()
        self.normalization: dict[str, Normalization] = {}
        self.carry = False  # run.state: the recurrent state runs on from sample to sample

    def normalize(self, stream: str, x: Any) -> torch.Tensor:
        """Samples in original units -> what the model sees. A missing value (NaN) becomes the mean."""
        values = np.asarray(x, np.float64)
        scaling = self._of(stream).x
        if scaling.mean.size:
            values = np.nan_to_num((values - scaling.mean) / scaling.scale, nan=0.0, posinf=np.inf, neginf=-np.inf)
        return torch.tensor(values, dtype=self._dtype())

    def original(self, stream: str, prediction: torch.Tensor) -> np.ndarray:
        """A prediction in original units."""
        values = prediction.detach().cpu().numpy()
        scaling = self._of(stream).y
        if not scaling.mean.size or values.shape[-1] != scaling.mean.size:
            return np.asarray(values)
        original: np.ndarray = values.astype(np.float64) * scaling.scale + scaling.mean
        return original.astype(values.dtype)

    @torch.no_grad()
    def predict(self, stream: str, x: Any) -> np.ndarray:
        """Predictions for successive samples x [n, …] of a stream, in original units, from a fresh state on: what
        `lanewise predict` gives for them. Of a windowed stream, x are the windows [n, time, features]."""
        training = self.training
        self.eval()
        try:
            return self.original(stream, self._successive(self.normalize(stream, x)))
        finally:
            self.train(training)

    def _successive(self, x: torch.Tensor) -> torch.Tensor:
        prediction: torch.Tensor = self(x)
        return prediction

    def _of(self, stream: str) -> Normalization:
        if not self.normalization:  # a file of a pipeline that normalises nothing
            return Normalization(Scaling.none(), Scaling.none())
        if stream not in self.normalization:
            known = ", ".join(self.normalization) or "none"
            raise KeyError(f"the model was not trained on a stream {stream!r}; it knows {known}")
        return self.normalization[stream]

    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


class Linear(Model):
    """prediction = W x + b over all values of a sample."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.flatten(1), self.weight, self.bias)


class BatchNorm(nn.Module):
    """nn.BatchNorm1d without a count of batches, which lanewise does not keep."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.running_mean: torch.Tensor
        self.running_var: torch.Tensor
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by_rows = self.training and len(x) >= 2
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, by_rows, 0.1, 1e-5
        )


class Mlp(Model):
    """Linear layers with an activation between them, numbered as in nn.Sequential: linear, (norm,) activation, …"""

    def __init__(
        self, inputs: int, outputs: int, hidden: Sequence[int], activation: str, norm: str, dropout: float
    ) -> None:
        super().__init__()
        activations = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}
        norms = {"batch": BatchNorm, "layer": nn.LayerNorm}
        layers: list[nn.Module] = []
        for width in hidden:
            layers.append(nn.Linear(inputs, width))
            if norm != "none":
                layers.append(norms[norm](width))
            layers.append(nn.Sequential(activations[activation](), nn.Dropout(dropout)))  # one number for both
            inputs = width
        layers.append(nn.Linear(inputs, outputs))
        for i, layer in enumerate(layers):
            self.add_module(str(i), layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        for layer in self.children():
            x = layer(x)
        return x


class Recurrent(Model):
    """gru or lstm over the time steps of a sample, and a linear head on the last."""

    recurrent = True

    def __init__(self, kind: str, inputs: int, outputs: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        layer = {"gru": nn.GRU, "lstm": nn.LSTM}[kind]
        self.rnn = layer(inputs, hidden, layers, dropout=dropout if layers > 1 else 0.0, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        """x [n, features] or [n, time, features] of n streams -> prediction [n, outputs], and the state after x."""
        h, state = self.rnn(x if x.dim() == 3 else x[:, None], state)
        return self.head(h[:, -1]), state

    def _successive(self, x: torch.Tensor) -> torch.Tensor:
        return _carried(self, x)


class Scripted(Model):
    """A TorchScript module, `module`. The state dict is the module's own, and so are the names in it."""

    def __init__(self, module: torch.jit.ScriptModule, state_size: int | None) -> None:
        super().__init__()
        self.module = module
        returned = module.forward.schema.returns[0].type.kind()
        self.recurrent = returned == "TupleType"
        if self.recurrent:
            self.state_size = state_size if state_size is not None else int(module.state_size)

    def forward(self, x: torch.Tensor, state: torch.Tensor | None = None) -> Any:
        """x [rows, …] -> prediction, or with a state [rows, state_size] the prediction and the state after x."""
        if not self.recurrent:
            return self.module(x)
        if state is None:
            state = torch.zeros(len(x), self.state_size, dtype=x.dtype, device=x.device)
        return self.module(x, state)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(*args, **kwargs)

    def _successive(self, x: torch.Tensor) -> torch.Tensor:
        return _carried(self, x) if self.recurrent else super()._successive(x)


def _carried(model: Recurrent | Scripted, x: torch.Tensor) -> torch.Tensor:
    """Successive samples through a model with state, which runs on from one to the next where `carry` says so."""
    if not model.carry:
        prediction: torch.Tensor = model.forward(x)[0]
        return prediction
    state, outputs = None, []
    for sample in x:
        output, state = model.forward(sample[None], state)
        outputs.append(output)
    return torch.cat(outputs) if outputs else model.forward(x)[0]


def load_model(path: str | Path, archive: str | Path | None = None) -> Model:
    """The model of a run directory (its newest checkpoint) or of a file by `lanewise export`, ready to predict.

    A torch.nn.Module whose state dict is exactly that of lanewise: each takes the other's with strict=True.
    linear and mlp are called as model(x), gru and lstm as model(x, state) -> (prediction, state); see Model.
    A file does not say which stream goes through which normalize node: there the streams are called by the node's id.

    A model of type torchscript is loaded from its archive, which runs the code in it. The archive has to be the one
    that was trained; `archive` says where it is now, if no longer where the run found it.
    """
    archives: dict[str, Any]
    if Path(path).is_dir():
        run = Run(path)
        checkpoint = run.checkpoint()
        weights, _ = read_safetensors(checkpoint / "weights.safetensors")
        saved = read_json(checkpoint / "manifest.json")
        statistics, archives = saved["normalization"], saved["data"]
        pipeline = run.manifest["pipeline"]
        names = {node["params"]["model"] for node in pipeline["nodes"] if node["type"] == "compute"}
        name = _only(names, path)
        model = _build(pipeline["models"][name], weights, archive, archives.get(f"models.{name}"))
        model.normalization = {s: _through(pipeline["nodes"], s, statistics) for s in run.streams}
        model.carry = pipeline["run"]["state"] == "carry"
    else:
        weights, metadata = read_safetensors(path)
        if "models" not in metadata:
            raise ValueError(f"{path} is not a file by lanewise export: it does not say what model it holds")
        models, statistics = json.loads(metadata["models"]), json.loads(metadata["normalization"])
        archives, name = json.loads(metadata.get("archives", "{}")), _only(set(models), path)
        model = _build(models[name], weights, archive, archives.get(f"models.{name}"))
        model.normalization = {node: _normalization(s) for node, s in statistics.items()}
    return model.eval()


def _only(names: set[str], path: str | Path) -> str:
    if len(names) != 1:
        raise ValueError(f"{path} has the models {', '.join(sorted(names)) or 'none'}; there has to be one")
    return next(iter(names))


def _load_archive(given: str | Path | None, trained: dict[str, str] | None) -> torch.jit.ScriptModule:
    """The module of an archive, which is `trained`: its path and SHA-256."""
    if trained is None:
        raise ValueError("it does not say which TorchScript archive it was trained from")
    file = Path(given if given is not None else trained["path"])
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}, this model's TorchScript archive; say where it is: archive=…")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != trained["sha256"]:
        raise ValueError(f"{file} is not the TorchScript archive that was trained, of SHA-256 {trained['sha256']}")
    module: torch.jit.ScriptModule = torch.jit.load(io.BytesIO(content), map_location="cpu")
    return module


def _build(
    settings: dict[str, Any],
    weights: dict[str, np.ndarray],
    archive: str | Path | None,
    trained: dict[str, str] | None,
) -> Model:
    """A model of these settings; sizes that the file left open are those of the weights."""
    kind = settings["type"]
    model: Model
    if kind == "linear":
        outputs, inputs = weights["weight"].shape
        model = Linear(inputs, outputs)
    elif kind == "mlp":
        last = max(int(name.split(".")[0]) for name in weights)
        inputs, outputs = weights["0.weight"].shape[1], weights[f"{last}.weight"].shape[0]
        model = Mlp(inputs, outputs, settings["hidden"], settings["activation"], settings["norm"], settings["dropout"])
    elif kind in ("gru", "lstm"):
        inputs, outputs = weights["rnn.weight_ih_l0"].shape[1], weights["head.weight"].shape[0]
        model = Recurrent(kind, inputs, outputs, settings["hidden"], settings["layers"], settings["dropout"])
    elif kind == "torchscript":
        model = Scripted(_load_archive(archive, trained), settings["state_size"])
    else:
        raise ValueError(
            f"a model of type {kind!r} has no counterpart here; there are linear, mlp, gru, lstm and torchscript"
        )
    tensors = {name: torch.from_numpy(values) for name, values in weights.items()}
    model.to(next(t.dtype for t in tensors.values() if t.is_floating_point()))
    model.load_state_dict(tensors, strict=True)
    return model


def _normalization(s: dict[str, Any]) -> Normalization:
    def scaling(of: str) -> Scaling:
        return Scaling(np.array(s[f"{of}_mean"], float), np.array(s[f"{of}_scale"], float))

    return Normalization(scaling("x"), scaling("y"))


def _through(nodes: list[dict[str, Any]], stream: str, statistics: dict[str, Any]) -> Normalization:
    """What the normalize nodes that a stream goes through do to it, one after the other."""
    result, at = Normalization(Scaling.none(), Scaling.none()), stream
    while True:
        below = [n for n in nodes if any(i["from"].split(".")[0] == at for i in n.get("in", ())) and len(n["in"]) == 1]
        node = next((n for n in below if n["type"] not in ("compute", "pair")), None)
        if node is None:
            return result
        at = node["id"]
        if at in statistics:
            more = _normalization(statistics[at])
            result = Normalization(result.x.then(more.x), result.y.then(more.y))
