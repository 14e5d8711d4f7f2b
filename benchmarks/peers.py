"""Peers in separate environments: each is a process that runs its task on request.

The process has its data and is warmed up before anything is timed. So a turn costs only its task
and two lines through a pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import LocalMAError, unknown_name

ENVIRONMENTS = Path(__file__).parents[1]
CONSTRAINTS = ("-c", str(ENVIRONMENTS / "constraints.txt"))
SCRIPTS = Path(__file__).parent / "peer_scripts"
REQUIREMENTS = {
    "jax": (*CONSTRAINTS, "jax==0.10.2"),
    "deskit": (*CONSTRAINTS, "deskit==1.3.2.3", "scikit-learn"),
    "lightgbm": (*CONSTRAINTS, "lightgbm==4.7.0", "scikit-learn"),
    "deslib": ("deslib==0.3.7", "scikit-learn==1.5.2", "numpy==1.26.4", "scipy==1.17.1"),
    "autogluon": (
        "autogluon.core==1.6.3", "autogluon.features==1.6.3", "pandas==2.3.3",
        "scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1",
    ),
    "bayesblend": (
        "bayesblend==0.0.8", "cmdstanpy==1.3.2", "arviz==0.18.0", "pandas==2.3.3",
        "numpy==1.26.4", "scipy==1.17.1",
    ),
    "regularized_neural_ensemblers": (*CONSTRAINTS, "torch==2.13.0", "numpy"),
}  # fmt: skip
"""Packages of each environment.

DESlib does not work with newer scikit-learn, AutoGluon not with pandas 3, BayesBlend not with NumPy
2. Regularized Neural Ensemblers are not on PyPI: copy the folder `regularized_neural_ensemblers` of
github.com/machinelearningnuremberg/RegularizedNeuralEnsemblers (commit c5617be0ac76) into the
`site-packages` of their environment.
"""


class PeerError(LocalMAError):
    """A peer is not available. The message has the reason and is stored with the results."""


class PeerMissingError(PeerError):
    """A peer is not installed. The message has the command that installs it."""


class PeerFailedError(PeerError):
    """The process of a peer ended before it answered."""


def install(names: list[str]) -> None:
    """Create the environment of each named peer, or of all; existing ones are kept."""
    for name in names or REQUIREMENTS:
        if name not in REQUIREMENTS:
            raise unknown_name("peer", name, REQUIREMENTS)
        wanted = REQUIREMENTS[name]
        print(f"{name}: {' '.join(wanted)}", flush=True)
        stamp = _environment_of(name) / "requirements"
        if stamp.exists() and stamp.read_text() == "\n".join(wanted):
            continue
        venv.create(_environment_of(name), with_pip=True, clear=True)
        pip = [str(_python_of(name)), "-m", "pip", "--disable-pip-version-check"]
        # The constraints of this repository, which the Makefile exports, contradict some pins.
        environment = _without("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
        subprocess.run([*pip, "install", "--quiet", *wanted], check=True, env=environment)
        stamp.write_text("\n".join(wanted))


def interpreter(name: str) -> Path:
    """The Python that can import the peer: that of its environment, or this one."""
    if _python_of(name).exists():
        return _python_of(name)
    if find_spec(name) is not None:
        return Path(sys.executable)
    raise PeerMissingError(
        f"{name} is not installed; python -m benchmarks peers {name} installs it"
    )


def _without(*names: str) -> dict[str, str]:
    """The environment variables of this process but some."""
    return {name: value for name, value in os.environ.items() if name not in names}


def _environment_of(name: str) -> Path:
    return ENVIRONMENTS / f".venv-peers-{name}"


def _python_of(name: str) -> Path:
    return _environment_of(name) / "bin" / "python"


class Peer:
    """A process that runs a script of `peer_scripts` on arrays, once per `run`."""

    def __init__(self, python: Path, script: Path, arrays: dict[str, NDArray[Any]]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._input, self._output = folder / "input.npz", folder / "output.npz"
        self._errors = folder / "errors"
        np.savez(self._input, **arrays)
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [python, script, self._input, self._output],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_without("PYTHONPATH"),  # other versions than those of its environment
            )
        self._await("ready")

    @classmethod
    def start(cls, name: str, arrays: dict[str, NDArray[Any]]) -> Peer:
        """Start a known peer, or raise PeerError."""
        return cls(interpreter(name), SCRIPTS / f"run_{name}.py", arrays)

    def run(self) -> None:
        self._tell("run")

    def answer(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the script on new arrays, in the same process, and return its result."""
        np.savez(self._input, **arrays)
        for line in ("load", "run", "save"):
            self._tell(line)
        with np.load(self._output) as stored:
            return dict(stored)

    def _tell(self, line: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()
        self._await("done")

    def close(self) -> dict[str, NDArray[Any]]:
        """End the process; return the arrays of its last run."""
        self._process.communicate()
        with np.load(self._output) as stored:
            arrays = dict(stored)
        self._folder.cleanup()
        return arrays

    def _await(self, word: str) -> None:
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        for line in stdout:  # a package may print other lines
            if line.strip() == word:
                return
        self._process.communicate()
        said = self._errors.read_text()[-2000:]
        self._folder.cleanup()
        raise PeerFailedError(f"A peer ended too early: {said}")
