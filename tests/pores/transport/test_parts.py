"""Connected parts of a phase within blocks, against SciPy's labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve

from hushpore.pores.parallel import KernelThreads
from hushpore.pores.transport import parts as module
from hushpore.pores.transport.parts import Coarse, spanning_parts


@pytest.mark.parametrize("shape", [(20, 17, 24), (8, 8, 8), (1, 30, 5)])
@pytest.mark.parametrize("share", [0.35, 0.6])
def test_parts_hold_the_voxels_that_span_the_volume(shape: tuple[int, ...], share: float) -> None:
    inside = np.random.default_rng(3).random(shape) < share
    label, _ = ndimage.label(inside)
    through = np.intersect1d(label[0], label[-1])
    spans = np.isin(label, through[through > 0])
    with KernelThreads(2) as threads:
        parts = spanning_parts(inside, threads)
    if not spans.any():
        assert parts is None
        return
    assert parts is not None
    number = parts.at((slice(None),) * 3)
    assert np.array_equal(number >= 0, spans)
    blocks = np.indices(shape) // 8
    for part in range(parts.used):
        own = number == part
        assert ndimage.label(own)[1] == 1
        assert all(np.ptp(axis[own]) == 0 for axis in blocks)


def test_a_phase_that_spans_nothing_has_no_parts() -> None:
    with KernelThreads(1) as threads:
        assert spanning_parts(np.zeros((9, 9, 9), bool), threads) is None


@pytest.mark.parametrize("most", [10, 100, 10_000])
def test_potentials_of_parts_are_those_of_the_matrix(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DIRECT", most)
    edge = 12
    line = sparse.diags_array([-np.ones(edge - 1), np.full(edge, 2.0), -np.ones(edge - 1)],
                              offsets=[-1, 0, 1])  # fmt: skip
    one = sparse.eye_array(edge)
    matrix = sum(
        sparse.kron(sparse.kron(*pair), last)
        for pair, last in (((line, one), one), ((one, line), one), ((one, one), line))
    ).tocsr()
    block = np.indices((edge,) * 3).reshape(3, -1).T
    sources = np.random.default_rng(0).random(edge**3)
    found, expected = Coarse(matrix, block).solve(sources), spsolve(matrix.tocsc(), sources)
    assert np.linalg.norm(found - expected) < 0.1 * np.linalg.norm(expected)
    assert not Coarse(matrix, block).solve(np.zeros_like(sources)).any()
