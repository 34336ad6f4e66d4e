"""The command line of scripts/minicluster."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import apart, cluster, packages, release, user
from .config import MAX_NODES, USER, Layout, Settings, user_environment
from .state import locked, require
from .system import ClusterError


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments say; give the exit status."""
    # Python ignores SIGPIPE, and what `run` becomes would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    options = _parser().parse_args(arguments)
    try:
        if os.geteuid() != 0 and options.command not in ("env", "status"):
            raise ClusterError("this must be run as root", 2)
        return _dispatch(options, Layout())
    except ClusterError as error:
        print(f"minicluster: {error}", file=sys.stderr)
        return error.code


def _dispatch(options: argparse.Namespace, layout: Layout) -> int:
    match options.command:
        case "up":
            _up(options, layout)
        case "down":
            with locked(layout):
                cluster.down(layout)
            print("down")
        case "node":
            with locked(layout):
                cluster.node(options.action, options.name, layout)
            print(f"{options.name}: {options.action} done")
        case "controller":
            with locked(layout):
                cluster.controller(options.action, layout)
            print(f"controller: {options.action} done")
        case "status":
            print("\n".join(cluster.status(layout)))
        case "env":
            for name, value in user_environment(require(layout).settings, layout).items():
                print(f"export {name}={shlex.quote(value)}")
        case "run":
            user.run(options.argv, require(layout).settings, layout)
        case "apart":
            return apart.run(options.argv, layout)
        case "first":
            return apart.first(options.argv)
    return 0


def _up(options: argparse.Namespace, layout: Layout) -> None:
    packages.ensure(options.install)
    if options.release:
        release.ensure(options.release, layout, install=options.install)
    settings = Settings(
        nodes=options.nodes,
        grace=options.grace,
        kill_wait=options.kill_wait,
        cred_expire=options.cred_expire,
        requeue=options.requeue,
        accounting=options.accounting,
        preempt=options.preempt,
        send_user_signal=options.send_user_signal,
        gpus=options.gpus,
        max_array=options.max_array,
        release=options.release,
        share=tuple(options.share),
    )
    begin = time.monotonic()
    with locked(layout):
        fresh = cluster.up(settings, layout)
    if fresh:
        print(f"up: {settings.nodes} hosts, user {USER}, {time.monotonic() - begin:.1f} s")
    else:
        print("already up")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minicluster", description="A real multi-host Slurm on this machine."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="build and start the cluster"))
    commands.add_parser("down", help="remove the cluster")
    node = commands.add_parser("node", help="power or network of one host")
    node.add_argument("action", choices=["kill", "start", "cut", "heal"])
    node.add_argument("name", metavar="NAME")
    controller = commands.add_parser("controller", help="stop or start slurmctld")
    controller.add_argument("action", choices=["stop", "start"])
    commands.add_parser("status", help="say what runs")
    commands.add_parser("env", help="print shell exports")
    run = commands.add_parser("run", help="run a command as the ordinary user on the controller")
    away = commands.add_parser("apart", help="run a command where a second cluster can be up")
    for parser_of_a_command in (run, away, commands.add_parser("first")):
        parser_of_a_command.add_argument("argv", nargs="+", metavar="CMD", help="after a --")
    return parser


def _add_up(parser: argparse.ArgumentParser) -> None:
    default = Settings()
    add = parser.add_argument
    add("--nodes", type=_whole(1, MAX_NODES), default=default.nodes)
    add("--grace", type=_whole(0), default=default.grace, help="GraceTime of partition low, s")
    add("--kill-wait", type=_whole(1), default=default.kill_wait, help="KillWait, s")
    add("--cred-expire", type=_whole(5), default=default.cred_expire, help="requeue delay, s")
    add("--no-requeue", dest="requeue", action="store_false", help="JobRequeue=0")
    add("--no-accounting", dest="accounting", action="store_false", help="no slurmdbd")
    add("--preempt", choices=["requeue", "cancel"], default=default.preempt)
    add("--send-user-signal", action="store_true", help="at preemption, the job's own --signal")
    add("--gpus", type=_whole(0), default=default.gpus, help="pretend GPUs for each host")
    add("--max-array", type=_whole(2), default=default.max_array, help="MaxArraySize")
    add(
        "--release", choices=release.RELEASES, default="", help="of Debian or Ubuntu, for its Slurm"
    )
    add("--share", type=_folder, action="append", default=[], metavar="PATH")
    add("--install", action="store_true", help="install missing Debian packages first")


def _whole(least: int, most: int = 65533) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}")
        return value

    return parse


def _folder(text: str) -> str:
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"no such folder: {text}")
    for folder in (path, *path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise argparse.ArgumentTypeError(
                f"the ordinary user {USER} may not enter {folder}: use a folder elsewhere, "
                f"or chmod o+x {folder}"
            )
    return str(path)
