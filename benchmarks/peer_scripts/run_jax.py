"""The paper's recipe in JAX: jit + vmap over fits + scan over the steps of Adam."""

import jax
import jax.numpy as jnp
import numpy as np
from serving import serve


def loss(parameters, X, P, y):
    hidden = jax.nn.relu(X @ parameters["W0"].T + parameters["b0"])
    weights = jax.nn.softmax(hidden @ parameters["W1"].T + parameters["b1"])
    return jnp.mean((y - (weights * P).sum(axis=1)) ** 2)


def train(parameters, X, P, y, steps, rate, decay):
    def step(state, k):
        theta, mean, square = state
        gradient = jax.grad(loss)(theta, X, P, y)
        g = jax.tree.map(lambda a, b: a + decay * b, gradient, theta)
        mean = jax.tree.map(lambda m, a: 0.9 * m + 0.1 * a, mean, g)
        square = jax.tree.map(lambda v, a: 0.999 * v + 0.001 * a * a, square, g)
        first, second = 1.0 - 0.9**k, 1.0 - 0.999**k
        theta = jax.tree.map(
            lambda t, m, v: t - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8),
            theta,
            mean,
            square,
        )
        return (theta, mean, square), None

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state, _ = jax.lax.scan(step, (parameters, zeros, zeros), jnp.arange(1.0, steps + 1.0))
    return state[0]


def prepare(arrays):
    steps, rate, decay = arrays.pop("settings").tolist()
    data = {name: jnp.asarray(array, dtype=jnp.float32) for name, array in arrays.items()}
    X, P, y = (data.pop(name) for name in ("X", "P", "y"))
    fit = jax.jit(jax.vmap(lambda *of_one: train(*of_one, int(steps), rate, decay)))
    jax.block_until_ready(fit(data, X, P, y))  # compiles

    def work():
        return {k: np.asarray(v) for k, v in jax.block_until_ready(fit(data, X, P, y)).items()}

    return work


serve(prepare)
