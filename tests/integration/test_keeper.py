"""The keeper: lives, exit codes, and signals that come at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from relight.launcher.clusters.local import JOB_ID, NODES, RESTART, LocalCluster
from relight.launcher.keeper import EXIT_CRASHED, LIVES
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import Entry, JournalWriter
from relight.resilience.supervise.supervisor import supervise

HEAD = "import os, signal, sys\nfrom relight.launcher.keeper import keep\n"


def run(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A keeper whose supervisor is ``life(n)``, as ``body`` defines it."""
    program = f"{HEAD}{body}\nsys.exit(keep(life))"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


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
import subprocess
def life(n):
    if n == 1:
        late = f"import os, time; time.sleep(0.2); os.kill({os.getppid()}, 15)"
        subprocess.Popen([sys.executable, "-c", late], start_new_session=True)
        os._exit(70)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.sigwait({signal.SIGUSR2})
"""
    assert run(body).returncode == 9


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
    body = f"{HEAD}def life(n):\n    os.write({writer}, b'x')\n    signal.pause()\nkeep(life)"
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
