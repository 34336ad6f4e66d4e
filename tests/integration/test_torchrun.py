"""Ranks that torchrun has started: told to stop, killed and blamed like any other."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest
from stage.agent import PATIENCE_S, Stage, gone, play
from stage.below_torchrun import counting
from stage.local import Run

from relight.resilience.messages import Message, abstract
from relight.resilience.supervise.journal import read_journals
from relight.resilience.worker import joined
from relight.resilience.worker.joined import JoinedProgram
from relight.resilience.worker.node_command import NodeCommand

TORCHRUN = Path(sys.executable).with_name("torchrun")
STEPS = 400


def family(run: Run) -> list[psutil.Process]:
    """All processes of a run's ranks, and of torchrun."""
    found = []
    for process in psutil.process_iter():
        try:
            of_run = process.environ().get("RELIGHT_RUN_DIR") == str(run.folder)
        except psutil.Error:
            continue
        found += [process] if of_run else []
    return found


def test_ranks_below_torchrun_are_saved_when_all_are_told_to_end(tmp_path: Path) -> None:
    """Ranks, torchrun and relight, as by the end of a service: nobody's word is lost."""
    program, go = tmp_path / "program.py", tmp_path / "go"
    program.write_text(counting(STEPS))
    spec = {
        "name": "t",
        "command": [str(TORCHRUN), str(program), str(go)],
        "resources": {"tasks_per_node": 2},
        "checkpoint": {"interval": "10 steps"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    run = Run(tmp_path / "home", str(tmp_path / "job.yaml"))
    run.wait_for_checkpoint()
    for process in family(run):
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    run.process.terminate()
    assert run.end()[0] == 75
    assert not family(run), "torchrun has gone with its ranks"
    go.touch()
    assert Run(tmp_path / "home", "--resume", run.folder.name).end()[0] == 0
    started = [r for r in read_journals(run.folder / "journal") if r.name == "RanksStarted"]
    assert [bool(record.data["restored_step"]) for record in started] == [False, True]
    logs = "".join(path.read_text() for path in run.folder.glob("attempts/*/logs/*/0.log"))
    assert [line for line in logs.splitlines() if "digest" in line] == [
        f"digest {sum(range(STEPS))}"
    ]
    assert not family(run)


RANK = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(chr(0) + os.environ["RELIGHT_AGENT_SOCKETS"][1:])
for word in ({"type": "joined", "rank": 0, "pid": 0}, *json.loads(os.environ["WORDS"])):
    line.sendall(json.dumps(word).encode() + b"\\n")
"""
# Of a process that is gone before its agent has looked at it nobody knows what was around it.
KNOWN = """
import pathlib, time
while not pathlib.Path(os.environ["KNOWN"]).exists():
    time.sleep(0.01)
"""
# Starts a rank by itself or by a shell, ``by`` which, beside another, and looks now and then.
STARTER = """
import os, subprocess, sys, time
rank = [sys.executable, "-c", os.environ["CODE"]]
shell = ["bash", "-c", '"$0" "$@"; exit $?', *rank]
rank_0 = subprocess.Popen({by}, start_new_session=True)
rank_1 = subprocess.Popen(["sleep", "100"])
while rank_0.poll() is None:
    time.sleep({look_s})
"""
FAILED = """
print("KeyError: 'x'")
print("E1130 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -11) "
      "local_rank: {} (pid: 7) of binary: python", flush=True)
print("ChildFailedError", flush=True)
raise SystemExit(1)
"""


OF_ANOTHER_RANK = """
import os, sys
sys.exit(len({"RANK", "WORLD_SIZE", "RELIGHT_AGENT_SOCKET"} & os.environ.keys()))
"""
NEVER_JOINS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
print("ready", flush=True)
signal.pause()
"""


def ends_of(
    code: str, folder: Path, rank: str = RANK, words: object = (), hears: str = ""
) -> tuple[object, ...]:
    """What the agent of a node's first rank says of it; ``hears`` is a word that it passes on."""
    said: list[object] = []

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        address = str((await made.hear("hello"))["address"])
        env = {"PATH": os.environ["PATH"], "RELIGHT_AGENT_SOCKETS": address}
        env |= {"CODE": rank, "WORDS": json.dumps(words), "KNOWN": str(folder / "known")}
        others = ["@nobody"] if hears else []
        made.start(code, env=env, command_of_node={"local_rank": 0, "others": others})
        if hears:
            await made.until(lambda: hears in str(made.said))
            made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGKILL"})
            command = (await made.hear("started"))["pid"]
            while psutil.pid_exists(int(str(command))):
                await asyncio.sleep(0.01)
            made.channel.broadcast({"type": "need_port"})
            await made.hear("port")
        if KNOWN in rank:
            await made.hear("rank")
            (folder / "known").touch()
        if "ready" in code:
            await made.printed("ready")
            made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGTERM"})
        end = await made.hear("exited")
        said.extend(end[key] for key in ("code", "signal", "stopped", "tail"))
        made.channel.broadcast({"type": "quit"})
        assert await gone(agent) == 0

    play(scene, folder)
    return tuple(said)


def test_what_torchrun_says_of_the_first_failure_is_told_by_the_agent_of_that_rank(
    tmp_path: Path,
) -> None:
    code, number, stopped, tail = ends_of(FAILED.format(0), tmp_path)
    assert (code, number, stopped) == (None, "SIGSEGV", False)
    assert "KeyError: 'x'" in str(tail)
    assert "ChildFailedError" not in str(tail)
    assert ends_of(FAILED.format(1), tmp_path)[1:3] == ("SIGTERM", True)


def test_a_rank_that_spares_its_siblings_has_stopped_with_75(tmp_path: Path) -> None:
    starter = STARTER.format(by="rank", look_s=0.01)
    words = [{"type": "stopped", "code": 75}]
    assert ends_of(starter, tmp_path, words=words)[:3] == (75, None, False)


def test_how_a_rank_behind_a_shell_ends_is_told_by_the_shell(tmp_path: Path) -> None:
    """A shell takes the status of its child at once, before an agent sees it."""
    starter = STARTER.format(by="shell", look_s=1)
    assert ends_of(starter, tmp_path, rank=RANK + KNOWN + "sys.exit(3)")[:3] == (3, None, False)
    (tmp_path / "known").unlink()
    dies = RANK + KNOWN + "os.kill(os.getpid(), 11)"
    assert ends_of(starter, tmp_path, rank=dies)[:3] == (None, "SIGSEGV", False)


def test_an_exception_of_a_rank_is_no_kill_where_nobody_saw_its_end(tmp_path: Path) -> None:
    fails = RANK + "print('KeyError: x', flush=True); os._exit(1)"
    starter = STARTER.format(by="shell", look_s=0.0001)
    code, *_, tail = ends_of(starter, tmp_path, rank=fails, words=[{"type": "failed"}])
    assert (code, tail) == (1, ["KeyError: x"])


def test_a_signal_to_a_rank_behind_a_shell_is_told(tmp_path: Path) -> None:
    """Then all are killed, the command last, and the agent stays."""
    starter = STARTER.format(by="shell", look_s=5)
    words = [{"type": "signalled", "signal": "SIGTERM"}]
    stays = RANK + "line.recv(1)"
    assert ends_of(starter, tmp_path, rank=stays, words=words, hears="SIGTERM")[2] is True


def test_a_command_finds_nothing_of_another_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What whoever submitted the run was in another world."""
    for name in ("RANK", "WORLD_SIZE", "RELIGHT_AGENT_SOCKET"):
        monkeypatch.setenv(name, "1")
    assert ends_of(OF_ANOTHER_RANK, tmp_path)[0] == 0


def test_ranks_that_never_join_are_told_to_end_by_their_command(tmp_path: Path) -> None:
    assert ends_of(NEVER_JOINS, tmp_path)[:3] == (4, None, True)


def test_the_end_of_the_command_before_is_none_of_this_one() -> None:
    """Its agent may tell of it when the next one has begun elsewhere."""
    rank = JoinedProgram(2, {}, None, None, local_rank=1, local_size=2)
    how: dict[str, object] = {
        "code": None,
        "signal": "SIGTERM",
        "stopped": True,
        "tail": [],
        "max_rss_bytes": 0,
    }
    assert not rank.heard({"type": "command_ended", "generation": 1, "how": how}, 7)
    assert rank.poll() is None
    assert not rank.heard({"type": "command_ended", "generation": 2, "how": how}, 7)
    assert rank.poll() == how


class Command:
    """A command of a node that has ended, as its agent sees it."""

    pid = 0
    output = None

    def __init__(self, how: dict[str, object]) -> None:
        self._how = how

    def poll(self) -> dict[str, object]:
        return self._how


@pytest.mark.parametrize(
    ("word", "order"),
    [
        ({"type": "beat"}, {"type": "checkpoint"}),
        ({"type": "signalled", "signal": "SIGUSR1"}, {"type": "checkpoint"}),
        ({"type": "beat"}, {"type": "stop_at", "step": 9}),
    ],
)
def test_a_rank_that_its_command_has_left_does_not_run_on_for_nothing(
    monkeypatch: pytest.MonkeyPatch, word: Message, order: Message
) -> None:
    """What has ended torchrun may have been for all: who was told of it saves."""
    monkeypatch.setattr(joined, "_ALONE_S", 0.0)
    how: dict[str, object] = {"code": None, "signal": "SIGHUP", "stopped": False}
    how["tail"] = ["KeyError: old"]
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as rank:
        program = JoinedProgram(1, {}, None, cast(NodeCommand, Command(how)), 0, 1)
        program.heard({"type": "joined"}, rank.pid)
        program.heard(word, rank.pid)
        program.told(order)
        at_first = program.poll()
        if word["type"] == "signalled" or order["type"] == "stop_at":
            going_on = rank.poll() is None
            rank.kill()
            assert (going_on, at_first) == (True, None)
            return
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        line = "relight: the command of this node ended by SIGHUP while its ranks ran"
        assert program.poll() == {**how, "tail": [line]}


def test_a_rank_that_could_not_write_why_it_failed_has_a_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is on a full disk, as that of a rank without torchrun may be."""
    full = SimpleNamespace(f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    fails = ["sh", "-c", "read line; exit 1"]
    with subprocess.Popen(fails, stdin=subprocess.PIPE, start_new_session=True) as rank:
        program = JoinedProgram(1, {}, tmp_path / "0.log", None, 1, 2)
        program.heard({"type": "joined"}, rank.pid)
        assert rank.stdin
        rank.stdin.close()
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        end = program.poll()
    assert end
    assert (end["code"], "No space left on device" in str(end["tail"])) == (1, True)


# Leaves the rank that it has started, or a service that has nothing to do with ranks.
LEAVES = """
import os, subprocess, sys
rank = [sys.executable, "-c", "import time; time.sleep(100)"]
if "{what}" == "service":
    subprocess.Popen(rank, env={{**os.environ, "RANK": "0"}}, start_new_session=True)
    subprocess.Popen(rank)
elif "{what}" == "rank":
    subprocess.Popen(rank, env={{**os.environ, "RANK": "0"}})
else:
    subprocess.Popen([*rank, "/opt/bin/torchrun"])
"""


@pytest.mark.parametrize("what", ["rank", "torchrun"])
def test_a_command_that_does_not_wait_for_its_ranks_is_no_success(
    tmp_path: Path, what: str
) -> None:
    code, *_, tail = ends_of(LEAVES.format(what=what), tmp_path)
    assert code == 1
    assert tail == [
        "relight: the command of this node ended with 0 before its ranks: it has not waited"
    ]


def test_what_ranks_leave_behind_is_no_rank(tmp_path: Path) -> None:
    assert ends_of(LEAVES.format(what="service"), tmp_path)[0] == 0


DEAF = """
import os, sys, threading, time
from relight.resilience.worker.boundary import Boundary
from relight.resilience.worker.line import Line
from relight.resilience.worker.listener import Listener
from relight.resilience.worker.own_time import OwnTime
from relight.resilience.worker.signals import StopSignals

line = Line(sys.argv[1])
line._socket.settimeout(0.1)
while not line.lost:
    line.send({"type": "beat", "words": "x" * 65536})
listener = Listener(
    line, Boundary(None), OwnTime(), threading.Condition(), StopSignals(), 0, ends_with_agent=True
)
listener.start()
print("deaf", flush=True)
time.sleep(600)
"""


def test_a_rank_ends_with_its_agent_though_that_had_stopped_listening() -> None:
    address = f"@relight-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(abstract(address))
        door.listen()
        command = [sys.executable, "-P", "-c", DEAF, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rank:
            with door.accept()[0]:
                assert rank.stdout
                assert rank.stdout.readline() == "deaf\n"
                assert rank.poll() is None
            assert rank.wait(PATIENCE_S) == -signal.SIGKILL
