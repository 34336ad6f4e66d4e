"""A real program, held, saved, stopped and abandoned by a pretended agent."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.resilience.messages import decode, encode
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, manifest_path, shard_file, shard_path
from relight.storage.receipt import Receipt

# Each step is announced, and ends when the test sends a line.
PROGRAM = """
import sys, relight
run = relight.join()
seen = []
run.protect(seen=seen)
for step in run.steps(4):
    print("step", step, flush=True)
    sys.stdin.readline()
    seen.append(step)
print("end", seen, flush=True)
"""
# As in a collective: code that runs no handler of Python's, for as long as somebody else likes.
DEAF = """
import ctypes, sys, threading, relight
lock, unlock = ctypes.CDLL(None).pthread_mutex_lock, ctypes.CDLL(None).pthread_mutex_unlock
mutex, ready = ctypes.create_string_buffer(64), threading.Event()
def other():
    lock(mutex)
    ready.set()
    sys.stdin.readline()
    unlock(mutex)
run = relight.join()
for step in run.steps(4):
    threading.Thread(target=other).start()
    ready.wait()
    with run.section("eval"):
        print("step", step, flush=True)
        lock(mutex)
        unlock(mutex)
"""
FIRST = Incarnation("7.0", 1)


class PretendedAgent:
    """The agent's end of the line, and the program at the other end of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "ck"
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(folder / "agent.sock"))
        self._server.listen()
        self._server.settimeout(120)

    def start(
        self,
        *,
        interval: str = "auto",
        restore: str = "",
        generation: int = 1,
        program: str = PROGRAM,
    ) -> None:
        environment = {
            "RELIGHT_AGENT_SOCKET": str(self.folder / "agent.sock"),
            "RELIGHT_ATTEMPT": FIRST.attempt,
            "RELIGHT_GENERATION": str(generation),
            "RELIGHT_CHECKPOINT_DIR": str(self.directory),
            "RELIGHT_CHECKPOINT_INTERVAL": interval,
            "RELIGHT_RESTORE": restore,
        }
        self.program = subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line, _ = self._server.accept()
        self._line.settimeout(120)
        self._reader = self._line.makefile("rb")

    def next_of(self, kind: str) -> dict[str, object]:
        """The next message of a kind; beats and whatever else comes before it are passed over."""
        for line in self._reader:
            message = decode(line)
            if message["type"] == kind:
                return message
        raise AssertionError(f"the program never sent {kind}")

    def send(self, **message: object) -> None:
        self._line.sendall(encode(message))

    def hold(self, ask: int) -> object:
        self.send(type="hold", ask=ask)
        held = self.next_of("held")
        assert held["ask"] == ask
        return held["step"]

    def next_line(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def end_step(self) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write("\n")
        self.program.stdin.flush()

    def hang_up(self) -> None:
        self._reader.close()
        self._line.close()

    def ending(self) -> tuple[int, str]:
        """Exit code, and all that it printed until then."""
        output, _ = self.program.communicate(timeout=120)
        return self.program.returncode, output.strip()

    def close(self) -> None:
        if hasattr(self, "program"):
            self.program.kill()
            self.program.communicate()
            self.hang_up()
        self._server.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[PretendedAgent]:
    pretended = PretendedAgent(tmp_path)
    yield pretended
    pretended.close()


def start_and_hold(agent: PretendedAgent) -> None:
    """Step 1 is being done, the program is held, and then that step ends."""
    agent.start()
    assert agent.next_of("restored")["step"] == 0
    assert agent.next_line() == "step 0"
    agent.end_step()
    assert agent.next_line() == "step 1"
    assert agent.hold(1) == 1
    agent.end_step()


def saved_step(agent: PretendedAgent) -> Receipt:
    return Receipt.from_json(str(agent.next_of("saved")["receipt"]))


def test_stops_at_the_agreed_step(agent: PretendedAgent) -> None:
    start_and_hold(agent)
    agent.send(type="stop_at", ask=1, step=2, reason="preempted")
    assert saved_step(agent).step == 2
    assert agent.ending() == (75, "")  # step 2 was never begun


def test_saves_at_the_agreed_step_and_goes_on(agent: PretendedAgent) -> None:
    start_and_hold(agent)
    agent.send(type="save_at", ask=1, step=2)
    assert saved_step(agent).step == 2
    assert agent.next_line() == "step 2"
    agent.end_step()
    assert agent.next_line() == "step 3"
    agent.end_step()
    assert saved_step(agent).step == 4
    assert agent.next_of("finished")["step"] == 4
    assert agent.ending() == (0, "end [0, 1, 2, 3]")


def test_goes_on_when_released_or_abandoned(agent: PretendedAgent) -> None:
    start_and_hold(agent)
    agent.send(type="release", ask=1)
    assert agent.next_line() == "step 2"
    assert agent.hold(2) == 2
    agent.end_step()
    agent.hang_up()
    assert agent.next_line() == "step 3"
    agent.end_step()
    assert agent.ending() == (0, "end [0, 1, 2, 3]")


def test_every_hold_must_be_answered(agent: PretendedAgent) -> None:
    agent.start()
    agent.next_of("restored")
    assert agent.hold(1) == agent.hold(2) == 0
    agent.send(type="release", ask=1)
    agent.end_step()
    agent.send(type="stop_at", ask=2, step=1, reason="preempted")
    assert agent.ending() == (75, "step 0")


def test_a_step_that_has_passed_is_refused(agent: PretendedAgent) -> None:
    start_and_hold(agent)
    agent.send(type="stop_at", ask=1, step=0, reason="late")
    assert agent.next_of("save_failed")["step"] == 0
    assert agent.next_line() == "step 2"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_only_reported(agent: PretendedAgent, number: signal.Signals) -> None:
    agent.start(interval="1 steps")
    assert agent.next_line() == "step 0"
    for _ in range(2):
        agent.program.send_signal(number)
        assert agent.next_of("signalled")["signal"] == number.name
    agent.end_step()
    assert saved_step(agent).step == 1
    assert agent.next_line() == "step 1"


def test_a_signal_is_heard_and_obeyed_in_an_evaluation_inside_a_collective(
    agent: PretendedAgent,
) -> None:
    agent.start(program=DEAF)
    assert agent.next_line() == "step 0"
    assert agent.next_of("entered")["section"] == "eval"
    agent.program.send_signal(signal.SIGTERM)
    assert agent.next_of("signalled")["signal"] == "SIGTERM"
    assert agent.hold(1) == 0
    agent.send(type="stop_at", ask=1, step=1, reason="preempted")
    agent.end_step()
    assert saved_step(agent).step == 1
    assert agent.ending() == (75, "")


def test_a_failed_save_is_reported_and_training_goes_on(agent: PretendedAgent) -> None:
    agent.directory.write_text("a file where the folder should be")
    agent.start(interval="1 steps")
    assert agent.next_line() == "step 0"
    agent.end_step()
    failed = agent.next_of("save_failed")
    assert (failed["step"], failed["errno"]) == (1, errno.ENOTDIR)
    assert agent.next_line() == "step 1"
    assert agent.hold(1) == 1
    agent.end_step()
    agent.send(type="stop_at", ask=1, step=2, reason="preempted")
    assert agent.ending() == (1, "")


def checkpoint_of_step_2(agent: PretendedAgent) -> str:
    start_and_hold(agent)
    agent.send(type="stop_at", ask=1, step=2, reason="preempted")
    receipt = saved_step(agent)
    agent.ending()
    agent.hang_up()
    commit(agent.directory, 2, FIRST, claim_epoch(agent.directory, FIRST), [receipt], {})
    return str(manifest_path(agent.directory, 2))


def test_restores_what_the_supervisor_has_chosen(agent: PretendedAgent) -> None:
    agent.start(restore=checkpoint_of_step_2(agent), generation=2)
    assert agent.next_of("restored")["step"] == 2
    agent.end_step()
    agent.end_step()
    assert agent.ending() == (0, "step 2\nstep 3\nend [0, 1, 2, 3]")


def test_reports_a_damaged_checkpoint(agent: PretendedAgent) -> None:
    chosen = checkpoint_of_step_2(agent)
    shard = shard_path(agent.directory, 2, FIRST, 0)
    shard.write_bytes(bytes(shard.stat().st_size))
    agent.start(restore=chosen, generation=2)
    failed = agent.next_of("restore_failed")
    assert (failed["step"], failed["file"]) == (2, shard_file(FIRST, 0))
    assert agent.ending() == (1, "")
