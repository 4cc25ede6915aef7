"""Patterns of paths over the layers of a model."""

import pytest

from popsr.bridge._step.paths import path_patterns


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        ([], []),
        (["params['w']"], ["params['w']"]),
        (["p['blocks'][0]['up']", "p['blocks'][1]['up']"], ["p['blocks'][*]['up']"]),
        (
            ["p['blocks'][0]['up']", "p['head']", "p['blocks'][1]['up']"],
            ["p['blocks'][*]['up']", "p['head']"],
        ),
        (["s[1][0].mu['b'][0]", "s[1][0].mu['b'][3]"], ["s[1][0].mu['b'][*]"]),
        (["layers.0.up.weight", "layers.11.up.weight"], ["layers.*.up.weight"]),
        (["h.0.mlp.3.bias", "h.1.mlp.3.bias"], ["h.*.mlp.3.bias"]),
        (["h.0.mlp.3.bias", "h.1.mlp.4.bias"], ["h.*.mlp.*.bias"]),
        (["p['Block_0']['kernel']", "p['Block_1']['kernel']"], ["p['Block_*']['kernel']"]),
        (["layers/0/attn", "layers/1/attn", "layers/1"], ["layers/*/attn", "layers/1"]),
        (["block_0/mlp", "block_1/mlp"], ["block_*/mlp"]),
        (["ln1", "ln2"], ["ln1", "ln2"]),
        (["w2d", "w3d"], ["w2d", "w3d"]),
        (["a*[0]", "a*[1]"], ["a*[*]"]),
        (["a*[2]"], ["a*[2]"]),
        (["x[0]", "x[0].y"], ["x[0]", "x[0].y"]),
    ],
)
def test_patterns(paths: list[str], patterns: list[str]) -> None:
    assert path_patterns(paths) == patterns
