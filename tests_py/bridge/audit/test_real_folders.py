"""Folders that Lightning, Trainer and Accelerate write: one copy, so two jobs are compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popsr import errors
from popsr.bridge.audit import audit, between

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.share(3)]


def of_lightning(folder: Path) -> None:
    lightning: Any = pytest.importorskip("lightning")
    callbacks: Any = pytest.importorskip("lightning.pytorch.callbacks")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)
            self.save_hyperparameters({"lr": 0.1, "path": Path("x")})

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    saver = callbacks.ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1)
    data = torch.utils.data.DataLoader(torch.arange(32.0).reshape(8, 4), batch_size=2)
    lightning.Trainer(max_steps=4, accelerator="cpu", callbacks=[saver], **quiet).fit(Module(), data)


def of_trainer(folder: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    sizes = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=8, max_position_embeddings=8)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=4, save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(i % 2)} for i in range(32)]
    model = transformers.BertForSequenceClassification(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=data).train()


def of_accelerate(folder: Path) -> None:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for step in (2, 4):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        accelerator.save_state(str(folder / f"step_{step}"))


# Makers of folders, a file of step 4 and a tensor in it.
FOLDERS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "Lightning": (of_lightning, "epoch=0-step=4.ckpt", "state_dict.layer.weight"),
    "Trainer": (of_trainer, "checkpoint-4/optimizer.pt", "state.0.exp_avg"),
    "Accelerate": (of_accelerate, "step_4/optimizer.bin", "state.0.exp_avg"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_two_jobs(tmp_path: Path, name: str) -> None:
    make, file, tensor = FOLDERS[name]
    a, b = tmp_path / "a", tmp_path / "b"
    torch.manual_seed(0)
    make(a)
    shutil.copytree(a, b)
    with pytest.raises(
        errors.FileError, match=r"without a rank as .*one copy of what data ranks hold in common"
    ):
        audit(a)
    report = between(a, b)
    assert report.ok
    assert report.steps == (2, 4)
    assert report.left_out
    state = torch.load(b / file, weights_only=False)
    at = state
    for part in tensor.split(".", 1 if tensor.startswith("state_dict") else -1):
        at = at[int(part)] if part.isdigit() else at[part]
    at.view(-1)[1] += 0.5
    torch.save(state, b / file)
    for whole in (False, True):
        report = between(a, b, whole=whole)
        (drift,) = report.drifts
        assert (drift.step, drift.name) == (4, tensor)
        assert drift.count == 1
        assert drift.largest == pytest.approx(0.5, rel=1e-3)
        assert not report.notes
