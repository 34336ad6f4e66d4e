"""People are told how it ended; whoever does not listen holds nothing up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from relight.resilience.config import NotifyConfig, RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.decide.events import Notified
from relight.resilience.supervise.notify import notify

END = Finish(outcome=Outcome.FAILED, exit_code=1, cause="program", reason="rank 1 exited with 1")


class Server(ThreadingHTTPServer):
    """Keeps what it gets; ``/500`` is refused, ``/hang`` gets no answer until the end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[dict[str, object]] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/hang":
            self.server.over.wait()
            return
        self.server.got.append(json.loads(body))
        self.send_response(500 if self.path == "/500" else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.over.set()
        made.shutdown()
        thread.join()


def told(config: RunConfig, ways: NotifyConfig, limit_s: float = 60.0) -> list[Notified]:
    asked = replace(config, notify=ways)
    assert RunConfig.from_json(asked.to_json()) == asked
    return asyncio.run(notify(asked, END, 120, 3600.0, limit_s=limit_s))


def test_a_webhook_and_a_command_get_the_same(
    server: Server, run_config: RunConfig, tmp_path: Path
) -> None:
    journals = tmp_path / "run" / "journal"
    journals.mkdir(parents=True)
    (journals / "7.0.jsonl").touch()
    (journals / "7.1.jsonl").touch()
    secret = tmp_path / "hook"
    secret.write_text(server.url("T0KEN") + "\n")
    file = tmp_path / "message"
    ways = NotifyConfig(
        on=("failed",), webhook_file=str(secret), command=("cp", "/dev/stdin", str(file))
    )
    assert told(run_config, ways) == [Notified(by="command"), Notified(by="webhook")]
    assert json.loads(file.read_text()) == server.got[0]
    assert file.read_text().endswith("}\n"), "a line for tools that read lines"
    assert server.got == [
        {
            "text": "run lm-0a1b2c is FAILED at step 120: rank 1 exited with 1",
            "run_id": "lm-0a1b2c",
            "name": "lm",
            "state": "FAILED",
            "cause": "program",
            "reason": "rank 1 exited with 1",
            "step": 120,
            "attempts": 2,
        }
    ]


def test_nobody_is_told_of_what_was_not_asked_for(run_config: RunConfig) -> None:
    assert told(run_config, NotifyConfig(on=("finished",), command=("false",))) == []


def test_failures_are_told_without_the_address(server: Server, run_config: RunConfig) -> None:
    def failure(url: str, limit_s: float = 60.0) -> str:
        (one,) = told(run_config, NotifyConfig(on=("failed",), webhook=url), limit_s)
        return one.failure

    assert failure(server.url("500")) == "the server answered 500"
    assert failure(server.url("hang"), limit_s=1.0) == "no end after 1 s"
    assert "refused" in failure("http://127.0.0.1:9/T0KEN")
    assert failure("http://[T0KEN/") == "the server cannot be asked (ValueError)"
    assert failure("file:///T0KEN") == "the address is not that of a web server"


def test_a_command_that_fails_or_is_not_there(run_config: RunConfig) -> None:
    def failure(*command: str, limit_s: float = 60.0) -> str:
        (one,) = told(run_config, NotifyConfig(on=("failed",), command=command), limit_s)
        return one.failure

    assert failure("false") == "exit code 1"
    assert failure("sleep", "600", limit_s=1.0) == "no end after 1 s"
    assert failure("/not/there") == "/not/there cannot be started: No such file or directory"
