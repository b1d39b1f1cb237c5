"""A pendulum of Gymnasium's for each stream, of another mass and length, that is pushed at random."""

import gymnasium
from lanewise import from_env, serve


def make(stream):
    number = int(stream.removeprefix("gen"))
    env = gymnasium.make("Pendulum-v1")
    env.unwrapped.m = 0.7 + 0.04 * number
    env.unwrapped.l = 1.3 - 0.03 * number
    return env


serve(from_env(make))
