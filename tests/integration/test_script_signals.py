"""A batch script hears each signal once, however late its agent or the supervisor gets its turn."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from stage.agent import PATIENCE_S, Stage, gone, play

SCRIPT = """
trap 'echo USR1 >> heard' USR1
trap 'echo USR2 >> heard' USR2
echo $$ > pid.new && mv pid.new pid
until [ -e enough ]; do sleep 0.05; done
"""


def test_what_the_agent_was_sent_too_is_not_sent_to_the_script_again(tmp_path: Path) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.until(lambda: 0 in made.channel.lines)
        made.start("", argv=["bash", "-c", SCRIPT], log=None, without_env=[])
        await _until(lambda: (tmp_path / "pid").exists())
        script = int((tmp_path / "pid").read_text())
        heard = tmp_path / "heard"

        def pass_on(name: str) -> None:
            order = {"type": "signal", "signal": name, "unless_heard": True}
            made.channel.lines[0].send(order)

        agent.send_signal(signal.SIGSTOP)
        agent.send_signal(signal.SIGUSR2)
        os.kill(script, signal.SIGUSR2)
        pass_on("SIGUSR2")
        await _until(heard.exists)
        agent.send_signal(signal.SIGCONT)
        pass_on("SIGUSR1")  # which nobody but the supervisor was sent
        await _until(lambda: len(heard.read_text().splitlines()) > 1)
        assert heard.read_text().split() == ["USR2", "USR1"]
        pass_on("SIGUSR2")  # another one
        await _until(lambda: len(heard.read_text().splitlines()) > 2)
        (tmp_path / "enough").touch()
        await made.hear("exited")
        made.channel.lines[0].send({"type": "quit", "keep": False})
        assert await gone(agent) == 0

    play(scene, tmp_path)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)
