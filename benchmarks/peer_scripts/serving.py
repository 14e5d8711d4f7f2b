"""The loop of a peer's process: ready, then one task per line that it reads.

The scripts of this folder import it, in environments that have only NumPy and the peer.
"""

import sys

import numpy as np


def serve(prepare):
    """Call ``work = prepare(arrays)``, then ``work()`` per line; store its last arrays.

    The line "load" reads new arrays, and the line "save" stores the last ones at once.
    """
    work, result = _prepared(prepare), {}
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "load":
            work = _prepared(prepare)
        elif line.strip() == "save":
            np.savez(sys.argv[2], **result)
        else:
            result = work()
        print("done", flush=True)
    np.savez(sys.argv[2], **result)


def _prepared(prepare):
    with np.load(sys.argv[1]) as stored:
        return prepare(dict(stored))
