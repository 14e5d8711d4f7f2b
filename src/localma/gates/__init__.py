"""Gates: functions from inputs to weights on the simplex."""

from __future__ import annotations

from localma.gates.auto import ShrunkGate
from localma.gates.base import Gate, Job
from localma.gates.constant import EqualGate, GlobalGate
from localma.gates.deep.image import Augmentation, ImageGate
from localma.gates.deep.text import TextGate
from localma.gates.deep.torch_ import TorchGate
from localma.gates.labelled import Labelled
from localma.gates.mlp import MLPGate, theorem_architecture
from localma.gates.recipes import GATE_CLASSES
from localma.gates.reduced import ReducedGate
from localma.gates.tree import TreeGate

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
    "ReducedGate",
    "ShrunkGate",
    "TextGate",
    "TorchGate",
    "TreeGate",
    "theorem_architecture",
]
