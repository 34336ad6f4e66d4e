"""The keeper: lives, exit codes, and signals that come at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from relight.launcher.clusters.local import (
    JOB_ID,
    NODES,
    RESTART,
    LocalCluster,
    read_wishes,
    wish_path,
)
from relight.launcher.keeper import EXIT_CRASHED, LIVES, _pass_on
from relight.launcher.last_life import leave, newest_commit
from relight.launcher.run_folder_away import RunFolderAway, once_there
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import RestartRefused
from relight.resilience.supervise.journal import Entry, JournalWriter
from relight.resilience.supervise.last_word import keep_room, leave_verdict
from relight.resilience.supervise.standing import read_verdict
from relight.resilience.supervise.supervisor import supervise

HEAD = "import os, signal, sys\nfrom relight.launcher.keeper import keep\n"


def run(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A keeper whose supervisor is ``life(n)``, as ``body`` defines it."""
    program = f"{HEAD}{body}\nsys.exit(keep(life, lambda: None, lambda: 70))"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_an_exit_code_is_final() -> None:
    done = run("def life(n):\n    print(n)\n    return 75")
    assert (done.returncode, done.stdout) == (75, "1\n")


def test_a_killed_supervisor_lives_again() -> None:
    done = run("def life(n):\n    n == 1 and os.kill(os.getpid(), signal.SIGKILL)\n    return n")
    assert done.returncode == 2
    assert "-9" in done.stderr


def test_a_supervisor_that_always_fails_ends_after_its_lives() -> None:
    done = run("def life(n):\n    raise RuntimeError('a fault of ours')")
    assert done.returncode == EXIT_CRASHED
    assert done.stderr.count("RuntimeError: a fault of ours") == LIVES


def test_lives_that_bring_the_run_on_are_not_counted(tmp_path: Path) -> None:
    body = f"""
made = {str(tmp_path / "made")!r}
def steps():
    return os.path.exists(made) and os.stat(made).st_size
def life(n):
    if n <= {LIVES}:
        open(made, "a").write("x")
    print(n, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(keep(life, steps, lambda: 75))"""
    command = [sys.executable, "-c", HEAD + body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 75, "then it is left"
    assert done.stdout.split() == [str(n) for n in range(1, 2 * LIVES + 1)]


def test_an_attempt_whose_supervisors_came_to_nothing_goes_on_elsewhere(
    run_config: RunConfig,
) -> None:
    env = {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "node0,node1"}
    folder, cluster = RunFolder(run_config.run_dir), LocalCluster(run_config, env)
    journal = JournalWriter(folder.journal("local-1.0"))
    journal.write([Entry(1.0, "event", "AttemptStarted", {})])
    journal.write([Entry(1.0, "action", "ExcludeNode", {"node": "node1"})])
    journal.close()
    assert leave(run_config, cluster) == 75
    assert read_wishes(folder, ["local-1.0"], pytest.fail) == {"node1"}
    assert read_verdict(folder) is None


def test_a_run_of_which_no_supervisor_could_begin_stops(run_config: RunConfig) -> None:
    env = {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "node0"}
    run_config.run_dir.mkdir(parents=True, exist_ok=True)
    assert leave(run_config, LocalCluster(run_config, env)) == 93
    verdict = read_verdict(RunFolder(run_config.run_dir))
    assert verdict is not None
    assert (verdict.state, verdict.cause) == ("STOPPED", "supervisor")


@pytest.mark.parametrize("how", ["absent", "unreadable"])
def test_a_run_folder_that_is_away_is_waited_for(
    how: str, tmp_path: Path, run_config: RunConfig
) -> None:
    folder = RunFolder(run_config.run_dir)
    journal = JournalWriter(folder.journal("local-1.0"))
    journal.write([Entry(1.0, "event", "CheckpointCommitted", {"step": 40})])
    journal.close()
    away = folder.root.rename(tmp_path / "away")
    if how == "unreadable":
        folder.root.symlink_to(folder.root)  # ELOOP, also for root

    def comes_back(_: float) -> None:
        folder.root.unlink(missing_ok=True)
        away.rename(folder.root)

    root, look = folder.root, partial(newest_commit, run_config)
    assert once_there(root, look, sleep=comes_back) == 40


def test_a_run_folder_that_stays_away_ends_the_wait(tmp_path: Path) -> None:
    with pytest.raises(RunFolderAway, match="submit the job again"):
        once_there(tmp_path / "none", int, limit_s=0.0)


def test_a_signal_that_comes_before_anybody_listens_waits() -> None:
    body = """
def life(n):
    os.kill(os.getppid(), signal.SIGTERM)  # the keeper passes it on at once
    while signal.SIGTERM not in signal.sigpending():
        pass
    print("still here", n, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return 0
"""
    done = run(body)
    assert (done.returncode, done.stdout) == (9, "still here 1\n")


def test_a_signal_between_two_lives_is_heard_by_the_next() -> None:
    body = """
import subprocess, time
def life(n):
    if n == 1:
        late = f"import os, time; time.sleep(0.2); os.kill({os.getppid()}, 15)"
        subprocess.Popen([sys.executable, "-c", late], start_new_session=True)
        os._exit(70)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    while True:
        time.sleep(0.05)
"""
    assert run(body).returncode == 9


def test_a_signal_that_a_dead_supervisor_took_is_for_the_next() -> None:
    unheard: list[int] = []
    child = os.fork()
    if child == 0:
        os._exit(EXIT_CRASHED)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    _pass_on(child, signal.SIGTERM, unheard)
    os.waitpid(child, 0)
    _pass_on(child, signal.SIGUSR1, unheard)
    assert unheard == [signal.SIGTERM, signal.SIGUSR1]


def test_signals_that_mean_nothing_do_not_end_it() -> None:
    body = """
def life(n):
    for number in (signal.SIGUSR2, signal.SIGHUP):
        os.kill(os.getppid(), number)
        os.kill(os.getpid(), number)
    return 5
"""
    assert run(body).returncode == 5


def test_the_supervisor_does_not_outlive_its_keeper(tmp_path: Path) -> None:
    """Its end closes the pipe that it holds."""
    reader, writer = os.pipe()
    body = f"{HEAD}def life(n):\n    os.write({writer}, b'x')\n    signal.pause()\n"
    body += "keep(life, int, int)"
    keeper = subprocess.Popen([sys.executable, "-c", body], pass_fds=(writer,))
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    keeper.send_signal(signal.SIGKILL)
    keeper.wait()
    assert os.read(reader, 1) == b"", "the end of the last writer"
    os.close(reader)


def test_what_a_former_life_has_decided_is_not_decided_again(run_config: RunConfig) -> None:
    env = {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "node0"}
    journal = JournalWriter(RunFolder(run_config.run_dir).journal("local-1.0"))
    finish = {"outcome": "RESTARTING", "exit_code": 75, "cause": "preempted", "reason": "x"}
    journal.write([Entry(1.0, "action", "Finish", finish)])
    journal.close()
    assert supervise(run_config, LocalCluster(run_config, env), life=2) == 75


def test_an_end_that_a_former_life_could_not_write_down_is_written(run_config: RunConfig) -> None:
    env = {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "node0"}
    folder = RunFolder(run_config.run_dir)
    journal = JournalWriter(folder.journal("local-1.0"))
    finish: dict[str, object] = {"outcome": "FAILED", "exit_code": 1, "cause": "exited"}
    finish |= {"reason": "x", "tail": ["y"]}
    journal.write([Entry(1.0, "action", "Finish", finish)])
    journal.close()
    assert supervise(run_config, LocalCluster(run_config, env), life=2) == 1
    verdict = read_verdict(folder)
    assert verdict is not None
    assert (verdict.state, verdict.tail) == ("FAILED", ("y",))


def test_a_full_disk_has_room_for_the_verdict(small_disk: Path) -> None:
    folder = RunFolder(small_disk)
    keep_room(folder)
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    end = Finish(outcome=Outcome.COMPLETED, exit_code=0, cause="done", reason="x")
    leave_verdict(folder, end, patience_s=0.0)
    verdict = read_verdict(folder)
    assert verdict is not None
    assert verdict.state == "COMPLETED"
    assert not folder.reserve.exists()
    assert not list(small_disk.glob(".verdict*")), "nothing half written stays"


@pytest.mark.parametrize("small_disk", ["tmpfs"], indirect=True)  # ext4 keeps a block for itself
def test_a_full_disk_has_no_room_for_a_next_attempt_and_says_so(
    small_disk: Path, run_config: RunConfig
) -> None:
    env = {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "node0"}
    folder = RunFolder(small_disk)
    folder.attempt("local-1.0").mkdir(parents=True)
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    cluster = LocalCluster(replace(run_config, run_dir=small_disk), env)
    with pytest.raises(RestartRefused, match=r"No space left .*relight run --resume lm-0a1b2c"):
        cluster.new_allocation(("node0",), "requeue")
    assert read_wishes(folder, ["local-1.0"], pytest.fail) == frozenset()


def test_a_damaged_wish_is_none_and_is_named(tmp_path: Path) -> None:
    folder, said = RunFolder(tmp_path), list[str]()
    for attempt, content in (("1.0", ""), ("1.1", '{"exclude": ["node1"]}')):
        folder.attempt(attempt).mkdir(parents=True)
        wish_path(folder, attempt).write_text(content)
    assert read_wishes(folder, ["1.0", "1.1", "1.2"], said.append) == {"node1"}
    assert [str(wish_path(folder, "1.0")) in line for line in said] == [True]
