"""A node or a cluster that Slurm does not know, when it is excluded by hand."""

from __future__ import annotations

import pytest

from relight.launcher.cli.nodes import _doubt
from relight.launcher.clusters.slurm.client import SlurmClient


@pytest.mark.parametrize(
    ("cluster", "node", "doubt"),
    [
        (None, "n4", None),
        ("mini", "n4", None),
        ("mini", "n77", "this Slurm has no node n77"),
        ("nope", "n4", "the cluster here is mini, and not nope"),
    ],
)
def test_what_makes_one_doubt(
    monkeypatch: pytest.MonkeyPatch, cluster: str | None, node: str, doubt: str | None
) -> None:
    monkeypatch.setattr(SlurmClient, "config", lambda _self: {"ClusterName": "mini"})
    monkeypatch.setattr(SlurmClient, "node_states", lambda _self, _nodes: {"n4": "idle"})
    assert _doubt(cluster, node) == doubt
