"""The first spec of a user is valid, and knows the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.parse import parse_config, parse_partitions
from relight.launcher.site import Site, site_of
from relight.launcher.spec_file import parse_spec
from relight.launcher.starter import starter

DATA = Path(__file__).parents[1] / "data" / "slurm" / "22.05"
SITE = site_of(
    parse_config((DATA / "scontrol-show-config.txt").read_text()),
    parse_partitions((DATA / "scontrol-show-partition.txt").read_text()),
)


@pytest.mark.parametrize("site", [None, SITE])
def test_it_is_a_spec(site: Site | None) -> None:
    assert parse_spec(starter(site), "job.yaml").resources.time == 3600


def test_it_names_the_partitions_and_what_happens_there() -> None:
    text = starter(SITE)
    spec = parse_spec(text, "job.yaml")
    assert spec.resources.partition in {partition.name for partition in SITE.partitions}
    for partition in SITE.partitions:
        assert f"partition: {partition.name}" in text
    assert "a save must fit into that" in text
    everything = text.replace("# sbatch", "sbatch").replace("# env", "env").replace("# sec", "sec")
    assert parse_spec(everything, "job.yaml").sbatch == {"account": "abc"}
