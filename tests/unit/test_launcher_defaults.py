"""Limits of checks: the site's, then the user's, then the spec's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from relight.launcher import defaults
from relight.launcher.launch_plan import Submitter
from relight.launcher.layers import Layer, merged
from relight.launcher.plan import plan
from relight.launcher.spec import JobSpec
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import build_spec, load_spec, parse_spec
from relight.resilience.config import HealthConfig, RunConfig


def spec(health: str = "{}") -> JobSpec:
    return parse_spec(f"command: [a]\nhealth: {health}", "job.yaml")


def over(health: Mapping[str, object], *files: Mapping[str, object]) -> JobSpec:
    """A spec over files of the site and the user."""
    layers = [Layer({"health": file}, {}) for file in (*files, health)]
    value = merged([*layers, Layer({"command": ["a"]}, {})]).value
    return build_spec(value, {})


def config(job: JobSpec) -> HealthConfig:
    submitter = Submitter(
        run_id="r",
        runs_dir=Path("/runs"),
        working_dir=Path("/home/u"),
        python="python",
        version="0",
        made_by="test",
    )
    return plan(job, submitter, "slurm").config.health


def test_the_spec_counts_most_and_the_user_more_than_the_site() -> None:
    files: list[Mapping[str, object]] = [
        {
            "checks": {"load": {"per_cpu": 4}, "swap": False},
            "budget": "60s",
            "mounts": ["/scratch"],
        },
        {
            "checks": {"gpu_ecc": {"corrected": 5}, "swap": {"used_bytes": 7}},
            "site_command": "nhc",
        },
    ]
    spec = {"budget": "10s", "checks": {"gpu_ecc": {"uncorrected": 1}}}
    health = config(over(spec, *files))
    assert health.budget_s == 10.0
    assert health.site_command == "nhc"
    assert health.mounts == ("/scratch",)
    assert health.skip == ()
    assert health.limits == {
        "load": {"per_cpu": 4.0},
        "swap": {"used_bytes": 7.0},
        "gpu_ecc": {"corrected": 5.0, "uncorrected": 1.0},
    }


def test_a_check_that_is_off() -> None:
    for text in ("{checks: {swap: off}}", "{checks: {swap: 'off'}}"):
        assert config(spec(text)).skip == ("swap",)
    assert config(over({"checks": {"swap": "off"}}, {"checks": {"swap": {}}})).skip


def test_paths_are_those_of_the_submission() -> None:
    assert config(spec("{xid_table: xids.json}")).xid_table == "/home/u/xids.json"


def test_it_is_stored_and_read_back(run_config: RunConfig) -> None:
    health = config(spec("{mounts: [/a], checks: {swap: off, load: {per_cpu: 3}}}"))
    stored = dataclasses.replace(run_config, health=health)
    assert RunConfig.from_json(stored.to_json()) == stored


@pytest.mark.parametrize(
    ("health", "part"),
    [
        ("{checks: {lode: off}}", "job.yaml:2: health.checks.lode: no such check"),
        (
            "{checks: {load: {cpu: 1}}}",
            "load.cpu: no limit of this check; it has per_cpu",
        ),
        ("{checks: {names: {most: 1}}}", "it has none"),
        ("{checks: {load: 3}}", "health.checks.load"),
        ("{checks: {load: {per_cpu: many}}}", "health.checks.load"),
        ("{mounts: /scratch}", "health.mounts: '/scratch' is not a list"),
    ],
)
def test_mistakes(health: str, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(health)
    assert part in str(caught.value)


def test_the_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "SITE_FILE", tmp_path / "site.yaml")
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    (tmp_path / "job.yaml").write_text("command: [a]\n")
    assert load_spec(tmp_path / "job.yaml")[0].health.site_command is None
    (tmp_path / "site.yaml").write_text("health: {site_command: nhc, on_unknown: fail}\n")
    (tmp_path / "relight.yaml").write_text("health: {site_command: mine}\n")
    health = load_spec(tmp_path / "job.yaml")[0].health
    assert (health.site_command, health.on_unknown) == ("mine", "fail")
    (tmp_path / "relight.yaml").write_text("health: {site_comand: mine}\n")
    with pytest.raises(SpecError, match=r"relight\.yaml:1: unknown key 'health\.site_comand'"):
        load_spec(tmp_path / "job.yaml")
