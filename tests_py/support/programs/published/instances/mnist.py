"""Data parallel training of a classifier; each instance reads its own part of the data set."""

import argparse
import hashlib

import numpy as np
import popdist
import popxl
import popxl_addons as addons
from popxl import ops

CLASSES, FEATURES, BATCH, BATCHES = 4, 6, 4, 5


def data_set(samples):
    """Stands for images on disk: the class is the largest of some features."""
    rng = np.random.default_rng(7)
    images = rng.normal(0, 1, (samples, FEATURES)).astype(np.float32)
    return images, images[:, :CLASSES].argmax(1).astype(np.int32)


class Sampler:
    """Batches of the replicas of this instance: replica r of R has the samples r, r + R, r + 2R, ..."""

    def __init__(self, images, labels):
        self.total = popdist.getNumTotalReplicas()
        first = popdist.getReplicaIndexOffset()
        self.replicas = range(first, first + popdist.getNumLocalReplicas())
        self.images, self.labels = images, labels

    def __iter__(self):
        for batch in range(BATCHES):
            own = slice(batch * BATCH, (batch + 1) * BATCH)
            yield tuple(
                np.stack([part[replica :: self.total][own] for replica in self.replicas])
                for part in (self.images, self.labels)
            )


class Linear(addons.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features

    def build(self, x):
        rng = np.random.default_rng(self.features)
        w = self.add_variable_input("w", lambda: rng.normal(0, 0.3, (x.shape[-1], self.features)), x.dtype)
        b = self.add_variable_input("b", lambda: np.zeros(self.features), x.dtype)
        return x @ w + b


class Net(addons.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Linear(8), Linear(CLASSES)

    def build(self, x):
        return self.second(ops.gelu(self.first(x)))


def train_program(rate):
    ir = popxl.Ir(replication="popdist")
    with ir.main_graph, popxl.in_sequence():
        images = popxl.h2d_stream((BATCH, FEATURES), popxl.float32, "images")
        labels = popxl.h2d_stream((BATCH,), popxl.int32, "labels")
        losses = popxl.d2h_stream((), popxl.float32, "losses")
        x, y = ops.host_load(images), ops.host_load(labels)
        facts, net = Net().create_graph(x)
        backward = addons.autodiff(net, grads_required=net.args.tensors)
        variables = facts.init()
        call = net.bind(variables).call_with_info(x)
        loss, dx = addons.ops.cross_entropy_with_grad(call.outputs[0], y)
        ops.host_store(losses, loss)
        for variable, gradient in zip(
            variables.tensors, backward.call(dx, args=backward.grad_graph_info.inputs_dict(call))
        ):
            mean = ops.collectives.replicated_all_reduce(gradient, op="mean")
            ops.scaled_add_(variable, mean, b=-rate)
    return popxl.Session(ir, "ipu_hw"), images, labels, losses, variables


def test_program(samples):
    """On one replica, whichever instance runs it."""
    ir = popxl.Ir()
    with ir.main_graph:
        images = popxl.h2d_stream((samples, FEATURES), popxl.float32, "images")
        scores = popxl.d2h_stream((samples, CLASSES), popxl.float32, "scores")
        x = ops.host_load(images)
        facts, net = Net().create_graph(x)
        variables = facts.init()
        ops.host_store(scores, net.bind(variables).call(x)[0])
    return popxl.Session(ir, "ipu_hw"), images, scores, variables


@popdist.execute_on_instances({0})
def test(weights, images, labels):
    session, stream, scores, variables = test_program(len(images))
    session.write_variables_data(dict(zip(variables.tensors, weights)))
    with session:
        out = session.run({stream: images})[scores]
    print("right: {} of {}".format(np.sum(out.argmax(1) == labels), len(labels)))
    print("weights:", hashlib.blake2b(b"".join(w.tobytes() for w in weights), digest_size=8).hexdigest())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--lr", type=float, default=0.3)
    args = parser.parse_args()
    if popdist.isPopdistEnvSet():
        popdist.init()
    images, labels = data_set(popdist.getNumTotalReplicas() * BATCH * BATCHES)
    session, image_stream, label_stream, loss_stream, variables = train_program(args.lr)
    losses = []
    with session:
        for x, y in Sampler(images, labels):
            inputs = {
                image_stream: x.reshape(session._full_input_shape(image_stream.shape)),
                label_stream: y.reshape(session._full_input_shape(label_stream.shape)),
            }
            losses.append(np.atleast_1d(session.run(inputs)[loss_stream]))
    np.save("{}/{}.npy".format(args.folder, popdist.getInstanceIndex()), np.stack(losses, 1))
    test(list(session.get_tensors_data(variables.tensors).values()), images[:100], labels[:100])


if __name__ == "__main__":
    main()
