"""Pretrains BERT on synthetic sequences, with checkpoints."""

import os
from typing import List, Optional

import numpy as np
from model_utils.config_tree import arguments
from model_utils.setup import feed
from model_utils.weights import random_state
from popxl_addons import TaskSession

from .config import CONFIGS, BertConfig
from .data import Loader
from .execution import Program, mean_losses
from .modelling import state_shapes


def train(session: TaskSession, steps: int, checkpoints: Optional[str] = None) -> List[np.ndarray]:
    """Updates from where the session is; checkpoints after the last."""
    losses = []
    for batch, _ in zip(session.dataloader, range(steps)):
        inputs = {session.inputs[name]: array for name, array in batch.items()}
        losses.append(mean_losses(session.run(feed(session, inputs)), session.outputs))
    if checkpoints is not None:
        session.save_checkpoint(os.path.join(checkpoints, "step_{}".format(session.session_state["steps"])))
    return losses


def main() -> None:
    args = arguments("BERT pretraining", "phased", steps=20, seed=0)
    config = BertConfig.load(CONFIGS, args.config)
    session = Program(config).session(random_state(state_shapes(config), args.seed))
    session.dataloader = Loader(config)
    with session:
        for step, losses in enumerate(train(session, args.steps)):
            mlm, nsp = losses.mean(axis=0)
            print("step {:3d}: masked words {:.4f}, next sentence {:.4f}".format(step, mlm, nsp))


if __name__ == "__main__":
    main()
