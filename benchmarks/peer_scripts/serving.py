"""How a peer's process answers: ready, then one piece of work per line that it reads.

Imported by the scripts beside it, in environments that have NumPy and the peer only.
"""

import sys

import numpy as np


def serve(prepare):
    """Call ``work = prepare(arrays)``, then ``work()`` when told; its last arrays are stored."""
    with np.load(sys.argv[1]) as stored:
        work = prepare(dict(stored))
    result = {}
    print("ready", flush=True)
    for _ in sys.stdin:
        result = work()
        print("done", flush=True)
    np.savez(sys.argv[2], **result)
