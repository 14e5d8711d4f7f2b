"""Without the packages of an extra, the modules that use it cannot be searched for doctests."""

import os
from importlib.util import find_spec

# Tests run side by side, a process for each core: threads of PyTorch and of BLAS beside them would
# only wait for each other, and sums would depend on their number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

NEEDED = {
    "src/localma/cli": "typer",
    "src/localma/tables/encoder.py": "polars",
    "src/localma/backbones/augment.py": "torch",
    "src/localma/backbones/efficientnet_lite.py": "torch",
    "src/localma/backbones/gate_networks.py": "torch",
    "src/localma/backbones/images.py": "torch",
    "src/localma/backbones/mobilenet_v1.py": "torch",
    "src/localma/backbones/registry.py": "torch",
    "src/localma/backbones/small_cnn.py": "torch",
    "src/localma/candidates/cached.py": "pyarrow",
    "src/localma/candidates/files/skops.py": "skops",
    "src/localma/candidates/files/torch.py": "torch",
    "src/localma/candidates/pool_file.py": "polars",
    "src/localma/gates/image.py": "accelerate",
    "src/localma/gates/module.py": "accelerate",
    "src/localma/gates/_text_encoder.py": "torch",
    "src/localma/gates/_torch_checkpoint.py": "torch",
    "src/localma/gates/_torch_inputs.py": "torch",
    "src/localma/gates/_torch_network.py": "torch",
    "src/localma/gates/_torch_training.py": "accelerate",
    "src/localma/onnx_export.py": "onnx",
    "src/localma/report/page.py": "jinja2",
    "src/localma/tables/columns.py": "pyarrow",
    "src/localma/tables/files.py": "pyarrow",
    "src/localma/tables/formats.py": "pyarrow",
    "src/localma/tables/roles.py": "polars",
    "src/localma/tables/text.py": "pyarrow",
    "src/localma/tables/times.py": "polars",
    "src/localma/tables/writing.py": "pyarrow",
}
collect_ignore = [path for path, package in NEEDED.items() if find_spec(package) is None]
