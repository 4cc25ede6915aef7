"""A data-parallel job on two processes (gloo), which saves what each rank holds; rank 1 may be made to drift.

``python job.py FOLDER RANK PORT DRIFT``: three steps of SGD; at step 1 rank 1 adds to an element after the update.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from popsr.bridge.audit import log_hashes


def main(folder: Path, rank: int, port: str, drift: bool) -> None:
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)).to(torch.bfloat16)
    generator = torch.Generator().manual_seed(rank)
    for step in range(3):
        x = torch.randn(8, 4, generator=generator).to(torch.bfloat16)
        model.zero_grad()
        model(x).float().square().mean().backward()
        with torch.no_grad():
            for each in model.parameters():
                gradient = each.grad.float()
                dist.all_reduce(gradient)
                each -= 0.1 * gradient.to(each.dtype)
            if drift and rank == 1 and step >= 1:
                model[1].weight[1, 2] += 1
        state = dict(model.state_dict()) | {"seed": torch.tensor([rank])}
        state["f8"] = model[0].weight.detach().to(torch.float8_e4m3fn)
        for kind in ("pt", "safetensors"):
            (folder / kind / f"step_{step}").mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / "pt" / f"step_{step}" / f"rank_{rank}.pt")
        save_file(state, folder / "safetensors" / f"step_{step}" / f"rank_{rank}.safetensors")
        save(state, checkpoint_id=folder / "dcp" / f"step_{step}" / f"rank_{rank}", no_dist=True)
        shard = distribute_tensor(torch.arange(10.0).reshape(5, 2), mesh, [Shard(0)])
        save(state | {"shard": shard}, checkpoint_id=folder / "shared" / f"step_{step}")
        save(
            state,
            storage_writer=FileSystemWriter(folder / "alone" / f"step_{step}"),
            use_collectives=False,
        )
        log_hashes(state, folder / f"rank{rank}.jsonl", step=step, rank=rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "drift")
