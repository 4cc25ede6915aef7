"""Models that PyTorch's exporter wrote give PyTorch's results."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from popsr.bridge.onnx import backend, load  # noqa: E402


class Resized(nn.Module):
    """Convolutions of both kinds, pools, a resize and a padding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.wide = nn.Conv2d(3, 8, 3, padding=1), nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x: Any) -> Any:
        x = functional.interpolate(self.conv(x), scale_factor=2, mode="bilinear", align_corners=False)
        x = functional.adaptive_avg_pool2d(functional.max_pool2d(self.wide(x), 3, 2, 1), (4, 4))
        return functional.pad(x, (1, 1, 2, 2), mode="reflect").flatten(1)


class Recurrent(nn.Module):
    """Two kinds of layers, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 7, 2, bidirectional=True), nn.GRU(14, 6)

    def forward(self, x: Any) -> Any:
        return self.gru(self.lstm(x)[0])


class Single(nn.Module):
    """Ops of many kinds."""

    def forward(self, x: Any) -> Any:
        product = torch.einsum("bij,bkj->bik", x, x)
        values, places = x.topk(2, -1)
        hot = functional.one_hot(places, 7).float().sum(0)
        return (
            x.std(-1, keepdim=True) + x.var(0),
            product,
            torch.triu(product),
            x.cumsum(1).argsort(-1),
            values,
            hot,
            torch.where(x > 0, x, x.exp()),
            x.norm(dim=-1),
            x.roll(1, 0).flip(1),
            x.clamp(-0.5, 0.5),
            x[:, ::2, 1:],
            x.index_select(1, torch.tensor([1, 0])),
            functional.silu(functional.gelu(x)),
            x.softmax(-1).log(),
            x.logsumexp(-1),
            functional.glu(x[..., :2]),
        )


def norms() -> nn.Module:
    layers = (
        nn.Conv2d(3, 6, 3, stride=2, groups=3),
        nn.BatchNorm2d(6),
        nn.ReLU6(),
        nn.InstanceNorm2d(6, affine=True),
    )
    return nn.Sequential(
        *layers, nn.GroupNorm(2, 6), nn.PReLU(), nn.AvgPool2d(2, ceil_mode=True), nn.Hardswish()
    )


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "resized": (Resized, (2, 3, 8, 8)),
    "recurrent": (Recurrent, (6, 2, 5)),
    "single": (Single, (3, 4, 5)),
    "norms": (norms, (2, 3, 11, 11)),
    "transformer": (transformer, (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_torch(name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, x, file = make().eval(), torch.randn(*shape), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), file, opset_version=17, dynamo=False)
    found = backend.run_model(onnx.load_model_from_string(file.getvalue()), [x.numpy()])
    expected = model(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, value.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_the_parameters_of_torch(name: str) -> None:
    """Neither more, as ones and zeros that the exporter writes for groups, nor fewer, as those behind a transpose."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, file = make().eval(), io.BytesIO()
    for each in model.parameters():  # the exporter stores equal ones once
        nn.init.normal_(each)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(
            model,
            (torch.randn(*shape),),
            file,
            opset_version=17,
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )
    read = load(onnx.load_model_from_string(file.getvalue()), streams=False)
    assert set(read.variables) == {each for each, _ in model.named_parameters()}
    statistics = {each for each, value in model.named_buffers() if value.is_floating_point()}
    assert set(read.fixed) == statistics
