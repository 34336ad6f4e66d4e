"""``relight run``: a whole run on this machine, through stops, cancels and failures."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stage.local import PATIENCE_S, PROGRAM, Run, below, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[Path]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(steps=300))
    path = tmp_path / "job.yaml"
    path.write_text(
        f"name: t\ncommand: [{sys.executable}, {program}]\nresources: {{nodes: 2}}\n"
        "checkpoint: {interval: 20 steps}\n"
    )
    yield path
    left = [
        p for p in psutil.process_iter(["cmdline"]) if str(program) in (p.info["cmdline"] or ())
    ]
    assert left == []


DIGEST = f"digest {64.0 * sum(range(300))}"


def test_a_killed_rank_and_a_preemption(home: Path, spec: Path) -> None:
    run = Run(home, str(spec))
    run.wait_for_checkpoint()
    _rank(run).kill()
    run.wait_for_checkpoint_of_generation(2)
    _supervisor(run).terminate()  # as a preemption: it comes back by itself
    code, records = run.end()
    assert code == 0
    assert {record["attempt"] for record in records} == {
        f"local-{run.folder.name[2:]}.0",
        f"local-{run.folder.name[2:]}.1",
    }
    assert run.status()["state"] == "COMPLETED"
    assert run.relight("logs", run.folder.name).count(DIGEST) == 2
    history = json.loads(run.relight("history", run.folder.name, "--json"))
    first, second = history["attempts"]
    assert [generation["number"] for generation in first["generations"]] == [1, 2]
    assert second["outcome"] == "COMPLETED"
    assert 'sound": true' in run.relight("ckpt", "verify", run.folder.name, "--json")
    listed = json.loads(run.relight("ckpt", "ls", run.folder.name, "--json"))
    newest = listed["checkpoints"][0]
    assert (newest["step"], newest["condition"], newest["reason"]) == (300, "valid", "")
    assert (newest["bytes"] > 0, newest["kept"]) == (True, ["newest", "last 3"])
    repeated = json.loads(run.relight("replay", run.folder.name, "--json"))
    assert repeated["difference"] is None
    assert repeated["actions"] >= 6
    assert "every decision is the same again" in run.relight("replay", run.folder.name)
    asked = "this run has checkpoint.interval: 20 steps; with auto it would be"
    assert asked in run.relight("interval", run.folder.name)
    interval = json.loads(run.relight("interval", run.folder.name, "--json"))
    assert interval["causes"] == {"killed": 1}, "and not the preemption"
    assert interval["save_s"] > 0


# As apptainer does, it stays while the command runs; and no signal gets through it.
APPTAINER = """\
#!/bin/bash
trap : TERM INT USR1
[ "$1" = exec ] || exit 9
shift
while [[ $1 == --* ]]; do
    [[ $1 == --pwd=* ]] && cd "${1#--pwd=}"
    shift
done
echo "inside ${1##*/}"
shift
"$@"
exit $?
"""


def test_in_a_container_term_saves_and_resume_goes_on(
    home: Path, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "bin" / "apptainer"
    runtime.parent.mkdir()
    runtime.write_text(APPTAINER)
    runtime.chmod(0o755)
    monkeypatch.setenv("PATH", f"{runtime.parent}:{os.environ['PATH']}")
    image = tmp_path / "train.sif"
    image.touch()
    run = Run(home, str(spec), "--set", f"container.image={image}")
    run.wait_for_checkpoint()
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 75
    status = run.status()
    assert status["state"] == "RESTARTING"
    told = run.relight("history", run.folder.name)
    assert "told to stop (held): SIGTERM: relight run was sent SIGTERM" in told
    assert "waits for a person: `relight run --resume` goes on" in told
    assert "new nodes" not in told
    assert "goes on as job" not in told
    assert f"relight run --resume {run.folder.name}" in str(status["waits_for"])
    code, records = Run(home, "--resume", run.folder.name).end()
    assert code == 0
    assert {record["attempt"] for record in records} == {f"local-{run.folder.name[2:]}.1"}
    logs = run.relight("logs", run.folder.name)
    assert logs.count(DIGEST) == 2
    assert logs.count("inside train.sif") == 4, "two ranks, twice"


def test_interrupt_cancels_and_people_are_told(home: Path, spec: Path, tmp_path: Path) -> None:
    file = tmp_path / "message"
    notify = f"notify={{command: [cp, /dev/stdin, {file}], on: [cancelled]}}"
    run = Run(home, str(spec), "--set", notify)
    run.wait_for_checkpoint()
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 1
    assert run.status()["state"] == "CANCELLED"
    message = json.loads(file.read_text())
    assert (message["run_id"], message["state"]) == (run.folder.name, "CANCELLED")
    assert "notify by command: done" in run.relight("history", run.folder.name)


def test_interrupt_while_setup_runs_ends_it_at_once(home: Path, tmp_path: Path) -> None:
    """And what setup has left in the background, too: it would hold the run for alive."""
    spec, up = tmp_path / "job.yaml", tmp_path / "up"
    marker = f"sleep 600.{os.getpid()}"
    spec.write_text(f"command: [echo]\nsetup: ['setsid {marker} &', 'touch {up}; {marker}']\n")
    run = Run(home, str(spec))
    wait_until(up.exists)
    begun = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 1
    assert time.monotonic() - begun < 20
    status = run.status()
    assert status["state"] == "CANCELLED"
    assert "Ctrl-C" in str(status["reason"])
    left = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == marker.split()]
    assert left == []


def test_a_second_interrupt_ends_it_and_status_knows(home: Path, tmp_path: Path) -> None:
    spec, up = tmp_path / "job.yaml", tmp_path / "up"
    program = f"trap '' TERM; touch {up}; while :; do sleep 0.1; done"
    spec.write_text(f'command: [bash, -c, "{program}"]\n')
    run = Run(home, str(spec), quiet=False)
    wait_until(up.exists)
    run.process.send_signal(signal.SIGINT)
    wait_until((run.folder / "CANCELLED").exists)
    run.process.send_signal(signal.SIGINT)
    _, err = run.process.communicate(timeout=PATIENCE_S)
    assert run.process.returncode == 1
    assert "the run was killed: Ctrl-C was pressed again" in err
    assert "SIGKILL" not in err
    assert run.status()["state"] == "CANCELLED"


def test_a_failed_run_goes_on_by_hand_once_it_is_repaired(home: Path, tmp_path: Path) -> None:
    spec, repaired = tmp_path / "job.yaml", tmp_path / "repaired"
    spec.write_text(
        f"command: [test, -e, {repaired}]\nrestart: {{failures: 1, no_progress: 1}}\n"
        "health: {preflight: off}\n"
    )
    run = Run(home, str(spec))
    assert run.end()[0] == 1
    repaired.touch()
    assert Run(home, "--resume", run.folder.name).end()[0] == 0
    assert run.status()["state"] == "COMPLETED"


def test_what_a_killed_step_leaves_ends_with_the_attempt(home: Path, spec: Path) -> None:
    """A daemon of the program, whose agent and step were killed; the fixture looks for it."""
    program = Path(str(spec).replace("job.yaml", "program.py"))
    daemon = """
import os
if os.environ["RELIGHT_GENERATION"] == "1" and os.fork() == 0:
    os.setsid()
    os.fork() or time.sleep(600)
    os._exit(0)
"""
    text = program.read_text()
    program.write_text(text.replace("run = relight.join()\n", f"{daemon}\nrun = relight.join()\n"))
    run = Run(home, str(spec))
    run.wait_for_checkpoint()
    words = below(_supervisor(run))
    next(one for one in words if "relight.launcher.clusters.local_step" in words[one]).kill()
    assert run.end()[0] == 0


def test_a_run_whose_folder_is_removed_has_nothing_to_go_on_from(home: Path, spec: Path) -> None:
    run = Run(home, str(spec), quiet=False)
    run.wait_for_checkpoint()
    run.folder.rename(home / "elsewhere")  # at once; a removal would race with what ranks write
    run.process.send_signal(signal.SIGTERM)
    _, err = run.process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert "nothing to go on from" in err
    assert "--resume" not in err


def test_cancel_from_elsewhere(home: Path, spec: Path) -> None:
    run = Run(home, str(spec))
    run.wait_for_checkpoint()
    by_hand = f"has ended; `relight run --resume {run.folder.name}` would go on"
    assert by_hand in run.relight("cancel", run.folder.name)
    assert run.end()[0] == 1
    assert run.status()["state"] == "CANCELLED"
    assert Run(home, "--resume", run.folder.name).end()[0] == 0
    assert run.status()["state"] == "COMPLETED"


def test_a_failing_program_is_stopped_and_heard(home: Path, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "command: [bash, -c, 'echo it is broken >&2; exit 3']\nhealth: {preflight: off}\n"
        "restart: {failures: 1}\n"
    )
    run = Run(home, str(spec), quiet=False)
    _, err = run.process.communicate(timeout=PATIENCE_S)
    assert run.process.returncode == 1
    status = run.status()
    assert status["state"] == "FAILED"
    assert "it is broken" in (run.folder / "verdict.json").read_text()
    assert err.count("| it is broken") == 1
    assert f"when that is mended, `relight run --resume {run.folder.name}` goes on" in err


def test_a_failing_setup_line(home: Path, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("command: [echo, never]\nsetup: ['cd /no/such/place']\n")
    run = Run(home, str(spec))
    code, (told,) = run.end()
    status = run.status()
    assert (code, status["state"]) == (1, "FAILED")
    assert "line 1 of setup failed" in str(status["reason"])
    assert str(status["reason"]) in str(told["data"])
    assert "/no/such/place: No such file" in run.relight("logs", run.folder.name)
    assert "line 1 of setup failed" in run.relight("history", run.folder.name)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("set -e, 'true', 'false', 'true'", "line 3 of setup ended the script with exit code 1"),
        ("exit 0", "line 1 of setup ended the script with exit code 0"),
    ],
)
def test_a_setup_line_that_ends_the_script(
    home: Path, tmp_path: Path, lines: str, said: str
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(f"command: [echo, never]\nsetup: [{lines}]\n")
    run = Run(home, str(spec))
    assert run.end()[0] == 1
    status = run.status()
    assert (status["state"], status["reason"]) == ("FAILED", said)


def test_setup_may_set_what_ends_a_script(home: Path, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("command: [echo, hello]\nsetup: [set -eu, 'true']\n")
    run = Run(home, str(spec))
    assert run.end()[0] == 0
    assert run.status()["state"] == "COMPLETED"


def test_saves_by_the_clock_are_of_one_step_on_all_ranks(home: Path, spec: Path) -> None:
    spec.write_text(spec.read_text().replace("20 steps", "0.3s"))
    run = Run(home, str(spec))
    assert run.end()[0] == 0
    listed = json.loads(run.relight("ckpt", "ls", run.folder.name, "--json"))["checkpoints"]
    assert len(listed) > 1, "more than the one at the end"
    assert {entry["condition"] for entry in listed} == {"valid"}


def test_a_hang_is_seen_shown_and_got_over(home: Path, spec: Path, tmp_path: Path) -> None:
    hangs_once = """\
    if step == 30 and run.rank == 1 and os.environ["RELIGHT_GENERATION"] == "1":
        threading.Event().wait()
    time.sleep"""
    program = tmp_path / "program.py"
    text = program.read_text().replace("    time.sleep", hangs_once)
    program.write_text(f"import os, threading\n{text}")
    spec.write_text(spec.read_text() + "restart: {hang: 6s}\n")
    run = Run(home, str(spec))
    assert run.end()[0] == 0
    second = run.folder / "attempts" / f"local-{run.folder.name[2:]}.0" / "logs" / "2"
    assert all(DIGEST in log.read_text() for log in second.iterdir())
    assert "hang: no step in" in run.relight("history", run.folder.name)
    assert "rank 1 is behind" in run.relight("history", run.folder.name)
    hung = (second.parent / "1" / "1.log").read_text()
    assert "in wait" in hung, "its stack is in its log"


def test_a_stop_before_any_rank_has_joined_does_not_eat_the_grace(
    home: Path, spec: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    go = tmp_path / "go"
    os.mkfifo(go)
    program.write_text(f"open({str(go)!r}).read()\n{program.read_text()}")
    run = Run(home, str(spec))
    wait_until(lambda: run.progress().get("phase") == "running")
    run.process.send_signal(signal.SIGTERM)
    wait_until(lambda: '"SaveAndStop"' in "".join(_journals(run)))
    told = time.monotonic()
    with go.open("w"):
        pass  # both ranks go on, and join
    assert run.end()[0] == 75
    assert time.monotonic() - told < 28, "the grace is 30 s"
    assert "no rank had begun its steps" in "".join(_journals(run))


def _journals(run: Run) -> list[str]:
    return [path.read_text() for path in (run.folder / "journal").glob("*.jsonl")]


def _damage(checkpoint: Path) -> None:
    """Flip a bit in the middle of rank 1's shard."""
    (shard,) = checkpoint.glob("*/shard-00001.h5")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)


def test_all_ranks_fall_back_past_a_damaged_checkpoint(home: Path, spec: Path) -> None:
    run = Run(home, str(spec))
    run.wait_for_checkpoint(40)
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 75
    newest = max(run.folder.glob("checkpoints/0*"))
    _damage(newest)
    assert Run(home, "--resume", run.folder.name).end()[0] == 0
    assert run.relight("logs", run.folder.name).count(DIGEST) == 2
    history = run.relight("history", run.folder.name)
    assert f"{int(newest.name)}" in history
    assert "shard-00001.h5" in history, "the damage is named"


def test_a_run_whose_checkpoints_are_all_damaged_stops(home: Path, spec: Path) -> None:
    """Never a silent start from scratch."""
    run = Run(home, str(spec))
    run.wait_for_checkpoint(40)
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 75
    for checkpoint in run.folder.glob("checkpoints/0*"):
        _damage(checkpoint)
    assert Run(home, "--resume", run.folder.name).end()[0] == 93
    assert run.status()["state"] == "STOPPED"
    assert DIGEST not in run.relight("logs", run.folder.name)


def test_a_killed_supervisor_is_started_again_by_its_keeper(home: Path, spec: Path) -> None:
    run = Run(home, str(spec))
    run.wait_for_checkpoint(20)
    (supervisor,) = _supervisor(run).children()
    supervisor.kill()
    assert run.end()[0] == 0
    assert run.relight("logs", run.folder.name).count(DIGEST) == 2
    journal = (run.folder / "journal" / f"local-{run.folder.name[2:]}.0.jsonl").read_text()
    assert journal.count('"AttemptStarted"') == 2


def test_a_killed_supervisor_leaves_a_state_to_go_on_from(home: Path, spec: Path) -> None:
    run = Run(home, str(spec))
    run.wait_for_checkpoint(20)
    family = psutil.Process(run.process.pid).children(recursive=True)
    _supervisor(run).kill()
    assert run.end()[0] == 1
    _, left = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert left == [], "the ranks do not go on without anybody in charge"
    assert Run(home, "--resume", run.folder.name).end()[0] == 0
    assert run.relight("logs", run.folder.name).count(DIGEST) == 2


def _supervisor(run: Run) -> psutil.Process:
    (supervisor,) = psutil.Process(run.process.pid).children()
    return supervisor


def _rank(run: Run) -> psutil.Process:
    words = below(_supervisor(run))
    return next(one for one in words if any(word.endswith("program.py") for word in words[one]))
