"""Checkpoints as files of ``torch.save``, read with weights only."""
