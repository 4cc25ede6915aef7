"""Trains T5 to turn sentences around, then translates some."""

from model_utils.config_tree import arguments
from model_utils.weights import load_state, map_state, random_state

from .config import CONFIGS, T5Config
from .execution import DecoderProgram, EncoderProgram, TrainingProgram, sentences, train, translate
from .modelling import pretrained_rules, state_shapes

SCALE = 0.15  # of random weights


def main() -> None:
    args = arguments("T5", "translation", steps=20, seed=0)
    config = T5Config.load(CONFIGS, args.config)
    program = TrainingProgram(config)
    session = program.session()
    weights = random_state(state_shapes(config), args.seed, SCALE)
    load_state(session, map_state(program.variables, weights, pretrained_rules(config, program.variables)))
    with session:
        for step, losses in enumerate(train(program, session, 0, args.steps)):
            print("step {:3d}: loss {:.4f}".format(step, losses.mean()))
    encoder, decoder = EncoderProgram(config).session(), DecoderProgram(config).session()
    encoder.load_from_session(session)
    decoder.load_from_session(session)
    source = sentences(config, 1, config.training.seed + 1)[0][0, : config.execution.data_parallel]
    for row in translate(encoder, decoder, config, source).reshape(-1, config.model.target_length):
        print("translated:", " ".join(str(word) for word in row))


if __name__ == "__main__":
    main()
