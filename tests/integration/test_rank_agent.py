"""A real agent with a real program, against a real channel."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from stage.agent import PATIENCE_S, Stage, gone, play
from stage.proxy import Proxy

from relight.resilience.messages import encode

NOISE = (b"\n", b"GET / HTTP/1.0\r\n\r\n", b"{}\n", b'{"type": "hello"}\n', b"\xff" * 99)


def test_a_program_runs_and_its_end_is_reported(tmp_path: Path) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        hello = await made.hear("hello")
        assert (hello["task"], hello["node"]) == (0, "here")
        (tmp_path / "key").write_text("xyzzy\n")
        code = (
            "import os; print(os.environ['GREETING'], len(os.environ['KEY']), "
            "os.environ.get('SLURM_HOSTFILE'), os.environ['SLURM_PROCID']); raise SystemExit(3)"
        )
        slurm = {"SLURM_PROCID": "5"}
        made.start(code, secret_files={"KEY": str(tmp_path / "key")}, slurm=slurm)
        end = await made.hear("exited")
        assert (end["code"], end["signal"], end["stopped"]) == (3, None, False)
        assert end["tail"] == ["hello 5 None 5"]
        made.channel.broadcast({"type": "quit"})
        assert await gone(agent) == 0

    play(scene, tmp_path)


def test_a_stop_ends_the_program_and_all_it_started(tmp_path: Path) -> None:
    """Also a grandchild in a session of its own, which no signal to a group can reach."""
    code = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start(code)
        await made.hear("started")
        process = psutil.Process(agent.pid)
        await made.printed("ready")
        family = process.children(recursive=True)
        assert len(family) == 2
        made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGKILL"})
        end = await made.hear("exited")
        assert (end["signal"], end["stopped"]) == ("SIGKILL", True)
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert alive == []
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


def test_signals_reach_the_supervisor_and_not_the_program(tmp_path: Path) -> None:
    """TERM and USR1 to both before the program has a handler, as proctrack/linuxproc does it."""

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        os.mkfifo(tmp_path / "go")
        made.start("import sys; print('up', flush=True); sys.stdin = open('go'); sys.stdin.read()")
        program = (await made.hear("started"))["pid"]
        assert isinstance(program, int)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            os.kill(program, number)
            os.kill(agent.pid, number)
        await made.until(
            lambda: {message.get("signal") for message in made.said} >= {"SIGTERM", "SIGUSR1"}
        )
        writer = await asyncio.to_thread(os.open, tmp_path / "go", os.O_WRONLY)
        os.close(writer)
        end = await made.hear("exited")
        assert end["code"] == 0, "the signals did not end it"
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


def test_a_shell_can_trap_the_order_to_end(tmp_path: Path) -> None:
    """What is ignored at the start of a shell, it cannot trap (POSIX, trap)."""
    shell = "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.1; done"

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start("", argv=["bash", "-c", shell])
        await made.printed("up")
        made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGTERM"})
        end = await made.hear("exited")
        assert isinstance(end["tail"], list)
        assert (end["code"], end["tail"][-1]) == (75, "saved")
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


@pytest.mark.parametrize(
    "shell",
    ["{program}; exit $?", "trap 'exit 143' TERM; {program} & wait"],
    ids=["a shell", "a layer that heeds signals"],
)
def test_a_program_that_has_joined_outlives_what_is_around_it(tmp_path: Path, shell: str) -> None:
    """Slurm's TERM reaches both: the layer ends, the program saves."""
    code = """
import pathlib, time
import relight
relight.join()
print("up", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
raise SystemExit(75)
"""
    (tmp_path / "program.py").write_text(code)

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        world = {"RELIGHT_ATTEMPT": "1.0", "RELIGHT_GENERATION": "1", "RELIGHT_CHECKPOINT_DIR": "c"}
        env = {**world, "RANK": "0", "WORLD_SIZE": "2", "RELIGHT_RESTORE": ""}
        words = shell.format(program=f"{sys.executable} program.py")
        made.start("", argv=["bash", "-c", words], env=env)
        await made.printed("up")
        around = (await made.hear("started"))["pid"]
        assert isinstance(around, int)
        (ends := psutil.Process(around)).terminate()
        await asyncio.to_thread(psutil.wait_procs, [ends])
        (tmp_path / "go").touch()
        end = await made.hear("exited")
        assert (end["code"], end["signal"]) == (75, None)
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"argv": ["/no/such/program"]}, "/no/such/program"),
        ({"secret_files": {"KEY": "/no/such/key"}}, "the secret KEY: No such file"),
    ],
)
def test_a_program_that_cannot_be_started_has_ended_with_127(
    tmp_path: Path, how: dict[str, object], why: str
) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start("", **how)
        end = await made.hear("exited")
        assert end["code"] == 127
        assert why in str(end["tail"])
        made.channel.broadcast({"type": "quit"})
        assert await gone(agent) == 0

    play(scene, tmp_path)


def test_an_exception_ends_a_program_that_stays_at_its_exit(tmp_path: Path) -> None:
    """MPI_Finalize waits for the other ranks, which wait for this one; and there are no stacks."""
    code = """
import atexit, sys, time
import relight
run = relight.join()
atexit.register(lambda: (print("at the exit", flush=True), time.sleep(600)))
raise KeyError("no such key")
"""

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        world = {"RELIGHT_ATTEMPT": "1.0", "RELIGHT_GENERATION": "1", "RELIGHT_CHECKPOINT_DIR": "c"}
        made.start(code, env={**world, "RANK": "0", "WORLD_SIZE": "2", "RELIGHT_RESTORE": ""})
        end = await made.hear("exited")
        assert (end["code"], end["signal"], end["stopped"]) == (1, None, False)
        assert isinstance(end["tail"], list)
        assert end["tail"][-2:] == ["KeyError: 'no such key'", "at the exit"]
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


def test_the_program_does_not_outlive_a_killed_agent(tmp_path: Path) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start("import time; time.sleep(600)")
        program = (await made.hear("started"))["pid"]
        assert isinstance(program, int)
        process = psutil.Process(program)
        agent.kill()
        await asyncio.to_thread(process.wait, PATIENCE_S)
        await gone(agent)

    play(scene, tmp_path)


def test_the_agent_and_the_program_end_when_the_supervisor_is_gone(tmp_path: Path) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start("import time; time.sleep(600)")
        program = (await made.hear("started"))["pid"]
        assert isinstance(program, int)
        process = psutil.Process(program)
        await made.channel.close()
        assert await gone(agent) == 0
        assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    play(scene, tmp_path)


def test_what_is_said_while_the_way_is_cut_is_heard_once(tmp_path: Path, proxy: Proxy) -> None:
    async def scene(made: Stage) -> None:
        def ends() -> list[tuple[object, object]]:
            return [(m["generation"], m["code"]) for m in made.said if m["type"] == "exited"]

        agent = await made.agent(port=proxy.to(made.port))
        await made.hear("hello")
        made.start("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)")
        program = psutil.Process(int(str((await made.hear("started"))["pid"])))
        proxy.cut()
        (tmp_path / "go").touch()
        await asyncio.to_thread(program.wait, PATIENCE_S)
        await asyncio.to_thread(proxy.turned_away.wait, PATIENCE_S)
        made.start("raise SystemExit(4)", generation=2)
        proxy.heal()
        await made.until(lambda: len(ends()) == 2)
        assert ends() == [(1, 0), (2, 4)]
        made.channel.drop(made.channel.lines[0])
        assert await gone(agent) == 0, "held for lost, it may not come again"

    play(scene, tmp_path)


@pytest.mark.parametrize(("step", "token"), [("2", None), ("1", "guessed")])
def test_who_is_not_of_this_step_or_has_no_token_is_turned_away(
    tmp_path: Path, step: str, token: str | None
) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent(step, token)
        await gone(agent)
        assert made.said == []
        assert made.channel.lines == {}

    play(scene, tmp_path)


def test_noise_on_the_port_harms_nobody(tmp_path: Path) -> None:
    async def scene(made: Stage) -> None:
        for noise in NOISE:
            with (
                socket.create_connection(("127.0.0.1", made.port)) as stranger,
                suppress(OSError),
            ):
                stranger.sendall(noise)
        agent = await made.agent()
        await made.hear("hello")
        assert len(made.channel.lines) == 1
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


def test_a_channel_ends_though_a_host_takes_nothing_any_more(tmp_path: Path) -> None:
    """What was told to one without power would be on its way for a quarter of an hour."""

    async def scene(made: Stage) -> None:
        _, deaf = await asyncio.open_connection("127.0.0.1", made.port)
        place = {"node": "here", "task": 0, "local_task": 0, "pid": 1, "got": 0}
        hello = {"type": "hello", "token": "the token", "step": "1", **place}
        deaf.write(encode(hello))
        await made.hear("hello")
        made.channel.broadcast({"type": "rank", "body": "x" * 32 * 1024**2})
        await made.channel.close()
        deaf.transport.abort()

    async def in_time(made: Stage) -> None:
        await asyncio.wait_for(scene(made), PATIENCE_S)

    play(in_time, tmp_path)
