"""load_run and load_model on runs of the lanewise command, which LANEWISE names (build/release/lanewise otherwise)."""

import importlib.util
import json
import os
import subprocess
import unittest
import warnings
from pathlib import Path

import numpy as np
from support import ROOT, GeneratorTest

import lanewise

LANEWISE = Path(os.environ.get("LANEWISE") or ROOT / "build/release/lanewise")
TORCH = importlib.util.find_spec("torch") is not None
STREAMS, FEATURES, ROWS = 2, 3, 60

if TORCH:
    import torch
    from torch import nn

    class ScriptedMlp(nn.Module):
        def __init__(self, features: int):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(features, 5), nn.Tanh(), nn.Linear(5, 2))

        def forward(self, x):
            return self.layers(x)

    class ScriptedParts(nn.Module):
        """An LSTM over windows, whose module keeps its weights in a list, too; a batch norm; what is never trained."""

        def __init__(self, features: int):
            super().__init__()
            torch.manual_seed(5)
            self.register_buffer("offset", torch.arange(4))
            self.rnn = nn.LSTM(features, 4, batch_first=True)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
            self.head[0].bias.requires_grad_(False)

        def forward(self, x):
            return self.head(self.norm(self.rnn(x)[0][:, -1]) + self.offset)

    class Cell(nn.Module):
        def __init__(self, features: int, hidden: int):
            super().__init__()
            self.state_size = hidden
            self.cell, self.head = nn.GRUCell(features, hidden), nn.Linear(hidden, 2)

        def forward(self, x, state):
            state = self.cell(x, state)
            return self.head(state), state

    def torch_equal(value, module, name):
        return torch.equal(value, module.state_dict()[name])


@unittest.skipUnless(LANEWISE.is_file(), f"there is no {LANEWISE}; build it, or name one with LANEWISE")
class RunTest(GeneratorTest):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(4)
        self.tables = []
        for s in range(STREAMS):
            table = 100 * s + (s + 1) * rng.standard_normal((ROWS, FEATURES + 2)).cumsum(0)
            table[:2, 1] = np.nan  # missing: for normalize
            with open(self.folder / f"{s}.csv", "w") as f:
                f.write(",".join([*(f"x{i}" for i in range(FEATURES)), "y0", "y1"]) + "\n")
                for row in table.tolist():
                    f.write(",".join("" if v != v else repr(v) for v in row) + "\n")
            self.tables.append(table)

    def lanewise(self, *arguments):
        done = subprocess.run([str(LANEWISE), *map(str, arguments)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def trained(self, model, *, normalize=True, window=0, run=None, out="run", sinks=(), lr=1e-2):
        """The directory of a run over these tables."""
        per_sample = [("norm", {"type": "normalize"})] if normalize else []
        per_sample += [("win", {"type": "window", "params": {"length": window}})] if window else []
        nodes, above = [], "gen"
        for name, node in per_sample:
            nodes.append({"id": name, "repeat": STREAMS, "in": [{"from": above, "take": 1}]} | node)
            above = name
        pipeline = {
            "name": "test",
            "models": {"net": model},
            "nodes": [
                {"id": "gen", "repeat": STREAMS, "type": "csv", "each": {"path": [f"{s}.csv" for s in range(STREAMS)]},
                 "params": {"features": [f"x{i}" for i in range(FEATURES)], "target": ["y0", "y1"], "horizon": 0}},
                *nodes,
                {"id": "pair", "type": "pair", "in": [{"from": above}]},
                {"id": "lane", "type": "compute", "device": "cpu:*", "params": {"model": "net"},
                 "in": [{"from": "pair"}, {"from": "opt", "initial": 1}]},
                {"id": "reduce", "type": "allreduce", "in": [{"from": "lane"}]},
                {"id": "opt", "type": "optimizer", "in": [{"from": "reduce"}], "params": {"name": "adamw", "lr": lr}},
                *sinks,
            ],
            "run": {"steps": 40, "seed": 3} | (run or {}),
            "evaluate": {"every": 20},
        }  # fmt: skip
        (self.folder / "pipeline.json").write_text(json.dumps(pipeline))
        self.lanewise("run", "pipeline.json", "--out", out, "--quiet")
        return self.folder / out


class LoadRun(RunTest):
    def test_what_a_run_leaves_becomes_arrays(self):
        sink = {"id": "rows", "type": "predictions", "in": [{"from": "lane.prediction"}]}
        run = lanewise.load_run(self.trained({"type": "linear"}, sinks=[sink]))
        self.assertEqual((run.manifest["name"], run.report["exit"], run.streams), ("test", 0, ["gen0", "gen1"]))
        metrics = run.metrics
        self.assertEqual(list(metrics), ["step", "loss", "lanes", "streams", "n", "lr", "grad_norm"])
        self.assertEqual((metrics.rows, metrics["step"].dtype, metrics["streams"].shape), (40, np.int64, (40, 2)))
        np.testing.assert_allclose(metrics["streams"].mean(1), metrics["loss"], rtol=1e-6)
        self.assertEqual(run.timings["seconds"].shape, (40,))
        evaluations = run.evaluations
        self.assertEqual(evaluations["step"].tolist(), [20, 40])
        self.assertEqual(
            evaluations["streams.gen1.baselines.last"][1],
            run.report["evaluation"]["streams"]["gen1"]["baselines"]["last"],
        )
        self.assertEqual({k: v.shape for k, v in run.weights.items()}, {"weight": (2, 3), "bias": (2,)})
        rows = run.predictions
        train = rows["phase"] == "train"
        self.assertEqual((rows["y"].shape, rows["p"].shape), ((rows.rows, 2), (rows.rows, 2)))
        first = train & (rows["stream"] == "gen1") & (rows["seq"] == 5)
        np.testing.assert_allclose(rows["y"][first][0], self.tables[1][5, FEATURES:], rtol=1e-6)
        self.assertTrue(np.isnat(rows["time"]).all())
        with self.subTest("a half written last line is left out"):
            with open(run.directory / "metrics.jsonl", "a") as f:
                f.write('{"step":41,"lo')
            self.assertEqual(run.metrics.rows, 40)
        if importlib.util.find_spec("pandas"):
            columns = ["step", "loss", "lanes.0", "streams.0", "streams.1", "n", "lr", "grad_norm"]
            self.assertEqual(list(run.metrics.to_pandas().columns), columns)

    def test_what_is_missing_is_said(self):
        with self.assertRaisesRegex(FileNotFoundError, "holds no run of lanewise: it has no manifest.json"):
            lanewise.load_run(self.folder)
        run = lanewise.load_run(self.trained({"type": "linear"}))
        with self.assertRaisesRegex(FileNotFoundError, "has no predictions node; run `lanewise predict"):
            run.predictions  # noqa: B018


@unittest.skipUnless(TORCH, "there is no torch")
class LoadModel(RunTest):
    def predicts_like_lanewise(self, model, *, window=0, **options):
        folder = self.trained(model, window=window, **options)
        self.lanewise("predict", folder, "--to", "predictions.csv")
        rows = lanewise.load_predictions(self.folder / "predictions.csv")
        loaded = lanewise.load_model(folder)
        for s, table in enumerate(self.tables):
            x = table[:, :FEATURES]
            if window:
                x = np.stack([x[i : i + window] for i in range(ROWS - window + 1)])
            ours, theirs = loaded.predict(f"gen{s}", x), rows["p"][rows["stream"] == f"gen{s}"]
            self.assertEqual(ours.shape, theirs.shape)
            scale = np.maximum(np.abs(theirs), 1)
            self.assertLess(np.max(np.abs(ours - theirs) / scale), 1e-6)
        weights = {name: values.tobytes() for name, values in lanewise.load_run(folder).weights.items()}
        self.assertEqual({name: t.numpy().tobytes() for name, t in loaded.state_dict().items()}, weights)
        return folder, loaded

    def test_linear(self):
        self.predicts_like_lanewise({"type": "linear"})

    def test_mlp_with_every_activation_and_norm(self):
        self.predicts_like_lanewise({"type": "mlp", "hidden": [8, 5], "activation": "relu", "dropout": 0.2})
        self.predicts_like_lanewise(
            {"type": "mlp", "hidden": [8], "activation": "tanh", "norm": "layer"}, window=4, out="b"
        )
        self.predicts_like_lanewise({"type": "mlp", "hidden": [8, 5], "activation": "gelu", "norm": "batch"}, run={"buffers": "average", "dtype": "float64"}, out="c")  # fmt: skip
        self.predicts_like_lanewise(
            {"type": "mlp", "hidden": [4], "activation": "silu"}, run={"dtype": "float64"}, out="d"
        )

    def test_gru_with_state_that_runs_on_and_on_windows(self):
        self.predicts_like_lanewise({"type": "gru", "hidden": 7, "layers": 2, "dropout": 0.1}, run={"state": "carry"})
        self.predicts_like_lanewise({"type": "gru", "hidden": 7}, window=4, out="b")

    def test_lstm_with_state_that_runs_on_and_on_windows(self):
        self.predicts_like_lanewise({"type": "lstm", "hidden": 7}, run={"state": "carry", "dtype": "float64"})
        self.predicts_like_lanewise({"type": "lstm", "hidden": 7, "layers": 2}, window=4, out="b")

    def scripted(self, module, name="model.pt"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # upstream's, of TorchScript
            torch.jit.script(module).save(self.folder / name)
        return {"type": "torchscript", "path": name}

    def test_torchscript_with_buffers_frozen_parameters_and_an_lstm(self):
        module = ScriptedParts(FEATURES)
        settings = self.scripted(module)
        folder, loaded = self.predicts_like_lanewise(settings, window=4, run={"buffers": "average"})
        self.assertEqual(list(loaded.state_dict()), list(module.state_dict()))
        module.load_state_dict(loaded.state_dict(), strict=True)
        changed = [n for n, t in module.state_dict().items() if not torch_equal(t, ScriptedParts(FEATURES), n)]
        kept = {"offset", "head.0.bias"}
        self.assertEqual(set(module.state_dict()) - set(changed), kept)
        self.assertEqual(int(module.norm.num_batches_tracked), 40)
        with self.subTest("the archive has to be the one that was trained"):
            (self.folder / "model.pt").rename(self.folder / "moved.pt")
            with self.assertRaisesRegex(FileNotFoundError, "say where it is: archive="):
                lanewise.load_model(folder)
            lanewise.load_model(folder, archive=self.folder / "moved.pt")
            self.scripted(nn.Linear(FEATURES, 2), "other.pt")
            with self.assertRaisesRegex(ValueError, "is not the TorchScript archive that was trained"):
                lanewise.load_model(folder, archive=self.folder / "other.pt")

    def test_torchscript_with_state_that_runs_on(self):
        settings = self.scripted(Cell(FEATURES, 5))
        self.predicts_like_lanewise(settings, run={"state": "carry", "tbptt": 4, "dtype": "float64"})
        folder, loaded = self.predicts_like_lanewise(settings, out="b")
        self.lanewise("export", folder, "--to", "model.safetensors")
        exported = lanewise.load_model(self.folder / "model.safetensors")
        x = self.tables[1][:, :FEATURES]
        self.assertEqual(exported.predict("norm1", x).tobytes(), loaded.predict("gen1", x).tobytes())

    def begins_with(self, model, state, dtype="float32", **options):
        """A run from weights that Python wrote: after a step of hardly any size it has them still, rounded once."""
        from safetensors import serialize_file

        tensors = {
            n: {
                "dtype": str(t.dtype).removeprefix("torch."),
                "shape": list(t.shape),
                "data": bytes(t.detach().contiguous().flatten().view(torch.uint8).tolist()),
            }
            for n, t in state.items()
        }
        serialize_file(tensors, str(self.folder / "init.safetensors"), None)
        run = {"steps": 1, "dtype": dtype} | options.pop("run", {})
        folder = self.trained(model | {"init": "init.safetensors"}, run=run, lr=1e-30, **options)
        wanted = {n: t.to(getattr(torch, dtype)) if t.is_floating_point() else t for n, t in state.items()}
        found = lanewise.load_model(folder).state_dict()
        for name, value in found.items():
            if "num_batches" not in name and "running" not in name:
                self.assertTrue(torch.equal(value, wanted[name]), name)
        self.assertLessEqual(set(found), set(wanted))
        return folder

    def test_weights_that_python_wrote_are_taken_and_predict_alike(self):
        class Rnn(nn.Module):
            def __init__(self, kind, layers):
                super().__init__()
                self.rnn, self.head = kind(FEATURES, 6, layers, batch_first=True), nn.Linear(6, 2)

            def forward(self, x):
                return self.head(self.rnn(x[:, None])[0][:, -1])

        def mlp(*between):
            return nn.Sequential(nn.Linear(FEATURES, 5), *between, nn.Linear(5, 2))

        cases = [({"type": "linear"}, nn.Linear(FEATURES, 2), {})]
        cases += [
            ({"type": "mlp", "hidden": [5], "activation": name}, mlp(layer), {})
            for name, layer in (("relu", nn.ReLU()), ("tanh", nn.Tanh()), ("gelu", nn.GELU()), ("silu", nn.SiLU()))
        ]
        cases += [
            ({"type": "mlp", "hidden": [5], "norm": "layer"}, mlp(nn.LayerNorm(5), nn.ReLU()), {}),
            ({"type": "mlp", "hidden": [5], "norm": "batch"}, mlp(nn.BatchNorm1d(5), nn.ReLU()), {"buffers": "local"}),
            ({"type": "mlp", "hidden": [5], "dropout": 0.5}, mlp(nn.ReLU()), {}),
            ({"type": "mlp", "hidden": []}, nn.Sequential(nn.Linear(FEATURES, 2)), {}),
            ({"type": "gru", "hidden": 6, "layers": 2}, Rnn(nn.GRU, 2), {}),
            ({"type": "lstm", "hidden": 6}, Rnn(nn.LSTM, 1), {}),
            (self.scripted(ScriptedMlp(FEATURES)), ScriptedMlp(FEATURES), {}),
        ]
        for number, (model, module, run) in enumerate(cases):
            with self.subTest(model):
                for p in module.parameters():
                    nn.init.normal_(p, std=0.5)
                folder = self.begins_with(model, module.state_dict(), "float64", run=run, out=f"init{number}")
                self.lanewise("predict", folder, "--to", "predictions.csv")
                rows = lanewise.load_predictions(self.folder / "predictions.csv")
                loaded = lanewise.load_model(folder)
                module.load_state_dict(loaded.state_dict(), strict=model.get("norm") != "batch")  # num_batches_tracked
                module.double().eval()
                x = loaded.normalize("gen0", self.tables[0][:, :FEATURES])
                with torch.no_grad():
                    ours = loaded.original("gen0", module(x))
                theirs = rows["p"][rows["stream"] == "gen0"]
                self.assertLess(np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1)), 1e-6)

    def test_weights_of_other_dtypes_are_rounded_to_the_runs_and_integers_are_refused(self):
        for number, (wrote, dtype) in enumerate(
            [("float64", "float32"), ("bfloat16", "float32"), ("float16", "float64"), ("float32", "float64")]
        ):
            state = nn.Linear(FEATURES, 2).to(getattr(torch, wrote)).state_dict()
            self.begins_with({"type": "linear"}, state, dtype, out=f"dtype{number}")
        with self.assertRaisesRegex(AssertionError, '"weight" holds Long, and in this model Float'):
            self.begins_with({"type": "linear"}, {"weight": torch.ones(2, FEATURES, dtype=torch.long), "bias": torch.ones(2)}, out="i")  # fmt: skip

    def test_an_exported_file_is_the_same_model(self):
        folder, loaded = self.predicts_like_lanewise({"type": "gru", "hidden": 4}, run={"state": "carry"})
        self.lanewise("export", folder, "--to", "model.safetensors")
        exported = lanewise.load_model(self.folder / "model.safetensors")
        exported.carry = True  # a file does not tell
        x = self.tables[1][:, :FEATURES]
        self.assertEqual(exported.predict("norm1", x).tobytes(), loaded.predict("gen1", x).tobytes())
        with self.assertRaisesRegex(KeyError, "was not trained on a stream 'gen1'; it knows norm0, norm1"):
            exported.predict("gen1", x)

    def test_without_normalize_values_stay_as_they_are(self):
        for table in self.tables:
            table[np.isnan(table)] = 0
        for s, table in enumerate(self.tables):
            np.savetxt(self.folder / f"{s}.csv", table, "%.17g", ",", header="x0,x1,x2,y0,y1", comments="")
        self.predicts_like_lanewise({"type": "linear"}, normalize=False)

    def test_training_mode_is_that_of_pytorch_and_predict_leaves_it_alone(self):
        folder = self.trained(
            {"type": "mlp", "hidden": [32], "dropout": 0.5, "norm": "batch"}, run={"buffers": "average"}
        )
        model = lanewise.load_model(folder)
        self.assertFalse(model.training)
        x = model.normalize("gen0", self.tables[0][:, :FEATURES])
        model.train()
        self.assertFalse(torch.equal(model(x), model(x)))
        model.predict("gen0", self.tables[0][:, :FEATURES])
        self.assertTrue(model.training)


if __name__ == "__main__":
    unittest.main()
