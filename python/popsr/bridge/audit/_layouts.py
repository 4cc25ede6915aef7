"""Layouts of checkpoints: which names of files say which step and which rank of each axis.

A row is a pattern of the end of a path. Its groups are axes, and ``part``, which goes before the names of tensors where
several files of a rank have equal ones. The first row that matches counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from popsr.bridge.audit._mesh import AXES, RANK

__all__ = ["BY_RANK", "LAYOUTS", "LONE", "Layout", "Named", "name_facts"]


@dataclass(frozen=True)
class Layout:
    """Files of one kind.

    Attributes:
        name: whose they are.
        pattern: of the end of a path.
        equal: by pattern of a tensor's name along which axis the job should hold it equal, as groups of an audit.
        word: what its files are, if they do not tell of drift.
    """

    name: str
    pattern: re.Pattern[str]
    equal: Mapping[str, str] = field(default_factory=dict)
    word: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """Facts that a path has: layout, coordinates, the part of the state, and the step."""

    layout: Layout
    place: tuple[tuple[str, int], ...]
    part: str
    step: int | None


def _row(name: str, pattern: str, word: str, equal: Mapping[str, str] | None = None) -> Layout:
    return Layout(name, re.compile(rf"(?:^|/){pattern}$"), equal or {}, word)


_N = r"\d+"
_MP = rf"mp_rank_(?P<tp>{_N})"
_ONE_COPY = "one copy of what data ranks hold in common"
_SHARDS = "shards, which differ"
_RNG = "states of generators, which may differ"
_FILE = r"[^/]+\.(?:pt|pth|ckpt|bin|safetensors)"

LAYOUTS = (
    _row("DeepSpeed ZeRO", rf"(?:[a-z0-9]+_)?zero_pp_rank_(?P<dp>{_N})_{_MP}_optim_states\.pt", _SHARDS),
    _row(
        "DeepSpeed ZeRO-3",
        rf"zero_pp_rank_(?P<dp>{_N})_{_MP}_model_states\.pt",
        "",
        {"frozen_param_fragments.*": "none", "*": "dp"},
    ),
    _row("DeepSpeed experts", rf"(?P<part>layer_{_N}_expert_{_N})_{_MP}_model_states\.pt", _ONE_COPY),
    _row("DeepSpeed experts", rf"expp_rank_(?P<ep>{_N})_{_MP}_optim_states\.pt", _ONE_COPY),
    _row("DeepSpeed pipeline", rf"(?P<part>layer_{_N})-model_(?P<tp>{_N})-model_states\.pt", _ONE_COPY),
    _row("DeepSpeed", rf"{_MP}_model_states\.pt", _ONE_COPY),
    _row("NeMo", rf"tp_rank_(?P<tp>{_N})_pp_rank_(?P<pp>{_N})(?:_ep_rank_(?P<ep>{_N}))?/{_FILE}", _ONE_COPY),
    # With pipelines the second number is of the pipeline, else of the experts; the third is of experts, and of data
    # ranks where the optimiser is distributed. No value is taken for equal along them.
    _row("Megatron", rf"{_MP}_(?P<pp>{_N})_(?P<ep>{_N})/{_FILE}", _ONE_COPY),
    _row("Megatron", rf"{_MP}_(?P<pp>{_N})/{_FILE}", _ONE_COPY),
    _row("Megatron", rf"{_MP}/{_FILE}", _ONE_COPY),
    _row("Trainer", rf"rng_state_(?P<dp>{_N})\.pth", _RNG),
    _row("Accelerate", rf"random_states_(?P<dp>{_N})\.pkl", _RNG),
    _row("FSDP", rf"[^/]*_fsdp(?:_{_N})?_rank_?(?P<dp>{_N})\.(?:bin|pt)", _SHARDS),
)
"""Layouts of other packages; a row of ``Layout.pattern`` to each."""

BY_AXES = Layout("axes", re.compile(""), {"*": "dp"}, "shards")
BY_RANK = Layout("ranks", re.compile(""), {"*": "all"})
LONE = Layout("files", re.compile(""), {}, _ONE_COPY)

_AXIS = re.compile(rf"(?:^|[^a-z])({'|'.join(AXES)})(?:[-_]?rank)?[-_=.]?(\d+)", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|dp|replica|worker|process)[-_=.]?(\d+)", re.IGNORECASE)
_WRITER = re.compile(r"(?:^|/)__(\d+)\.metadata$")
_STEP = re.compile(
    r"(?:^|[^a-z])(?:step|iter|iteration|checkpoint|global_step|epoch)[-_=.]?(\d+)", re.IGNORECASE
)
# Of Orbax's manager: folders of steps are numbers, with items in them.
_NUMBER = re.compile(r"(?:^|/)(\d+)/(?:[^/]+/)?(?:_METADATA|_CHECKPOINT_METADATA|_sharding|manifest\.ocdbt)$")


def name_facts(path: str) -> Named:
    """Facts of a path below the folder of a job."""
    steps = _STEP.findall(path) or _NUMBER.findall(path)
    step = int(steps[-1]) if steps else None
    for layout in LAYOUTS:
        found = layout.pattern.search(path)
        if found is not None:
            groups = found.groupdict()
            part = groups.pop("part", None) or ""
            place = tuple((axis, int(text)) for axis, text in groups.items() if text is not None)
            return Named(layout, place, part, step)
    axes = {axis.lower(): int(number) for axis, number in _AXIS.findall(path)}
    has_axes = bool(axes.keys() - {"dp"})
    ranks = _WRITER.findall(path) or _RANK.findall(_AXIS.sub("/", path) if has_axes else path)
    if has_axes and not ranks:
        return Named(BY_AXES, tuple(axes.items()), "", step)
    return Named(BY_RANK, ((RANK, int(ranks[-1])),), "", step) if ranks else Named(LONE, (), "", step)
