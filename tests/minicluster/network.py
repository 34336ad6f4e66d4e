"""The network between the hosts: a bridge, and for each host a namespace with one cable."""

from __future__ import annotations

import json
from pathlib import Path

from .config import (
    PREFIX_LENGTH,
    Settings,
    add_hosts_block,
    controller_address,
    node_address,
    node_index,
    remove_hosts_block,
)
from .system import call

BRIDGE = "rmc0"
_CABLE = "rmc-v"
_NAMESPACE = "rmc-"
_HOSTS = Path("/etc/hosts")


def namespace_path(node: str) -> str:
    return f"/run/netns/{_NAMESPACE}{node}"


def create_bridge() -> None:
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{controller_address()}/{PREFIX_LENGTH}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def plug_in(node: str) -> None:
    """Make a host's namespace and cable."""
    index = node_index(node)
    namespace, cable = f"{_NAMESPACE}{node}", f"{_CABLE}{index}"
    _ip("netns", "add", namespace)
    # A fixed hardware address: neighbours that remember it reach a restarted host at once.
    _ip(
        *("link", "add", cable, "type", "veth", "peer", "name", "eth0"),
        *("address", f"02:72:6d:63:00:{index:02x}", "netns", namespace),
    )
    _ip("link", "set", cable, "master", BRIDGE, "up")
    inside = ("-n", namespace)
    _ip(*inside, "address", "add", f"{node_address(index)}/{PREFIX_LENGTH}", "dev", "eth0")
    _ip(*inside, "link", "set", "lo", "up")
    _ip(*inside, "link", "set", "eth0", "up")


def set_cable(node: str, up: bool) -> None:
    _ip("link", "set", f"{_CABLE}{node_index(node)}", "up" if up else "down")


def cable_up(node: str) -> bool:
    return f"{_CABLE}{node_index(node)}" in _links(only_up=True)


def unplug(node: str) -> None:
    """Remove a host's namespace and cable, if they are there."""
    namespace, cable = f"{_NAMESPACE}{node}", f"{_CABLE}{node_index(node)}"
    # The cable by name as well: the kernel takes its time to tear down a namespace.
    if cable in _links():
        _ip("link", "delete", cable)
    if namespace in _namespaces():
        _ip("netns", "delete", namespace)


def remove_all() -> None:
    """Remove every link and namespace of ours, whatever the state file remembers."""
    for link in _links():
        if link == BRIDGE or link.startswith(_CABLE):
            _ip("link", "delete", link)
    for namespace in _namespaces():
        if namespace.startswith(_NAMESPACE):
            _ip("netns", "delete", namespace)


def write_names(settings: Settings) -> None:
    _HOSTS.write_text(add_hosts_block(_HOSTS.read_text(), settings))


def remove_names() -> None:
    text = _HOSTS.read_text()
    cleaned = remove_hosts_block(text)
    if cleaned != text:
        _HOSTS.write_text(cleaned)


def _links(only_up: bool = False) -> list[str]:
    shown = json.loads(_ip("-json", "link", "show"))
    return [link["ifname"] for link in shown if not only_up or "UP" in link["flags"]]


def _namespaces() -> list[str]:
    shown = _ip("-json", "netns", "list")
    return [namespace["name"] for namespace in json.loads(shown or "[]")]


def _ip(*arguments: str) -> str:
    return call(["ip", *arguments])
