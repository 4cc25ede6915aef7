"""Trains GPT on sequences that follow a rule, and prints losses."""

import logging

from model_utils.config_tree import arguments
from model_utils.weights import load_state, map_state, random_state

from .config import CONFIGS, GPTConfig
from .execution import Program, train
from .modelling import pretrained_rules, state_shapes
from .phased import PhasedProgram


def main() -> None:
    args = arguments("GPT pretraining", "pretraining", steps=20, seed=0, phased=0)
    config = GPTConfig.load(CONFIGS, args.config)
    program = PhasedProgram(config) if args.phased else Program(config)
    session = program.session()
    weights = random_state(state_shapes(config), args.seed)
    load_state(session, map_state(program.variables, weights, pretrained_rules(config, program.variables)))
    with session:
        for step, (losses, norm) in enumerate(train(config, program, session, 0, args.steps)):
            logging.info("%d: norm of the gradients %.5f", step, norm)
            print("step {:3d}: loss {:.4f}".format(step, losses.mean()))


if __name__ == "__main__":
    main()
