"""Scripts sent by `relight sbatch` run as under sbatch, and survive."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from health.plugin import install
from stage.run import Run
from stage.site import RELIGHT, Site, eventually
from stage.whole import whole

FACTS = """#!/bin/bash
#SBATCH --output=facts-%x.out --ntasks=3
#SBATCH --nodes=2 # two hosts
#SBATCH --export=ALL,GREETING="good day"
#SBATCH --time=5
echo "arguments: $#: $1|$2"
echo "in $PWD, umask $(umask), limits $(ulimit -n -s -c | tr '\\n' ' ')"
echo "standard input $(readlink /proc/self/fd/0)"
echo "dispositions $(grep -E 'Sig(Ign|Cgt|Blk)' /proc/self/status | tr '\\n' ' ')"
echo "$GREETING"
srun bash -c 'echo task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME' | sort
tr '\\0' '\\n' < /proc/$$/environ | sort
#SBATCH --nodes=5
"""
# Saves its own counter, knows nothing of relight, and stands at 20 and so on until it is ended.
COUNTER = """#!/bin/bash
#SBATCH --time=5 --output=counter.out
n=$(cat counter 2>/dev/null || echo 0) end=${1:-40}
echo "from $n on $SLURMD_NODENAME in life ${SLURM_RESTART_COUNT:-0}"
while [ "$n" -lt "$end" ]; do
    n=$((n + 1))
    echo "$n" > counter.new && mv counter.new counter
    while [ "$n" -lt "$end" ] && [ $((n % 20)) -eq 0 ]; do sleep 0.2; done
done
echo "end $n"
"""


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder of the user's with scripts, and two ways to send them."""

    site: Site
    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def call(self, *argv: str) -> str:
        return self.site.user("env", f"--chdir={self.folder}", *argv)

    def plainly(self, *words: str) -> str:
        return _job_id(self.call("sbatch", *words))

    def relight(self, *words: str) -> Run:
        job_id = _job_id(self.call(str(RELIGHT), "sbatch", *words))
        status = self.site.user(str(RELIGHT), "status", "--json", job_id)
        run_id, root = _identity(status)
        return Run(self.site, run_id, job_id, root)

    def wait(self, *job_ids: str, limit_s: float = 180) -> None:
        def gone() -> bool:
            return not set(job_ids) & set(self.site.jobs())

        eventually(gone, limit_s, lambda: self.site.user("squeue"))

    def counting(self, *words: str) -> Run:
        """The counter's run, once it stands at 20."""
        self.write("counter.sh", COUNTER)
        run = self.relight("counter.sh", *words)
        run.wait(lambda: self.text("counter") == "20\n")
        return run

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


def _job_id(answer: str) -> str:
    words = answer.split()
    assert words[:3] == ["Submitted", "batch", "job"], answer
    return words[3]


def _identity(status: str) -> tuple[str, Path]:
    answer = json.loads(status)
    return answer["run_id"], Path(answer["run_dir"])


@pytest.fixture
def desk(site: Site, tmp_path: Path) -> Desk:
    folder = site.shared / tmp_path.name
    site.user("mkdir", "-p", str(folder))
    return Desk(site, folder)


# What no two jobs share, and what relight adds.
_OWN = re.compile(
    r"RELIGHT_|SLURM_(JOB_ID|JOBID|JOB_START_TIME|JOB_END_TIME|TASK_PID|JOB_NODELIST|NODELIST)="
    r"|(SLURM_TOPOLOGY_ADDR|SLURMD_NODENAME|HOSTNAME|_)="
)


def _comparable(text: str) -> list[str]:
    lines = re.sub(r" on n\d+$", " on a host", text, flags=re.MULTILINE).splitlines()
    return [line for line in lines if not _OWN.match(line)]


def test_a_script_finds_what_it_finds_under_sbatch(desk: Desk) -> None:
    desk.write("facts.sh", FACTS)
    plain = desk.plainly("-J", "plain", "--mem=500M", "facts.sh", "a b", "*")
    desk.wait(plain)
    run = desk.relight("-J", "relit", "--mem=500M", "facts.sh", "a b", "*")
    desk.wait(run.job_id)
    expected = _comparable(desk.text("facts-plain.out"))
    assert len(expected) > 40
    found = _comparable(desk.text("facts-relit.out").replace("relit", "plain"))
    assert found == expected
    assert "arguments: 2: a b|*" in found
    assert run.status()["state"] == "COMPLETED"


def test_preemption(desk: Desk) -> None:
    run = desk.counting()
    desk.site.preempt(seconds=1)
    assert run.finish()["state"] == "COMPLETED", run.story()
    lines = desk.text("counter.out").splitlines()
    starts = [line for line in lines if line.startswith("from")]
    assert len(starts) == 2, run.story()
    assert lines[-1] == "end 40"
    assert run.status()["job_id"] == run.job_id, "the job keeps its id"


def test_power_loss_of_the_batch_host(desk: Desk) -> None:
    run = desk.counting()
    victim = run.batch_node()
    desk.site.node("kill", victim)
    try:
        assert run.finish()["state"] == "COMPLETED", run.story()
        assert desk.text("counter.out").splitlines()[-1] == "end 40"
        assert run.batch_node() != victim
        assert run.status()["job_id"] == run.job_id
    finally:
        desk.site.node("start", victim)


def test_a_script_that_fails_is_not_run_again(desk: Desk) -> None:
    run = desk.relight("--wrap", "echo once >> runs; exit 3")
    assert run.finish()["state"] == "FAILED", run.story()
    assert desk.text("runs") == "once\n"
    accounted = ("sacct", "-X", "-n", "-P", "-j", run.job_id, "-o", "ExitCode")
    eventually(lambda: "3:0" in desk.site.user(*accounted), 60, run.story)


COMPONENTS = """#!/bin/bash
#SBATCH --time=5 --output=components.out --nodes=1
#SBATCH hetjob
#SBATCH --nodes=2 --mem=500M
echo "life ${SLURM_RESTART_COUNT:-0} of $SLURM_HET_SIZE"
srun --het-group=0,1 bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"'
[ "${SLURM_RESTART_COUNT:-0}" -ge 1 ] || until [ -e go ]; do sleep 0.2; done
"""


def test_a_heterogeneous_job_comes_back_with_all_its_components(desk: Desk) -> None:
    desk.write("components.sh", COMPONENTS)
    run = desk.relight("components.sh")
    run.wait(lambda: desk.text("components.out").count("task") == 3)
    run.wait(lambda: run.status()["state"] == "RUNNING")  # Slurm's answer may be 10 s old
    desk.site.user("scontrol", "requeue", run.job_id)
    assert run.finish()["state"] == "COMPLETED", run.story()
    lines = desk.text("components.out").splitlines()
    assert [line for line in lines if line.startswith("life")] == ["life 0 of 2", "life 1 of 2"]
    tasks = [line.split() for line in lines if line.startswith("task")]
    assert sorted(words[1] for words in tasks[3:]) == ["0", "1", "2"]
    assert len({words[-1] for words in tasks[3:]}) == 3, "three nodes"
    preflights = run.data_of("PreflightFinished")
    assert [data["silent"] for data in preflights] == [[], []], "every node has reported"


SIGNALS = """#!/bin/bash
#SBATCH --time=5 --output=signals.out
trap 'echo heard USR1' USR1
trap 'echo heard USR2' USR2
echo ready
until [ -e enough ]; do sleep 0.2; done
echo end
"""


def test_a_signal_reaches_the_script_once(desk: Desk) -> None:
    desk.write("signals.sh", SIGNALS)
    run = desk.relight("signals.sh")
    run.wait(lambda: "ready" in desk.text("signals.out"))
    desk.site.user("scancel", "--batch", "--signal=USR1", run.job_id)
    run.wait(lambda: "USR1" in desk.text("signals.out"))
    desk.site.user("scancel", "--full", "--signal=USR2", run.job_id)
    run.wait(lambda: "USR2" in desk.text("signals.out"))
    desk.call("touch", "enough")
    assert run.finish()["state"] == "COMPLETED", run.story()
    lines = desk.text("signals.out").splitlines()
    assert [line for line in lines if "heard" in line] == ["heard USR1", "heard USR2"], lines


REQUEUES_ITSELF = """#!/bin/bash
#SBATCH --time=5 --output=itself.out
echo "life ${SLURM_RESTART_COUNT:-0}"
[ "${SLURM_RESTART_COUNT:-0}" -ge 1 ] && exit 0
trap 'scontrol requeue $SLURM_JOB_ID; exit 0' USR1
kill -USR1 $$
sleep 60
"""


def test_a_script_that_requeues_its_job_and_exits_with_0_is_not_done(desk: Desk) -> None:
    desk.write("itself.sh", REQUEUES_ITSELF)
    run = desk.relight("itself.sh")
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert "life 1" in desk.text("itself.out"), run.story()


TIME_LIMIT = """#!/bin/bash
#SBATCH --time=1 --output=limit.out
n=$(cat lives 2>/dev/null || echo 0)
echo $((n + 1)) > lives
trap 'echo told; exit 0' TERM
[ "$n" -ge 1 ] && echo end && exit 0
while :; do sleep 1; done # Slurm signals it first: one that the script only waits for would end it
"""


def test_time_limit(desk: Desk) -> None:
    desk.write("limit.sh", TIME_LIMIT)
    run = desk.relight("limit.sh")
    assert run.finish(limit_s=240)["state"] == "COMPLETED", run.story()
    assert desk.text("lives") == "2\n"
    assert "told" in desk.text("limit.out")
    assert desk.text("limit.out").splitlines()[-1] == "end"


def test_cancel_leaves_nothing(desk: Desk) -> None:
    run = desk.counting()
    desk.site.user(str(RELIGHT), "cancel", run.run_id)
    assert run.finish()["state"] == "CANCELLED", run.story()


def test_standard_input_and_parsable(desk: Desk) -> None:
    desk.write("hello.sh", "#!/bin/sh\n#SBATCH -o hello.out\necho hello\n")
    answer = desk.call("sh", "-c", f"{RELIGHT} sbatch --parsable < hello.sh")
    assert answer.strip().isdecimal()
    desk.wait(answer.strip())
    assert desk.text("hello.out") == "hello\n"


ARRAY = """#!/bin/bash
#SBATCH --time=5 --output=array-%a.out --array=1-2
echo "task $SLURM_ARRAY_TASK_ID life ${SLURM_RESTART_COUNT:-0}"
[ "${SLURM_RESTART_COUNT:-0}" -ge 1 ] || until [ -e "go-$SLURM_ARRAY_TASK_ID" ]; do sleep 0.2; done
echo end
"""


def test_tasks_of_an_array_come_back_each_by_itself(desk: Desk) -> None:
    desk.write("array.sh", ARRAY)
    run = desk.relight("array.sh")
    run.wait(lambda: all("life 0" in desk.text(f"array-{task}.out") for task in (1, 2)))
    desk.site.user("scontrol", "requeue", f"{run.job_id}_2")
    run.wait(lambda: "life 1" in desk.text("array-2.out"))
    desk.call("touch", "go-1")
    desk.wait(run.job_id)
    states = [
        json.loads(desk.site.user(str(RELIGHT), "status", "--json", f"{run.job_id}_{task}"))[
            "state"
        ]
        for task in (1, 2)
    ]
    assert states == ["COMPLETED", "COMPLETED"]
    assert "life 1" not in desk.text("array-1.out")


def test_a_script_leaves_a_node_waits_and_goes_on(desk: Desk) -> None:
    run = desk.counting("60")
    left = run.batch_node()
    desk.site.user(str(RELIGHT), "restart", run.job_id, "--exclude", left)
    run.wait(lambda: desk.text("counter") == "40\n")
    assert "in life 1" in desk.text("counter.out")
    assert run.batch_node() != left
    desk.site.user(str(RELIGHT), "hold", run.job_id)
    run.wait(lambda: "`relight release`" in str(run.status()["waits_for"]))
    desk.site.user(str(RELIGHT), "release", run.job_id)
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert desk.text("counter.out").splitlines()[-1] == "end 60"
    assert run.status()["excluded"] == [left]


WATCHED = """#!/bin/bash
#SBATCH --time=5 --output=watched.out
#RELIGHT health: {during: 2s}
echo "on $SLURMD_NODENAME"
until [ -e enough ]; do sleep 0.2; done
echo end
"""


def test_a_script_goes_on_when_its_node_turns_bad_and_the_next_job_avoids_it(desk: Desk) -> None:
    flags = install(desk.folder / "smoke")
    desk.write("watched.sh", WATCHED)
    run = desk.relight(f"--export=ALL,PYTHONPATH={flags}", "watched.sh")
    run.wait(lambda: "on " in desk.text("watched.out"))
    bad = run.batch_node()
    (flags / f"burnt-{bad}").touch()
    run.wait_for("NodeDegraded", limit_s=240)  # nodes are watched at the lowest priority
    assert f"{bad} turns bad: smoke: it is burnt" in desk.site.user(
        str(RELIGHT), "status", run.run_id
    )
    desk.call("touch", "enough")
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert desk.text("watched.out") == f"on {bad}\nend\n"
    desk.wait(run.job_id)  # its last look comes after the verdict
    held = json.loads(desk.site.user(str(RELIGHT), "nodes", "ls", "--json"))["nodes"]
    assert [(node["node"], node["avoided"]) for node in held] == [(bad, True)]


def test_the_doctor_tries_what_matters_and_leaves_nothing(desk: Desk) -> None:
    told = json.loads(desk.call(str(RELIGHT), "doctor", "--try", "--json", "--", "-p", "low"))
    tried = {one["subject"]: one for one in told}
    facts = {
        "nodes among each other": r"n\d called n\d",
        "sbatch from a node": r"job \d+ was accepted, and cancelled",
        "scontrol update ExcNodeList": r"job \d+ excludes n\d",
        "signals to the batch script": "USR1 was heard",
        "signals to steps": "a step's process heard USR2",
        "MPI": "pmi",
        "--no-kill": r"job \d+ and a step took it",
        "scontrol update StartTime": r"job \d+ was let start at once",
        "second life": r"job \d+ started again",
    }
    for subject, fact in facts.items():
        assert re.search(fact, tried[subject]["fact"]), tried
        assert not tried[subject]["matters"], tried
    assert desk.site.jobs() == []
