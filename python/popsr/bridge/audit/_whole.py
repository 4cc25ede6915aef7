"""The state of a job at a step, of whatever files it is in: shards are joined where the files say how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from popsr._support.host.files import shown_name, shown_path
from popsr.bridge.audit._held import Contents, Held
from popsr.bridge.audit._layouts import Named, name_facts
from popsr.bridge.audit._zero import whole_states
from popsr.errors import CheckpointError, UnsupportedError

__all__ = ["Whole", "assemble", "check_cuts"]

_SHARDS, _MODEL, _MODEL_OF_3 = "DeepSpeed ZeRO", "DeepSpeed", "DeepSpeed ZeRO-3"
Read = Callable[[Path], Contents | None]


class Whole:
    """A state.

    Attributes:
        tensors: by name; of files of tensor, pipeline and expert ranks their coordinates go before it.
        cuts: the coordinates of files other than those of data ranks, as they go before names; one empty text for a
            state that is not cut.
        is_damaged: a file could not be read, so names may be missing.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Held] = {}
        self.cuts: set[str] = set()
        self.is_damaged = False

    def add(self, prefix: str, tensors: dict[str, Held]) -> None:
        """Add tensors.

        Raises:
            CheckpointError: there is one of the name.
        """
        for name, each in tensors.items():
            key = f"{prefix}{name}"
            if key in self.tensors:
                raise CheckpointError(
                    f"audit: two files have one tensor, got {shown_name(key)} twice, expected once"
                )
            self.tensors[key] = each


def assemble(where: str, files: Iterable[Path], read: Read, bad: Callable[[CheckpointError], None]) -> Whole:
    """The state that files of one step hold.

    Of copies that data ranks have of the states of a model, the first is taken.

    Args:
        where: the call, for messages.
        files: of the step.
        read: contents of a file, None of one that is damaged.
        bad: called for what does not belong together; the rest is assembled.
    """
    whole = Whole()
    models: dict[str, Contents] = {}
    shards: dict[str, dict[int, tuple[Path, Contents]]] = {}
    placed = [(path, name_facts("/".join(path.parts[-2:]))) for path in files]
    whole.cuts = {_prefix(named) for _, named in placed}
    if len(whole.cuts - {""}) <= 1:  # one tensor rank is the whole
        whole.cuts = {""}
    for path, named in placed:
        data = dict(named.place).get("dp", 0)
        if named.layout.name == _MODEL_OF_3 and data:
            continue
        found = read(path)
        if found is None:
            whole.is_damaged = True
            continue
        prefix = "" if whole.cuts == {""} else _prefix(named)
        if named.layout.name == _SHARDS:
            shards.setdefault(prefix, {})[data] = path, found
            continue
        if named.layout.name in (_MODEL, _MODEL_OF_3):
            models[prefix] = found
        part = f"{named.part}." if named.part else ""
        _try(whole, bad, prefix + part, lambda: found.tensors)  # noqa: B023 - called at once
    for prefix, of_ranks in shards.items():
        _try(whole, bad, prefix, lambda: _join(where, models.get(prefix), of_ranks))  # noqa: B023 - called at once
    return whole


def _try(
    whole: Whole, bad: Callable[[CheckpointError], None], prefix: str, make: Callable[[], dict[str, Held]]
) -> None:
    try:
        whole.add(prefix, make())
    except CheckpointError as error:
        whole.is_damaged = True
        bad(error)


def _prefix(named: Named) -> str:
    """Coordinates other than the data rank, as ``tp0.pp1.``."""
    return "".join(f"{axis}{number}." for axis, number in named.place if axis not in ("dp", "rank"))


def _join(where: str, model: Contents | None, shards: dict[int, tuple[Path, Contents]]) -> dict[str, Held]:
    folder = shown_path(next(iter(shards.values()))[0].parent)
    if model is None:
        raise CheckpointError(
            f"{where}: {folder} has shards without the states of the model, expected mp_rank_00_model_states.pt or, of "
            "stage 3, zero_pp_rank_0_mp_rank_00_model_states.pt"
        )
    missing = next((rank for rank in range(len(shards)) if rank not in shards), None)
    if missing is not None:
        raise CheckpointError(f"{where}: {folder} lacks the shard of data rank {missing}")
    return whole_states(f"{where}: {folder}", model, [shards[rank][1] for rank in range(len(shards))])


def check_cuts(where: str, a: Whole, b: Whole) -> None:
    """Refuse states that are cut over other tensor, pipeline or expert ranks.

    Raises:
        UnsupportedError: they are: the files do not say on which axis a tensor is cut.
    """
    if a.cuts == b.cuts or a.is_damaged or b.is_damaged:
        return
    texts = [" ".join(sorted(each.rstrip(".") or "one file" for each in cuts)) for cuts in (a.cuts, b.cuts)]
    raise UnsupportedError(
        f"{where}: states are cut otherwise, got {shown_name(texts[0])} and {shown_name(texts[1])}, expected equal "
        "ranks: files of tensor and pipeline ranks do not say on which axis tensors are cut (those of "
        "torch.distributed.checkpoint do)"
    )
