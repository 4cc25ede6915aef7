"""Updates of optimisers; ``popsr.ops.var_updates`` exports what users call."""
