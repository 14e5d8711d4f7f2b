"""Models in files and folders as candidates: ONNX, PyTorch, timm, transformers and skops."""
