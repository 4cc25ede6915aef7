"""Memory over time: the arena of the plan, what is in it at the peak, and what the process has."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr._support.records import ArenaValue
from popsr._support.text.amounts import bytes_text, plural
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source

__all__ = ["memory_section", "resident_memory"]

_MAX_POINTS = 600
_MAX_VALUES = 40
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 220, 76, 22


def memory_section(source: Source) -> Section:
    """Kinds of memory, a curve of its live bytes, and the values that live at the peak."""
    timeline, memory = source.timeline, source.memory
    if not timeline.steps:
        return Section("memory", "Memory", ["The plan has no instructions."])
    fixed = memory["variables"] + memory["constants"] + timeline.temporaries
    peak = max(range(len(timeline.steps)), key=lambda i: timeline.steps[i].live)
    step = timeline.steps[peak]
    at = "a copy" if step.op is None else f"{Op(source.ir, step.op).kind} op-{step.op}"
    sentences = [
        f"The session allocates {bytes_text(fixed + timeline.arena)} for values, and the streams' data of a run "
        f"take {bytes_text(memory['streams'])}.",
        f"Live activations are most at step {peak + 1} of {len(timeline.steps):,}, {at}: "
        f"{step.live:,} bytes; their arena has {timeline.arena:,} bytes.",
    ]
    sentences += resident_memory()
    tables = [_kinds(source), _values(source, peak)]
    drawing = _curve([each.live for each in timeline.steps], fixed, peak)
    return Section("memory", "Memory over time", sentences, tables, drawing)


def resident_memory() -> list[str]:
    """The process as the system sees it, in a sentence; none where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return []
    found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Vm")}
    if not {"VmRSS", "VmHWM"} <= found.keys():
        return []
    now, most = bytes_text(found["VmRSS"]), bytes_text(found["VmHWM"])
    return [f"The process has {now} resident now and had {most} at most, with Python and its packages."]


def _kinds(source: Source) -> Table:
    memory, timeline = source.memory, source.timeline
    rows = [
        ("variables", memory["variables"], "all the time"),
        ("constants", memory["constants"], "all the time"),
        ("activations", timeline.arena, "arena: addresses are used again when a value is dead"),
        ("temporaries", timeline.temporaries, "of instructions, all the time"),
        ("streams", memory["streams"], "data of a run, the caller's"),
    ]
    cells = [(kind, bytes_text(count), f"{count:,}", when) for kind, count, when in rows]
    return Table(("kind", "memory", "bytes", "allocated"), cells, numbers=frozenset({1, 2}))


def _values(source: Source, peak: int) -> Table:
    timeline = source.timeline
    live = [value for value in timeline.values if value.first <= peak <= value.last]
    live.sort(key=lambda value: -value.bytes)
    title = f"at the peak: {plural(len(live), 'value')} live"
    if len(live) > _MAX_VALUES:
        title += f", the largest {_MAX_VALUES}"
    rows = [_value(source, value) for value in live[:_MAX_VALUES]]
    header = ("value", "bytes", "from", "to", "line")
    return Table(header, rows, title, numbers=frozenset({1}))


def _value(source: Source, value: ArenaValue) -> tuple[Cell | str, ...]:
    tensor = source.ir._tensor(value.tensor)
    first, last = (source.timeline.steps[i].op for i in (value.first, value.last))
    place = "" if first is None else Op(source.ir, first).location
    return (
        f"{tensor.name} {tensor.dtype.name}[{','.join(map(str, tensor.shape))}]",
        f"{value.bytes:,}",
        _op_cell(source, first),
        _op_cell(source, last),
        Cell(short_place(place) if place else "", more=place),
    )


def _op_cell(source: Source, id_: int | None) -> Cell:
    return Cell("copy") if id_ is None else Cell(Op(source.ir, id_).kind, op=id_)


def _curve(live: Sequence[int], fixed: int, peak: int) -> str:
    """Bytes over steps as an area above what is allocated all the time."""
    points = _thinned(live)
    top = max(fixed + max(live), 1)
    across = (_WIDTH - _LEFT - 8) / max(len(live), 1)

    def x(step: float) -> str:
        return f"{_LEFT + step * across:.1f}"

    def y(count: int) -> str:
        return f"{_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 14) * count / top:.1f}"

    path = f"M{x(0)} {y(fixed)}"
    for begin, end, count in points:
        path += f"L{x(begin)} {y(fixed + count)}L{x(end)} {y(fixed + count)}"
    path += f"L{x(len(live))} {y(fixed)}Z"
    base = f"M{x(0)} {y(0)}L{x(0)} {y(fixed)}L{x(len(live))} {y(fixed)}L{x(len(live))} {y(0)}Z"
    labels = "".join(
        f'<text x="{_LEFT - 6}" y="{y(count)}" text-anchor="end" dominant-baseline="middle">{bytes_text(count)}</text>'
        for count in dict.fromkeys((0, fixed, fixed + max(live)))
        if count in (0, fixed + max(live)) or 0.1 < fixed / top < 0.9
    )
    title = escape(
        f"bytes of activations over {len(live)} steps, above {bytes_text(fixed)} of all other values"
    )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">step 1</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" text-anchor="end">step {len(live):,}</text>'
    )
    mark = f'<path class="peak" d="M{x(peak + 0.5)} {y(top)}V{y(0)}"/>'
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
        f'<path class="fixed" d="{base}"/><path class="live" d="{path}"/>{mark}{labels}{ends}</svg>'
        '<p class="legend"><span class="swatch live"></span>live activations '
        '<span class="swatch fixed"></span>variables, constants, temporaries <span class="swatch peak"></span>peak</p>'
    )


def _thinned(live: Sequence[int]) -> list[tuple[int, int, int]]:
    """Ranges of steps with their largest number of bytes."""
    width = -(-len(live) // _MAX_POINTS)
    return [
        (begin, min(begin + width, len(live)), max(live[begin : begin + width]))
        for begin in range(0, len(live), width)
    ]
