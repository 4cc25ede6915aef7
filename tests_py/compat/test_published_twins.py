"""Programs in the style of model repositories beside PyTorch: only the initial weights are shared, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests_py.support.programs.start_published import START, importable

STEPS, RTOL = 20, 2e-5


@pytest.fixture(scope="module", autouse=True)
def programs() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # its threads wait busily
    with importable():
        yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("config", ["deterministic", "stored"])
def test_bert_has_the_losses_of_its_twin(config: str) -> None:
    run, loader = START["bert"](config), import_module("bert.data").Loader
    losses = np.array(run.run(0, STEPS))
    batches = [loader(run.config).batch(i) for i in range(STEPS)]
    expected = import_module("bert.twin").losses(run.config, run.state, batches)
    np.testing.assert_allclose(losses, expected, rtol=RTOL)


@pytest.mark.parametrize("kind", ["gpt", "gpt phased"])
def test_gpt_has_the_losses_and_norms_of_its_twin(kind: str) -> None:
    run, execution = START[kind]("deterministic"), import_module("gpt.execution")
    losses = np.array(run.run(0, STEPS))
    rates = [execution.learning_rate(run.config, i) for i in range(STEPS)]
    tokens, labels = execution.batches(run.config, STEPS)
    expected, norms = import_module("gpt.twin").losses(run.config, run.state, tokens, labels, rates)
    np.testing.assert_allclose(losses, expected, rtol=RTOL)
    np.testing.assert_allclose(run.norms, norms, rtol=1e-4)
    assert norms.max() > run.config.training.optimizer.gradient_clipping, "gradients are clipped"


@pytest.mark.parametrize("config", ["whole", "quantised"])
@pytest.mark.parametrize("is_greedy", [True, False], ids=["greedy", "top-k"])
def test_llama_generates_the_tokens_of_its_twin(config: str, is_greedy: bool) -> None:
    run, module = START["llama"](config), import_module("llama.inference")

    def pick() -> Any:
        return None if is_greedy else module.TopK(run.config)

    generator, prompts = module.Generator(run.program, run.session), module.prompts(run.config)
    with run.session:
        tokens = generator.run(prompts, pick())
    expected, scores = import_module("llama.twin").generate(run.config, run.state, prompts, pick())
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(
        np.stack(generator.logits, axis=1), scores, rtol=RTOL, atol=RTOL * np.abs(scores).max()
    )


@pytest.mark.parametrize("config", ["translation", "finetuning"])
def test_t5_has_the_losses_and_the_words_of_its_twin(config: str) -> None:
    run, execution, twin = START["t5"](config), import_module("t5.execution"), import_module("t5.twin")
    losses = np.array(run.run(0, STEPS))
    data = execution.sentences(run.config, run.config.training.batches, run.config.training.seed)
    expected, model = twin.train(
        run.config, run.state, *(np.tile(a, (STEPS // len(a), 1, 1, 1)) for a in data)
    )
    np.testing.assert_allclose(losses, expected, rtol=RTOL)
    encoder, decoder = execution.EncoderProgram(run.config), execution.DecoderProgram(run.config)
    sessions = encoder.session(), decoder.session()
    for session in sessions:
        session.load_from_session(run.session)
    source = execution.sentences(run.config, 1, 9)[0][0, :2]
    words = execution.translate(*sessions, run.config, source)
    flat = twin.translate(model, source.reshape(-1, source.shape[-1]), words.shape[-1])
    np.testing.assert_array_equal(words, flat.reshape(words.shape))
    assert len(np.unique(words)) > 5
