"""Generates from random prompts."""

from model_utils.config_tree import arguments
from model_utils.weights import random_state

from .config import CONFIGS, LlamaConfig
from .execution import Generator, Program, TopK, prompts
from .modelling import state_shapes

SCALE = 0.3  # of random weights


def main() -> None:
    args = arguments("LLaMA generation", "whole", seed=0, top_k=0)
    config = LlamaConfig.load(CONFIGS, args.config)
    program = Program(config)
    session = program.session(random_state(state_shapes(config), args.seed, SCALE))
    with session:
        generator = Generator(program, session)
        for row in generator.run(prompts(config), TopK(config) if args.top_k else None):
            print("tokens:", " ".join(str(token) for token in row))


if __name__ == "__main__":
    main()
