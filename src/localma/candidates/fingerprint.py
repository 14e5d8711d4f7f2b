"""A candidate's fingerprint: equal only for candidates that predict the same of the same rows.

A model in a file has that of its content and options. A model in memory has that of all it holds,
as long as its code comes from installed packages, whose versions count; other code can change
while its name stays, so such models need a key from the user.
"""

from __future__ import annotations

import json
import pickle
import sys
from copy import copy
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from types import BuiltinFunctionType, FunctionType
from typing import Any

from joblib.hashing import NumpyHasher

from localma.candidates.base import Candidate
from localma.errors import InvalidInputError
from localma.storage.fingerprints import digest

NO_PART = ("inputs", "cost", "batch_size")
"""What does not change the predictions of rows as the model sees them."""
CODE = (type, FunctionType, BuiltinFunctionType)


def candidate_fingerprint(candidate: Candidate) -> str:
    """Fingerprint of the model and of the options that its predictions depend on: 32 characters.

    >>> from localma.candidates.infer import as_candidate
    >>> from sklearn.linear_model import LinearRegression
    >>> one, other = (LinearRegression().fit([[0.0], [1.0]], [0.0, slope]) for slope in (1.0, 2.0))
    >>> same = as_candidate(one, inputs=[0], cost=3.0)
    >>> candidate_fingerprint(as_candidate(one)) == candidate_fingerprint(same)
    True
    >>> candidate_fingerprint(as_candidate(one)) == candidate_fingerprint(as_candidate(other))
    False
    """
    recipe = _recipe_of_model(candidate)
    if recipe is not None and "sha256" in recipe:
        left_out = (*NO_PART, *candidate.paths)
        stated = {name: value for name, value in recipe.items() if name not in left_out}
        # A recipe has the name of such a function, and not what it does.
        prepares = _fingerprint_in_memory(getattr(candidate, "preprocess", None), candidate)
        return digest(f"{json.dumps(stated, sort_keys=True)} {prepares}")
    if candidate.kind == "http":
        raise _needs_key(candidate, "the model behind an address can change while it stays")
    held = {name: value for name, value in vars(candidate).items() if name not in NO_PART}
    return digest(f"{candidate.kind} {_fingerprint_in_memory(held, candidate)}")


def _recipe_of_model(candidate: Candidate) -> dict[str, Any] | None:
    """Its recipe with no regard to the inputs, which may be a function that has no name."""
    bare = copy(candidate)
    bare.inputs = None
    return bare.recipe()


def _fingerprint_in_memory(held: Any, candidate: Candidate) -> str:
    code = _CodeReader()
    try:
        code.dump(held)
        content = _ContentHasher("md5").hash(held)
    except _StrangeCodeError as error:
        raise _needs_key(
            candidate, f"the code of {error} can change while its name stays"
        ) from None
    except Exception as error:
        raise _needs_key(
            candidate, f"it cannot be read as a whole ({type(error).__name__}: {error})"
        ) from error
    return f"{content} {sorted(code.versions)}"


def _needs_key(candidate: Candidate, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Predictions are cached under a fingerprint of the model, and {candidate!r} has none: "
        f"{reason}. Pass a key of your own, and another one whenever the model changes: "
        "Cached(model, key='vendor 2024-05')."
    )


class _StrangeCodeError(Exception):
    """Code that no installed package of a known version holds."""


class _ContentHasher(NumpyHasher):
    """joblib's hash of all that an object holds, where tensors count by their numbers."""

    def save(self, value: Any) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            # Pickled tensors hold addresses in memory, which differ from process to process.
            plain = value.detach().cpu()
            plain = plain.float() if plain.dtype == torch.bfloat16 else plain
            value = ("tensor", str(value.dtype), plain.numpy())
        super().save(value)


class _CodeReader(pickle.Pickler):
    """Walk through all that an object holds, as pickling does, and note where its code is from."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda buffer: None)
        self.versions: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, CODE):
            module = getattr(value, "__module__", None) or "builtins"
            found = _version(module.partition(".")[0])
            if found is None:
                raise _StrangeCodeError(f"{module}.{value.__qualname__}")
            self.versions.add(found)
        return NotImplemented


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, content: Any) -> int:
        return len(content)


@lru_cache(maxsize=256)
def _version(package: str) -> str | None:
    """Name and version of what holds a top-level package; None for code that is being written."""
    if package in sys.stdlib_module_names and package != "__main__":
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    if package == "localma":
        return f"localma {version('localma')}"
    for name in _distributions().get(package, ()):
        if not _is_editable(name):
            return f"{name} {version(name)}"
    return None


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


def _is_editable(name: str) -> bool:
    """Whether a package is installed as a link to a folder where somebody works on it."""
    try:
        origin = distribution(name).read_text("direct_url.json")
    except PackageNotFoundError:
        return True
    return bool(origin and json.loads(origin).get("dir_info", {}).get("editable"))
