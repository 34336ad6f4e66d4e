"""The Slurm client and cluster against fake commands on PATH: refusals, silence, odd answers.

Its length is the number of moods that Slurm can be in.
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.client import (
    NoSuchJob,
    SlurmClient,
    SlurmMissing,
    SlurmRefused,
    me,
    without_job_variables,
)
from relight.launcher.clusters.slurm.cluster import SlurmCluster
from relight.launcher.clusters.slurm.lookup import SubmissionUnknown
from relight.launcher.clusters.slurm.orphan import Claim, mark_path
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import (
    ClusterUnavailable,
    Restart,
    RestartRefused,
    StepRequest,
    StopCause,
)

DATA = Path(__file__).parents[1] / "data" / "slurm"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
RUNNING = (DATA / "22.05" / "scontrol-show-job-running.txt").read_text()
JOB_ID = re.match(r"JobId=(\d+)", RUNNING)[1]  # type: ignore[index]


def job_text(**fields: str) -> str:
    text = RUNNING
    for name, value in fields.items():
        text = re.sub(rf"(?<= ){name}=\S*", f"{name}={value}", text, count=1)
    return text


@dataclass
class FakeSlurm:
    """What the fake commands answer, and how they were called."""

    folder: Path

    def answer(self, command: str, out: str = "", *, err: str = "", code: int = 0) -> None:
        for suffix, content in (("out", out), ("err", err), ("rc", str(code))):
            (self.folder / f"{command}.{suffix}").write_text(content)

    def calls(self, command: str) -> list[list[str]]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split("\t")[1:] for line in lines if line.split("\t")[0] == command]

    def environment(self, command: str) -> dict[str, str]:
        lines = (self.folder / f"{command}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setenv("PATH", f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}")
    return FakeSlurm(folder)


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(pauses: list[float]) -> SlurmClient:
    return SlurmClient(sleep=pauses.append)


@pytest.fixture
def cluster(run_config: RunConfig, client: SlurmClient) -> SlurmCluster:
    env = {
        "SLURM_JOB_ID": JOB_ID,
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURMD_NODENAME": "n1",
        "SLURM_TRES_PER_TASK": "cpu:1",
        "PATH": os.environ["PATH"],
    }
    return SlurmCluster(replace(run_config, nodes=2), env, client)


def test_a_question_is_asked_again(
    slurm: FakeSlurm, client: SlurmClient, pauses: list[float]
) -> None:
    slurm.answer("scontrol", err=SILENT, code=1)
    (slurm.folder / "scontrol.3.out").write_text(RUNNING)
    assert client.job(JOB_ID).job_id == JOB_ID
    assert pauses == [0.5, 1.0]


def test_silence_is_not_an_answer(
    slurm: FakeSlurm, client: SlurmClient, pauses: list[float]
) -> None:
    slurm.answer("scontrol", err=SILENT, code=1)
    with pytest.raises(ClusterUnavailable, match="Unable to contact"):
        client.job(JOB_ID)
    assert len(pauses) == 4


def test_an_empty_answer_is_not_a_job(slurm: FakeSlurm, client: SlurmClient) -> None:
    slurm.answer("scontrol")
    with pytest.raises(ClusterUnavailable, match="not one job"):
        client.job(JOB_ID)


TROUBLES = [
    "slurm_load_jobs error: Protocol authentication error",
    "scontrol: error: If munged is up, restart with --num-threads=10",
    "Unable to establish controller machine",
    "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host",
    "Zero Bytes were transmitted or received",
    "Incompatible versions of client and server code",
    "Invalid job id specified",
]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_question_is_never_refused(slurm: FakeSlurm, cluster: SlurmCluster, trouble: str) -> None:
    slurm.answer("scontrol", err=trouble, code=1)
    cluster.allocation()  # costs only accuracy
    with pytest.raises(ClusterUnavailable, match=re.escape(trouble)):
        cluster.end_time()
    with pytest.raises(ClusterUnavailable, match=re.escape(trouble)):
        cluster.new_allocation([], "auto")


@pytest.mark.parametrize("trouble", TROUBLES[:-1])
def test_an_order_that_did_not_get_through_is_not_refused(
    slurm: FakeSlurm, client: SlurmClient, trouble: str
) -> None:
    slurm.answer("scontrol", err=trouble, code=1)
    with pytest.raises(ClusterUnavailable, match=re.escape(trouble)):
        client.requeue(JOB_ID)


def test_a_job_that_slurm_does_not_know(
    slurm: FakeSlurm, client: SlurmClient, pauses: list[float]
) -> None:
    slurm.answer("scontrol", err="slurm_load_jobs error: Invalid job id specified", code=1)
    with pytest.raises(NoSuchJob, match=f"show job {JOB_ID}.*Invalid job id"):
        client.job(JOB_ID)
    assert pauses == []


def test_a_job_that_has_left_the_queue(slurm: FakeSlurm, client: SlurmClient) -> None:
    slurm.answer("squeue", err="slurm_load_jobs error: Invalid job id specified", code=1)
    assert client.job_in_queue(JOB_ID) == []


def test_a_refusal_is_not_repeated(
    slurm: FakeSlurm, client: SlurmClient, pauses: list[float]
) -> None:
    slurm.answer("scontrol", err="Invalid job id specified", code=1)
    with pytest.raises(SlurmRefused, match="Invalid job id"):
        client.update(JOB_ID, "Requeue", "0")
    assert pauses == []


def test_without_slurm_the_supervisor_hears_of_silence(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterUnavailable, match="not on this machine's PATH"):
        cluster.end_time()
    with pytest.raises(ClusterUnavailable, match="not on this machine's PATH"):
        cluster.new_allocation([], "auto")


def test_a_command_that_hangs_is_ended(slurm: FakeSlurm) -> None:
    (slurm.folder / "scontrol.sleep").write_text("60")
    started = time.monotonic()
    with pytest.raises(ClusterUnavailable, match=r"within 0\.3 s"):
        SlurmClient(timeout_s=0.3, pauses_s=()).job(JOB_ID)
    assert time.monotonic() - started < 50


def test_no_slurm_here(
    client: SlurmClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmMissing, match="relight run"):
        client.job(JOB_ID)


def test_children_are_deaf_to_the_jobs_signals(slurm: FakeSlurm, client: SlurmClient) -> None:
    """Under linuxproc they are sent the TERM that follows a requeue."""
    slurm.answer("scontrol", RUNNING)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    client.job(JOB_ID)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    mask = int((slurm.folder / "scontrol.blocked").read_text().split()[1], 16)
    assert mask & (1 << signal.SIGTERM - 1)
    assert mask & (1 << signal.SIGUSR1 - 1)
    assert slurm.environment("scontrol")["LC_ALL"] == "C"


def test_a_new_job_does_not_inherit_the_old_ones_options(
    slurm: FakeSlurm,
    client: SlurmClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LC_ALL", "de_DE")
    slurm.answer("sbatch", "8\n")
    assert client.submit_successor(tmp_path / "job.sh", "7", ["n1", "n2"]) == "8"
    env = slurm.environment("sbatch")
    assert "SLURM_CPU_BIND" not in env
    assert "SLURM_JOB_ID" not in env
    assert env["SLURM_CONF"] == env["SBATCH_ACCOUNT"] == "x"
    assert env["LC_ALL"] == "de_DE"
    assert slurm.calls("sbatch") == [
        [
            "--parsable",
            "--dependency=afterany:7",
            "--exclude=n1,n2",
            str(tmp_path / "job.sh"),
        ]
    ]


def test_the_users_variables_do_not_change_the_form_of_answers(
    slurm: FakeSlurm, client: SlurmClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_TIME_FORMAT", "SQUEUE_STATES", "SINFO_FORMAT", "SLURM_CONF"):
        monkeypatch.setenv(name, "relative")
    slurm.answer("squeue")
    client.jobs_named("x", me())
    env = slurm.environment("squeue")
    assert env["SLURM_TIME_FORMAT"] == "standard"
    assert env["SLURM_CONF"] == "relative"
    assert not {"SQUEUE_STATES", "SINFO_FORMAT"} & set(env)


@pytest.mark.parametrize("inside", [True, False])
def test_nothing_overrides_what_the_script_says(inside: bool) -> None:
    job = {"SLURM_JOB_ID": "7"} if inside else {}
    kept = {"SBATCH_ACCOUNT": "a", "SBATCH_PARTITION": "b", "SBATCH_QOS": "c", "PATH": "/bin"}
    ours = {"SBATCH_JOB_NAME": "x", "SBATCH_SIGNAL": "TERM@9", "SBATCH_OUTPUT": "y"}
    assert without_job_variables({**job, **kept, **ours}) == kept


def test_the_user_is_who_runs_this(
    healthy: FakeSlurm, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    cluster.new_allocation([], "successor")
    assert f"--user={os.getuid()}" in healthy.calls("squeue")[0]


def test_outside_a_job_the_environment_is_the_users() -> None:
    env = {"SLURM_CLUSTERS": "a", "SBATCH_PARTITION": "b"}
    assert without_job_variables(env) == env


def test_allocation(slurm: FakeSlurm, cluster: SlurmCluster) -> None:
    slurm.answer("scontrol", RUNNING)
    allocation = cluster.allocation()
    assert allocation.attempt == f"{JOB_ID}.0"
    assert allocation.nodes == ("n1", "n2", "n3")
    assert cluster.end_time() is not None


@pytest.mark.parametrize(
    ("nodes", "in_order"), [(("n1", "n3"), True), (("n1", "n2", "n3"), True), (("n3", "n1"), False)]
)
def test_tasks_follow_the_order_of_nodes(
    slurm: FakeSlurm, cluster: SlurmCluster, nodes: tuple[str, ...], in_order: bool
) -> None:
    slurm.answer("scontrol", RUNNING)
    request = StepRequest(
        name="ranks",
        nodes=nodes,
        tasks_per_node=2,
        cpus_per_task=1,
        argv=("agent", "--x"),
        env={"A": "1"},
        mpi="pmix",
    )
    command = cluster.step_command(request)
    assert command.argv[0] == "srun"
    assert command.argv[-3:] == ("--", "agent", "--x")
    assert f"--ntasks={2 * len(nodes)}" in command.argv
    assert "--mpi=pmix" in command.argv
    assert command.env["A"] == "1"
    assert "SLURM_TRES_PER_TASK" not in command.env
    if in_order:
        assert f"--nodelist={','.join(nodes)}" in command.argv
        assert "SLURM_HOSTFILE" not in command.env
    else:
        assert "--distribution=arbitrary" in command.argv
        lines = Path(command.env["SLURM_HOSTFILE"]).read_text().split()
        assert lines == [node for node in nodes for _ in range(2)]


def test_silence_makes_a_stop_unknown(slurm: FakeSlurm, cluster: SlurmCluster) -> None:
    slurm.answer("scontrol", RUNNING)
    cluster.allocation()
    slurm.answer("scontrol", err=SILENT, code=1)
    notice = cluster.stop_notice("SIGTERM", to_supervisor=True)
    assert (notice.cause, notice.kill_at) == (StopCause.UNKNOWN, None)


def test_silence_says_nothing_of_nodes(slurm: FakeSlurm, cluster: SlurmCluster) -> None:
    slurm.answer("sinfo", err=SILENT, code=1)
    assert cluster.node_conditions(["n1", "n2"]) == {"n1": "unknown", "n2": "unknown"}


def test_a_node_that_has_booted_since_is_named(slurm: FakeSlurm, cluster: SlurmCluster) -> None:
    node = (DATA / "22.05" / "scontrol-show-node.txt").read_text()
    before = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(cluster.begun - 60))
    n1, n2 = (re.sub(r"BootTime=\S+", f"BootTime={when}", node) for when in (before, "Unknown"))
    later = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(cluster.begun + 60))
    n3 = re.sub(r"BootTime=\S+", f"BootTime={later}", node.replace("=n1 ", "=n3 "))
    slurm.answer("scontrol", n1 + n2.replace("=n1 ", "=n2 ") + n3)
    assert cluster.rebooted(["n1", "n2", "n3"]) == ("n3",)
    slurm.answer("scontrol", err=SILENT, code=1)
    assert cluster.rebooted(["n1", "n2", "n3"]) == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"n1": "up", "n4": "up"}),
        ({"NodeList": "n[2-3]"}, {"n1": "down", "n4": "up"}),
        ({"NodeList": "n[2-3]", "Restarts": "1"}, {"n1": "up", "n4": "up"}),
        ({"NodeList": "(null)", "JobState": "PENDING"}, {"n1": "up", "n4": "up"}),
    ],
)
def test_a_node_that_was_taken_out_of_the_job_is_down_for_it(
    slurm: FakeSlurm, cluster: SlurmCluster, fields: dict[str, str], expected: dict[str, str]
) -> None:
    """n4 was never in this allocation: an earlier attempt had it."""
    slurm.answer("sinfo", "n1|idle\nn4|idle\n")
    slurm.answer("scontrol", job_text(**{"NodeList": "n[1-3]", **fields}))
    assert cluster.node_conditions(["n1", "n4"]) == expected


@pytest.fixture
def healthy(slurm: FakeSlurm) -> FakeSlurm:
    """A job that runs in a partition of six idle nodes; sbatch accepts."""
    slurm.answer("scontrol", job_text(Requeue="1"))
    slurm.answer("sinfo", "".join(f"n{number}|idle\n" for number in range(1, 7)))
    slurm.answer("sbatch", "99\n")
    return slurm


def test_successor(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    assert cluster.new_allocation(["n2"], "auto") == Restart("successor", "99")
    updates = [call for call in healthy.calls("scontrol") if call[0] == "update"]
    assert updates == [["update", f"JobId={JOB_ID}", "Requeue=0"]]
    assert "--exclude=n2" in healthy.calls("sbatch")[0]


def test_what_follows_waits_for_no_spare(
    healthy: FakeSlurm, client: SlurmClient, cluster: SlurmCluster
) -> None:
    """Two of four nodes are left for it and its spare, and Slurm does not yet hold n1 for down."""
    with_spare = replace(cluster.config, spares=1, tasks_per_node=2, cpus_per_task=3)
    healthy.answer("sinfo", "n1|idle\nn2|idle\nn3|idle\nn4|idle\n")
    healthy.answer("scontrol", job_text(ExcNodeList="n[1-2]"))
    SlurmCluster(with_spare, cluster.env, client).new_allocation(["n1", "n2"], "successor")
    assert {"--nodes=2-3", "--exclude=n1,n2"} <= set(healthy.calls("sbatch")[0])
    SlurmCluster(with_spare, cluster.env, client).new_allocation(["n1", "n2"], "requeue")
    assert not [call for call in healthy.calls("scontrol") if "NumNodes=2-3" in call], "it runs"
    healthy.answer("scontrol", job_text(ExcNodeList="n[1-2]", JobState="COMPLETING"))
    SlurmCluster(with_spare, cluster.env, client).new_allocation(["n1", "n2"], "requeue")
    calls = healthy.calls("scontrol")
    resized = ["update", f"JobId={JOB_ID}", "NumNodes=2-3", "NumCPUs=12"]
    excluded = ["update", f"JobId={JOB_ID}", "ExcNodeList=n1,n2"]
    places = [calls.index(call) for call in (["requeue", JOB_ID], excluded, resized)]
    assert places == sorted(places), "a site that refuses the size has the exclusions"


def test_at_most_once(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    first = cluster.new_allocation([], "auto")
    healthy.answer("scontrol", job_text(ExcNodeList="n1"))
    assert cluster.new_allocation(["n1"], "auto") is first
    assert len(healthy.calls("sbatch")) == 1
    updates = [call for call in healthy.calls("scontrol") if call[0] == "update"]
    assert updates[1:] == [["update", "JobId=99", "ExcNodeList=n1"]]


def test_what_is_arranged_stands_when_it_cannot_hear_of_more_nodes(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    first = cluster.new_allocation([], "auto")
    healthy.answer("scontrol", err="slurm_load_jobs error: Invalid job id specified", code=1)
    assert cluster.new_allocation(["n1"], "auto") is first
    assert len(healthy.calls("sbatch")) == 1


def test_the_users_own_exclusions_stay(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    healthy.answer("scontrol", job_text(ExcNodeList="n[5-6]"))
    cluster.new_allocation(["n2"], "successor")
    assert "--exclude=n5,n6,n2" in healthy.calls("sbatch")[0]


def test_the_oldest_exclusion_is_dropped_when_nodes_run_out(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    healthy.answer("sinfo", "n1|idle\nn2|idle\nn3|down*\nn4|idle\n")
    arranged = cluster.new_allocation(["n3", "n1", "n2"], "successor")  # two nodes are needed
    assert "--exclude=n3,n2" in healthy.calls("sbatch")[0]
    assert arranged.released == ("n1",)
    healthy.answer("sinfo", "n1|idle\nn2|idle\nn3|idle\n")
    assert cluster.new_allocation(["n3", "n1", "n2"], "successor").released == ("n3", "n1")


def test_a_name_that_slurm_does_not_know_is_not_excluded(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    """Slurm refuses the whole job for one: of a node that is no more, or was never."""
    healthy.answer("sinfo", "n1|idle\nn2|idle\nn3|idle\nn4|idle\n")
    cluster.new_allocation(["n99", "n2"], "successor")
    assert "--exclude=n2" in healthy.calls("sbatch")[0]


def test_an_empty_answer_lets_no_bad_node_in(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    healthy.answer("sinfo", "")
    cluster.new_allocation(["n2"], "successor")
    assert "--exclude=n2" in healthy.calls("sbatch")[0]


@pytest.mark.parametrize("third", ["", "n3|drained\n"])
def test_a_job_does_not_exclude_the_node_that_it_cannot_start_without(
    healthy: FakeSlurm, cluster: SlurmCluster, third: str
) -> None:
    """n2 is down and may boot again; the job waits for it, as two nodes are needed."""
    healthy.answer("sinfo", f"n1|idle\nn2|down*\n{third}")
    cluster.new_allocation(["n2"], "successor")
    assert not any(word.startswith("--exclude") for word in healthy.calls("sbatch")[0])


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "TIMEOUT"])
@pytest.mark.parametrize("mode", ["auto", "requeue"])
def test_a_job_that_has_ended_is_not_restarted(
    healthy: FakeSlurm, cluster: SlurmCluster, state: str, mode: str
) -> None:
    healthy.answer("scontrol", job_text(JobState=state))
    with pytest.raises(RestartRefused, match=f"job {JOB_ID} is {state}"):
        cluster.new_allocation([], mode)
    assert healthy.calls("sbatch") == []
    assert {call[0] for call in healthy.calls("scontrol")} <= {"--oneliner", "show"}


def test_when_a_warden_has_taken_over(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    path = mark_path(RunFolder(cluster.config.run_dir), cluster.allocation().attempt)
    path.parent.mkdir(parents=True)
    claim = Claim(path, "n2.7", time.monotonic)
    assert claim.take()
    claim.arranged(Restart("successor", "98"))
    assert cluster.new_allocation([], "auto") == Restart("successor", "98")
    assert healthy.calls("sbatch") == []


def test_while_a_warden_takes_over(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    path = mark_path(RunFolder(cluster.config.run_dir), cluster.allocation().attempt)
    path.parent.mkdir(parents=True)
    assert Claim(path, "n2.7", time.monotonic).take()
    cluster.new_allocation([], "auto")
    assert healthy.calls("sbatch") == []
    assert {call[0] for call in healthy.calls("scontrol")} <= {"--oneliner", "show"}


def test_a_node_that_nodelist_asks_for(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    healthy.answer("scontrol", job_text(ReqNodeList="n[1-2]"))
    with pytest.raises(RestartRefused, match=r"take them out of sbatch\.nodelist"):
        cluster.new_allocation(["n2"], "auto")
    assert healthy.calls("sbatch") == []


TIMED_OUT = "sbatch: error: Socket timed out on send/recv"
OWN = f"{JOB_ID}|RUNNING|None\n"


def test_a_second_life_finds_the_successor_of_the_first(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    """And tells it of the nodes that had to be left since."""
    healthy.answer("scontrol", job_text(Requeue="0", ExcNodeList="n2"))
    healthy.answer("squeue", f"98|COMPLETING|None\n{OWN}99|PENDING|Dependency\n")
    assert cluster.new_allocation(["n2"], "auto") == Restart("successor", "99")
    assert healthy.calls("sbatch") == []
    assert ["update", "JobId=99", "ExcNodeList=n2"] in healthy.calls("scontrol")


def squeue(slurm: FakeSlurm, *answers: str | None) -> None:
    """What squeue says, call by call; None is silence."""
    for call, answer in enumerate(answers, start=1):
        (slurm.folder / f"squeue.{call}.out").write_text(answer or "")
        (slurm.folder / f"squeue.{call}.rc").write_text("1" if answer is None else "0")


def sbatch_times_out_once(slurm: FakeSlurm) -> None:
    (slurm.folder / "sbatch.1.err").write_text(TIMED_OUT)
    (slurm.folder / "sbatch.1.rc").write_text("1")


@pytest.mark.parametrize("silent", [0, 1, 3])
def test_sbatch_that_timed_out_but_worked(
    healthy: FakeSlurm, cluster: SlurmCluster, silent: int, pauses: list[float]
) -> None:
    sbatch_times_out_once(healthy)
    squeue(healthy, OWN, *[None] * silent, f"{OWN}98|PENDING|Dependency\n")
    assert cluster.new_allocation([], "successor") == Restart("successor", "98")
    assert len(healthy.calls("sbatch")) == 1
    assert pauses == [1.0, 3.0, 9.0, 17.0][: silent + 1]


def test_sbatch_that_timed_out_and_worked_late(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    sbatch_times_out_once(healthy)
    squeue(healthy, OWN, OWN, f"{OWN}98|PENDING|Dependency\n")
    assert cluster.new_allocation([], "successor") == Restart("successor", "98")
    assert len(healthy.calls("sbatch")) == 1


def test_sbatch_that_timed_out_and_did_not_work(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    sbatch_times_out_once(healthy)
    squeue(healthy, OWN, OWN, OWN)
    assert cluster.new_allocation([], "successor") == Restart("successor", "99")
    assert len(healthy.calls("sbatch")) == 2


def test_nobody_knows_whether_sbatch_worked(
    healthy: FakeSlurm, cluster: SlurmCluster, run_config: RunConfig
) -> None:
    sbatch_times_out_once(healthy)
    squeue(healthy, OWN, OWN, None, None, None)
    with pytest.raises(SubmissionUnknown, match=f"squeue --me --name={run_config.run_id}"):
        cluster.new_allocation([], "auto")
    assert len(healthy.calls("sbatch")) == 1
    assert ["requeue", JOB_ID] not in healthy.calls("scontrol")


def test_refused_successor_falls_back_to_requeue(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    healthy.answer("sbatch", err="Job violates accounting/QOS policy", code=1)
    assert cluster.new_allocation([], "auto") == Restart("requeue", JOB_ID)
    calls = healthy.calls("scontrol")
    assert ["requeue", JOB_ID] in calls
    assert calls.index(["update", f"JobId={JOB_ID}", "Requeue=1"]) < calls.index(
        ["requeue", JOB_ID]
    )


def test_refused_successor_when_nothing_else_is_wanted(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    healthy.answer("sbatch", err="Job violates accounting/QOS policy", code=1)
    with pytest.raises(RestartRefused, match="QOS policy"):
        cluster.new_allocation([], "successor")


def test_requeue_excludes_and_reads_back(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    healthy.answer("scontrol", job_text(ExcNodeList="n2"))
    assert cluster.new_allocation(["n2"], "requeue") == Restart("requeue", JOB_ID)
    assert ["update", f"JobId={JOB_ID}", "ExcNodeList=n2"] in healthy.calls("scontrol")


def test_silence_after_a_requeue_does_not_undo_it(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    cluster.allocation()
    healthy.answer("scontrol", err=SILENT, code=1)
    for call, answer in ((3, job_text(Requeue="1")), (4, "")):  # the question, then the requeue
        (healthy.folder / f"scontrol.{call}.out").write_text(answer)
    assert cluster.new_allocation(["n2"], "requeue") == Restart("requeue", JOB_ID)
    assert healthy.calls("scontrol")[3] == ["requeue", JOB_ID]


def test_no_successor_for_a_job_that_slurm_has_requeued(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    healthy.answer("scontrol", job_text(Restarts="1", ExcNodeList="n2"))
    assert cluster.new_allocation(["n2"], "auto") == Restart("requeue", JOB_ID)
    assert healthy.calls("sbatch") == []
    assert ["requeue", JOB_ID] not in healthy.calls("scontrol")


def test_a_refused_order_is_a_refused_restart(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    cluster.allocation()
    (healthy.folder / "scontrol.4.err").write_text("Access/permission denied")
    (healthy.folder / "scontrol.4.rc").write_text("1")
    with pytest.raises(RestartRefused, match="permission denied"):
        cluster.new_allocation([], "successor")
    assert healthy.calls("sbatch") == []


@pytest.mark.parametrize(
    ("restarts", "expected"),
    [("0", Restart("successor", "99")), ("1", Restart("requeue", JOB_ID))],
)
def test_a_job_that_is_being_ended_takes_no_orders(
    healthy: FakeSlurm, cluster: SlurmCluster, restarts: str, expected: Restart
) -> None:
    """Slurm has decided by then whether it requeues it."""
    cluster.allocation()
    healthy.answer("scontrol", job_text(JobState="COMPLETING", Requeue="1", Restarts=restarts))
    (healthy.folder / "scontrol.4.err").write_text("Job/step already completing or completed")
    (healthy.folder / "scontrol.4.rc").write_text("1")
    assert cluster.new_allocation([], "successor") == expected


def test_withdraw_of_a_job_that_is_gone(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    healthy.answer("scancel", err="scancel: error: Invalid job id 99", code=1)
    healthy.answer("scontrol", err="slurm_load_jobs error: Invalid job id specified", code=1)
    cluster.withdraw(Restart("successor", "99"))


def test_withdraw(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    cluster.withdraw(Restart("successor", "99"))
    assert healthy.calls("scancel") == [["99"]]


def given_back(slurm: FakeSlurm) -> list[list[str]]:
    return [call for call in slurm.calls("scontrol") if "NodeList=" in call[-1][:9]]


def test_the_end_of_a_job_does_not_wait_for_nodes_that_are_gone(
    healthy: FakeSlurm, cluster: SlurmCluster
) -> None:
    cluster.new_allocation(["n3"], "successor")
    cluster.give_back(())
    cluster.give_back(("n3",))
    assert given_back(healthy) == [["update", f"JobId={JOB_ID}", "NodeList=n1,n2"]]
    healthy.answer("scontrol", err="Requested operation is presently disabled", code=1)
    cluster.give_back(("n3",))  # then it waits


def test_a_job_that_starts_again_keeps_its_nodes(healthy: FakeSlurm, cluster: SlurmCluster) -> None:
    cluster.new_allocation(["n3"], "requeue")
    cluster.give_back(("n3",))
    assert given_back(healthy) == []
