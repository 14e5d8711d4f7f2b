"""Networks of images in plain PyTorch: definitions, weights files, and images as tensors.

Importing this package imports nothing; its modules need the extra `torch`, and those that read
image files the extra `vision`.
"""
