"""One instance fetches data and prepares it, the others wait; logs and metrics are written by the first instance."""

import logging
import os
import random
import sys
import time

import numpy as np
import popdist
import popxl
from popxl import ops

FOLDER = sys.argv[1]
PATH = os.path.join(FOLDER, "data_set")


def setup_logging():
    level = logging.INFO if popdist.getInstanceIndex() == 0 else logging.ERROR
    logging.basicConfig(level=level, stream=sys.stdout, format="%(levelname)s %(message)s", force=True)


@popdist.execute_on_instances({0}, None)
def download():
    """Slowly, in parts."""
    with open(PATH, "wb") as file:
        for part in range(4):
            file.write(np.arange(16 * part, 16 * part + 16, dtype=np.float32).tobytes())
            file.flush()
            time.sleep(0.05)
    checksum()
    return PATH


@popdist.execute_on_instances({0})
def checksum():
    """Called by a function of the same instance, too."""
    logging.info("%d bytes", os.path.getsize(PATH))


@popdist.execute_on_instances(range(0, popdist.getNumInstances(), 2))
def even():
    return popdist.getInstanceIndex()


@popdist.execute_on_instances({popdist.getNumInstances() - 1})
def fails():
    raise OSError("no such server")


def main():
    setup_logging()
    popdist.init()
    path = download()
    assert path == (PATH if popdist.getInstanceIndex() == 0 else None)
    assert even() == (None if popdist.getInstanceIndex() % 2 else popdist.getInstanceIndex())
    data = np.fromfile(PATH, np.float32).reshape(8, 8)
    random.seed(popdist.getInstanceIndex())  # each instance its own
    first, local = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()

    ir = popxl.Ir("popdist")
    ir.num_host_transfers = 2
    with ir.main_graph, popxl.in_sequence():
        rows = popxl.h2d_stream((4,), popxl.float32, "rows")
        seeds = popxl.h2d_stream((2,), popxl.uint32, "seeds")
        dropped = popxl.d2h_stream((4,), popxl.float32, "dropped")
        total = popxl.variable(np.zeros(4, np.float32), name="total")

        def step(total: popxl.TensorByRef):
            x = ops.dropout(ops.host_load(rows), ops.host_load(seeds), 0.25)
            ops.host_store(dropped, x)
            ops.add_(total, ops.collectives.replicated_all_reduce(x, "mean"))

        ops.repeat(ir.create_graph(step, total), 2, total)

    seed = popxl.create_seeds(3, 0, replicas=popdist.getNumTotalReplicas()).reshape(-1, 2)
    own = data.reshape(2, -1, 4)[:, first : first + local]
    with popxl.Session(ir, "ipu_hw") as session:
        assert session._full_input_shape(()) == ((2,) if local == 1 else (2, local))
        out = session.run(
            {
                rows: own.reshape(session._full_input_shape(rows.shape)),
                seeds: np.stack([seed[first : first + local]] * 2).reshape(session._full_input_shape((2,))),
            }
        )
        sums = session.get_tensor_data(total)
    logging.info("total %s", sums.tolist())
    np.save(
        os.path.join(FOLDER, "{}.npy".format(popdist.getInstanceIndex())),
        out[dropped].reshape(2, -1, 4).swapaxes(0, 1),
    )
    try:
        fails()
    except Exception as error:
        logging.info("%s", "no such server" in str(error))


if __name__ == "__main__":
    main()
