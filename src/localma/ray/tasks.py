"""Folds and restarts of fits as tasks of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

from localma._optional import optional
from localma._tasks import Tasks, sent_to
from localma.progress import bar
from localma.ray.running import connected
from localma.ray.work import limit_threads

MOST_RETRIES = 5
"""So often Ray repeats a task whose node or process was lost."""


@contextmanager
def on_cluster(address: str | None = None) -> Iterator[None]:
    """Run the folds and restarts of the fits in this block as tasks of a cluster.

    Each training of a network, each fold of trees, of a `CrossFitted` candidate and of an own
    candidate, and each training of a gate of PyTorch is a task of one processor. The fit equals one
    without a cluster to the bit, if all processors are of the same kind. A task whose node is lost
    runs again on another one. Warnings of tasks are not shown.

    Parameters
    ----------
    address : str, optional
        As in `predict`.

    Yields
    ------
    None
        The parts of fits go to the cluster until the block ends.

    Examples
    --------
    >>> from localma.ray import on_cluster
    >>> with on_cluster("auto"):  # doctest: +SKIP
    ...     model.fit(X, y)
    """
    with connected(address) as ray, sent_to(partial(run_tasks, ray)):
        yield


def run_tasks(
    ray: ModuleType, function: Callable[..., Any], shared: object, tasks: Tasks
) -> list[Any]:
    """Call ``function(shared, *task)`` in processes of the cluster.

    What the tasks share is sent to each node once. It travels as bytes, because arrays that Ray
    shares are read-only.
    """
    pickle = optional("ray.cloudpickle", extra="ray")
    packed = ray.put(pickle.dumps((function, shared)))
    folders = [os.path.abspath(folder) for folder in sys.path]
    remote = ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(run_task)
    running = [remote.remote([packed], folders, pickle.dumps(task)) for task in tasks]
    try:
        results = []
        with bar("tasks of the fit", len(running)) as advance:
            for reference in running:
                result, error = pickle.loads(ray.get(reference))
                if error is not None:
                    raise error
                results.append(result)
                advance(1)
        return results
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=True)
        raise


def run_task(packed: Sequence[Any], folders: Sequence[str], task: bytes) -> bytes:
    """Run one task, in a process of the cluster; packed : a reference, which Ray must not read."""
    pickle = optional("ray.cloudpickle", extra="ray")
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    limit_threads(1.0)
    function, shared = unpacked(packed[0])
    try:
        content: bytes = pickle.dumps((function(shared, *pickle.loads(task)), None))
    except Exception as error:
        content = pickle.dumps((None, error))
    return content


@lru_cache(maxsize=1)
def unpacked(reference: Any) -> tuple[Callable[..., Any], Any]:
    """Read what the tasks share; a process reads it once."""
    content = optional("ray", extra="ray").get(reference)
    function, shared = optional("ray.cloudpickle", extra="ray").loads(content)
    return function, shared
