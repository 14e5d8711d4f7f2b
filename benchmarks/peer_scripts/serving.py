"""The loop of a peer's process: ready, then one task per line that it reads.

The scripts of this folder import it, in environments that have only NumPy and the peer.
"""

import sys

import numpy as np


def serve(prepare):
    """Call ``work = prepare(arrays)``, then ``work()`` per line; store its last arrays."""
    with np.load(sys.argv[1]) as stored:
        work = prepare(dict(stored))
    result = {}
    print("ready", flush=True)
    for _ in sys.stdin:
        result = work()
        print("done", flush=True)
    np.savez(sys.argv[2], **result)
