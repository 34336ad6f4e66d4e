"""What follows from a site's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.errors import UsageError
from relight.launcher.cli.doctor import command
from relight.launcher.clusters.slurm.parse import UserLimits, parse_config, parse_partitions
from relight.launcher.doctor import Finding, Save, as_text, examine, save_of_state
from relight.launcher.site import site_of

RECORDED = Path(__file__).parents[1] / "data" / "slurm" / "22.05"
CONFIG = parse_config((RECORDED / "scontrol-show-config.txt").read_text())
PARTITIONS = parse_partitions((RECORDED / "scontrol-show-partition.txt").read_text())


def findings(
    save: Save | None = None, limits: list[UserLimits] | None = None, **config: str
) -> dict[str, Finding]:
    changed = {**CONFIG, **config}
    found = examine(changed, site_of(changed, PARTITIONS), save, limits)
    return {finding.subject: finding for finding in found}


def test_the_mini_cluster() -> None:
    found = findings()
    assert found["Slurm"].fact == "22.05.8"
    assert found["wait of a requeued job"].fact == "31 s"
    assert "less than 15 s" in found["preemption in low"].follows
    assert found["preemption in high"].fact == "none"
    assert found["signals"].fact == "linuxproc"
    assert found["send_user_signal"].fact == "off"
    assert not any(finding.matters for finding in found.values())


def test_a_save_that_takes_too_long_comes_first() -> None:
    found = findings(save_of_state(400 << 30, 2 << 30, "/lustre/me"))
    assert found["preemption in low"].matters
    assert found["preemption in low"].follows == (
        "a state of 400 GiB needs 200 s to save at the measured rate of /lustre/me (2 GiB/s by one "
        "process of this machine); the grace of partition low is 15 s: set checkpoint.interval to "
        "what you can afford to lose, for that save comes too late"
    )
    assert found["time limit"].follows.endswith("set checkpoint.lead: 250s")
    assert as_text(list(found.values())).startswith("! time limit")
    short = findings(Save(10, "a save of your state takes 10 s"))
    assert "that fits" in short["preemption in low"].follows
    assert "time limit" not in short


@pytest.mark.parametrize("more", ["--checkpoint-dir=.", "--state=4GB"])
def test_the_time_of_a_save_is_said_in_one_way(more: str) -> None:
    refused = CliRunner().invoke(command, ["--save", "90s", more])
    assert isinstance(refused.exception, UsageError)
    assert "leave the one or the others out" in str(refused.exception)


def test_other_sites() -> None:
    assert findings(AuthInfo="(null)")["wait of a requeued job"].fact == "121 s"
    assert findings(AuthInfo="cred_expire=3")["wait of a requeued job"].fact == "121 s"
    assert "successor" in findings(JobRequeue="0")["JobRequeue"].follows
    cgroup = findings(ProctrackType="proctrack/cgroup")["signals"]
    assert "passes them on" in cgroup.follows
    assert findings(PreemptParameters="send_user_signal")["send_user_signal"].fact == "on"
    assert "JobFileAppend" not in findings(JobFileAppend="1")
    subject, forbidden = "steps over components", "bf_interval=2,disable_hetjob_steps"
    assert subject not in findings()
    assert "do not start" in findings(SchedulerParameters=forbidden)[subject].follows


def test_how_many_jobs_a_user_may_have() -> None:
    enforced = {"AccountingStorageEnforce": "associations,limits"}
    assert findings()["jobs of yours"].fact == "unknown"
    some = [UserLimits("abc", "", 4, 9), UserLimits("def", "", None, None)]
    found = findings(None, some, **enforced)["jobs of yours"]
    assert (found.fact, found.matters) == ("MaxJobs 4, MaxSubmitJobs 9 (abc)", False)
    assert "waits for room" in found.follows
    assert findings(None, some)["jobs of yours"].fact.endswith("; not enforced")
    assert findings(None, some[1:], **enforced)["jobs of yours"].fact == "no limit"
    one = findings(None, [UserLimits("abc", "low", None, 1)], **enforced)["jobs of yours"]
    assert (one.fact, one.matters) == ("MaxSubmitJobs 1 (abc in low)", True)
    assert "comes back by requeue" in one.follows


def test_a_silent_configuration_is_no_error() -> None:
    found = examine({}, site_of({}, []), None, None)
    assert next(one for one in found if one.subject == "loss of a node").fact == "unknown"
