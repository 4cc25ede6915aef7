"""Pretraining of an encoder in phases: a layer at a time for a whole batch, with all state in remote memory."""
