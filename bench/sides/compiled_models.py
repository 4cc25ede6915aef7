"""Sides of bench_compilers.py in PyTorch, eager or by torch.compile: the models and arrays of compared_models.py."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.sides import processes
from bench.sides.compared_models import (
    STEPS,
    Adam,
    CrossEntropy,
    Gpt,
    LayerNorm,
    ResNet,
    Weights,
    sampled,
    weights_of,
)

torch.set_num_threads(2)


class Block(nn.Module):
    """One layer of a decoder."""

    def __init__(self, model: Gpt, attention: str) -> None:
        super().__init__()
        h = model.hidden
        self.heads, self.attention = model.heads, attention
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.output = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.wide, self.back = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        self.register_buffer("unseen", torch.ones(model.sequence, model.sequence).triu(1).bool(), False)

    def attend(self, x: Tensor) -> Tensor:
        heads = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        q, k, v = (each.reshape(heads).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        if self.attention == "op":
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3)) * heads[-1] ** -0.5
            mixed = scores.masked_fill(self.unseen, -torch.inf).softmax(-1) @ v
        return self.output(mixed.transpose(1, 2).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.back(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class GptModel(nn.Module):
    """Scores of the next tokens: sample and place, word."""

    def __init__(self, model: Gpt, attention: str) -> None:
        super().__init__()
        self.words = nn.Embedding(model.vocab, model.hidden)
        self.places = nn.Parameter(torch.empty(model.sequence, model.hidden))
        self.layers = nn.ModuleList([Block(model, attention) for _ in range(model.layers)])
        self.norm, self.head = nn.LayerNorm(model.hidden), nn.Linear(model.hidden, model.vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)).flatten(0, 1)


class ConvNorm(nn.Module):
    """A convolution and a group norm."""

    def __init__(self, model: ResNet, have: int, made: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(have, made, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.GroupNorm(model.groups, made)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class BasicBlock(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, model: ResNet, have: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(model, have, made, stride=stride)
        self.second = ConvNorm(model, made, made)
        is_same = stride == 1 and have == made
        self.side = nn.Identity() if is_same else ConvNorm(model, have, made, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.side(x))


class ResNetModel(nn.Module):
    """Scores of images."""

    def __init__(self, model: ResNet) -> None:
        super().__init__()
        self.stem = ConvNorm(model, 3, model.stem)
        self.blocks = nn.Sequential(*(BasicBlock(model, *block) for block in model.blocks()))
        self.last = nn.Linear(model.stem << model.stages - 1, model.classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.blocks(functional.relu(self.stem(images))).mean((2, 3)))


def _load(net: nn.Module, weights: Weights) -> None:
    """All parameters; linear layers keep theirs transposed."""
    linear = {f"{name}.weight" for name, each in net.named_modules() if isinstance(each, nn.Linear)}
    parameters = dict(net.named_parameters())
    assert parameters.keys() == weights.keys()
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(torch.from_numpy(value.T if name in linear else value))


def _memory_before(model: Gpt | ResNet, compiled: bool) -> int:
    """Bytes resident before a model is built, after a tiny one; the peak begins there."""
    weights_of(model)
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    run = torch.compile(net) if compiled else net
    optimiser = torch.optim.SGD(net.parameters(), 0.1, fused=True)
    run(torch.ones(4, 8)).sum().backward()
    optimiser.step()
    processes.forget_peak()
    return processes.resident_memory()


def _training(
    net: nn.Module, rate: float, x: Tensor, y: Tensor, compiled: bool, before: int
) -> Callable[[], dict]:
    """Some steps of SGD with all samples at once; forward and backward are compiled.

    The update is fused for float32. PyTorch 2.13's fused one leaves bfloat16 weights as they are.
    """
    fused = all(each.dtype == torch.float32 for each in net.parameters())
    optimiser = torch.optim.SGD(net.parameters(), rate, fused=fused)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(net(x), y)

    function = torch.compile(loss_of) if compiled else loss_of

    def turn() -> dict:
        losses = []
        for _ in range(STEPS):
            optimiser.zero_grad(set_to_none=True)
            loss = function(x, y)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return {"values": [losses], "before": before}

    return turn


def gpt(dtype: str, attention: str, compiled: bool, **sizes: int) -> Callable[[], dict]:
    """``dtype`` of weights and activations; ``attention``: "op" or "parts"."""
    model = Gpt(**sizes)
    before = _memory_before(model, compiled)
    net = GptModel(model, attention)
    _load(net, weights_of(model))
    tokens, labels = (torch.from_numpy(each).long() for each in model.batch())
    net.to(getattr(torch, dtype))
    return _training(net, model.rate, tokens, labels.flatten(), compiled, before)


def resnet(compiled: bool, **sizes: int) -> Callable[[], dict]:
    """Images and weights have their channels last."""
    model = ResNet(**sizes)
    before = _memory_before(model, compiled)
    net = ResNetModel(model)
    _load(net, weights_of(model))
    images, labels = map(torch.from_numpy, model.batch())
    net.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)
    return _training(net, model.rate, images, labels.long(), compiled, before)


def adam(calls: int, **sizes: float) -> Callable[[], dict]:
    """Fused updates; the values are those after ``calls`` of them."""
    model = Adam(**sizes)
    var, gradient = map(torch.from_numpy, model.arrays())
    var = nn.Parameter(var)
    var.grad = gradient
    betas = (model.beta1, model.beta2)
    optimiser = torch.optim.Adam([var], model.rate, betas, model.epsilon, fused=True)
    found: list[list[float]] = []

    def turn() -> dict:
        for _ in range(calls):
            optimiser.step()
        if not found:
            found.extend(sampled([var.detach().numpy()]))
        return {"values": found}

    return turn


def _pieces(
    function: Callable[..., Tensor], operands: list[np.ndarray], start: np.ndarray | None, wanted: int
) -> Callable[[], list[Tensor]]:
    """A function of the result and the gradients of the first operands."""
    tensors = [torch.from_numpy(each) for each in operands]
    tensors = [each if each.is_floating_point() else each.long() for each in tensors]
    for each in tensors[:wanted]:
        each.requires_grad_()
    seed = None if start is None else torch.from_numpy(start)

    def run() -> list[Tensor]:
        result = function(*tensors)
        return [result, *torch.autograd.grad(result, tensors[:wanted], seed)]

    return run


def _side(run: Callable[[], list[Tensor]], calls: int) -> Callable[[], dict]:
    found: list[list[float]] = []

    def turn() -> dict:
        for _ in range(calls):
            results = run()
        if not found:
            found.extend(sampled([each.detach().numpy() for each in results]))
        return {"values": found}

    return turn


def cross_entropy(calls: int, **sizes: int) -> Callable[[], dict]:
    return _side(_pieces(functional.cross_entropy, CrossEntropy(**sizes).arrays(), None, 1), calls)


def layer_norm(calls: int, **sizes: int) -> Callable[[], dict]:
    model = LayerNorm(**sizes)

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (model.width,), weight, bias)

    *operands, start = model.arrays()
    return _side(_pieces(function, operands, start, 3), calls)
