"""Without the packages of an extra, the modules that use it cannot be searched for doctests."""

import os
from importlib.util import find_spec

# Tests run side by side, a process for each core: threads of PyTorch and of BLAS beside them would
# only wait for each other, and sums would depend on their number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

NEEDED = {
    "src/localma/cli": "typer",
    "src/localma/tables/encoder.py": "polars",
    "src/localma/candidates/cached.py": "pyarrow",
    "src/localma/candidates/files/skops.py": "skops",
    "src/localma/candidates/files/torch.py": "torch",
    "src/localma/gates/deep/image.py": "accelerate",
    "src/localma/gates/deep/image_networks.py": "torch",
    "src/localma/gates/deep/networks.py": "torch",
    "src/localma/gates/deep/text_encoders.py": "torch",
    "src/localma/gates/deep/torch_.py": "accelerate",
    "src/localma/gates/deep/training.py": "accelerate",
    "src/localma/images.py": "torch",
    "src/localma/candidates/pool_file.py": "polars",
    "src/localma/onnx_export.py": "onnx",
    "src/localma/report/page.py": "jinja2",
    "src/localma/tables/cells.py": "pyarrow",
    "src/localma/tables/files.py": "pyarrow",
    "src/localma/tables/sniffing.py": "pyarrow",
    "src/localma/tables/roles.py": "polars",
    "src/localma/tables/times.py": "polars",
}
collect_ignore = [path for path, package in NEEDED.items() if find_spec(package) is None]
