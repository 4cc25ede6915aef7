"""Products with matrices that are sparse and constant."""

from popsr._support.lazy import names_only
from popsr.addons.ops.static_sparse_ops.dense_sparse_matmul import dense_const_sparse_matmul, random_sparse

__all__ = ["dense_const_sparse_matmul", "random_sparse"]

__dir__ = names_only(__all__)
