"""Gates: functions from inputs to the simplex. Equal, global and local are three of one kind."""

from __future__ import annotations

from localma.gates.base import Gate, Job
from localma.gates.deep.image import Augmentation, ImageGate
from localma.gates.deep.text import TextGate
from localma.gates.deep.torch_ import TorchGate
from localma.gates.equal import EqualGate
from localma.gates.global_ import GlobalGate
from localma.gates.labelled import Labelled
from localma.gates.mlp import MLPGate
from localma.gates.shrunk import ShrunkGate
from localma.gates.theory import theorem_architecture

GATE_CLASSES: dict[str, type[Gate]] = {
    kind.__name__: kind
    for kind in (EqualGate, GlobalGate, ImageGate, MLPGate, ShrunkGate, TextGate, TorchGate)
}
"""The gates that a saved model may name."""

__all__ = [
    "GATE_CLASSES",
    "Augmentation",
    "EqualGate",
    "Gate",
    "GlobalGate",
    "ImageGate",
    "Job",
    "Labelled",
    "MLPGate",
    "ShrunkGate",
    "TextGate",
    "TorchGate",
    "theorem_architecture",
]
