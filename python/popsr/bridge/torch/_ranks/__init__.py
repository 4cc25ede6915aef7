"""Ranks of a step: the job that each is traced in, what they have in common, and the merge of their graphs."""
