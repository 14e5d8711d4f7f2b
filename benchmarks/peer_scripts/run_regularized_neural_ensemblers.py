"""Regularized Neural Ensemblers: averaging, with the settings of the package's own examples."""

import numpy as np
import torch
from regularized_neural_ensemblers.model import NeuralEnsembler
from regularized_neural_ensemblers.trainer import Trainer
from regularized_neural_ensemblers.trainer_args import TrainerArgs
from serving import serve

torch.set_num_threads(1)


def prepare(arrays):
    P, P_new = (three_axes(arrays[name]) for name in ("P", "P_new"))

    def work():
        torch.manual_seed(int(arrays["seed"]))
        _, n_classes, n_candidates = P.shape
        kind = "regression" if n_classes == 1 else "classification"
        model = NeuralEnsembler(
            n_candidates, num_classes=n_classes, dropout_rate=0.2, task_type=kind
        )
        settings = TrainerArgs(batch_size=512, lr=0.001, epochs=1000, device=torch.device("cpu"))
        Trainer(model, settings).fit(P, arrays["y"])
        answer = model.predict(P_new).astype(float)
        return {"predictions": answer[:, 0] if n_classes == 1 else answer}

    return work


def three_axes(P):
    """(n, M) or (n, M, K) -> (n, K, M)."""
    return P[:, np.newaxis] if P.ndim == 2 else P.swapaxes(1, 2)


serve(prepare)
