"""from_env(): a Gymnasium environment as a generator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def from_env(
    make: str | Callable[..., Any], policy: str | Callable[..., Any] = "random"
) -> Callable[[int, str], Iterator[dict[str, Any]]]:
    """A generator for serve() that lets a policy act in a Gymnasium environment and asks the model for what comes next:

        x = the observation, then the action (a discrete one as one of n)      y = the next observation

    An episode that is over is followed by the next; its first sample begins a new sequence (`start`).

    `make` is an environment's id, or a function that makes one: `make()`, or `make(stream)` if it takes an argument, so
    that streams can differ. `policy(observation, rng)`, or `policy(observation)`, gives the action; `rng` is a
    numpy.random.Generator. "random" draws actions from the action space. The seed of the stream seeds environment,
    action space and rng.

        serve(from_env("Pendulum-v1"))
        serve(from_env(lambda stream: gymnasium.make("Pendulum-v1", g=9 + int(stream.removeprefix("gen"))), swing_up))
    """
    takes_stream = callable(make) and _arguments(make) >= 1
    takes_rng = callable(policy) and _arguments(policy) >= 2
    if not callable(policy) and policy != "random":
        raise TypeError(f'policy is a function or "random", not {policy!r}')

    def sim(seed: int, stream: str) -> Iterator[dict[str, Any]]:
        import gymnasium  # of whoever uses this; nothing else here needs it

        env = gymnasium.make(make) if isinstance(make, str) else make(stream) if takes_stream else make()

        def flatten(space: Any, value: Any) -> np.ndarray:
            return np.asarray(gymnasium.spaces.utils.flatten(space, value))

        rng = np.random.default_rng(seed)
        env.action_space.seed(int(rng.integers(2**31)))
        try:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
            seen = flatten(env.observation_space, observation)
            dtype = np.float64 if seen.dtype == np.float64 else np.float32
            start = True
            while True:
                if policy == "random":
                    action = env.action_space.sample()
                else:
                    assert callable(policy)
                    action = policy(observation, rng) if takes_rng else policy(observation)
                x = np.concatenate([seen, flatten(env.action_space, action)]).astype(dtype)
                observation, _, terminated, truncated, _ = env.step(action)
                seen = flatten(env.observation_space, observation)
                yield {"x": x, "y": seen.astype(dtype), "start": start}
                start = bool(terminated or truncated)
                if start:
                    observation, _ = env.reset()
                    seen = flatten(env.observation_space, observation)
        finally:
            env.close()

    return sim


def _arguments(function: Callable[..., Any]) -> int:
    """How many positional arguments it can be given; those with a default are not counted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)
