"""Gates that need PyTorch: over any module, over images and over texts.

`torch_`, `features`, `image` and `text` can be imported without PyTorch, so that `localma.gates`
can export their classes. The other modules are imported when a gate is used.
"""
