"""The text of the minicluster's files, which can be checked without root or Slurm."""

from pathlib import Path

import pytest
from minicluster.config import (
    Layout,
    Settings,
    add_hosts_block,
    node_index,
    node_name,
    remove_hosts_block,
    render_gres_conf,
    render_slurm_conf,
    render_slurmdbd_conf,
)
from minicluster.release import take_own_pmix

LAYOUT = Layout(root=Path("/state"), cache=Path("/cache"))


def slurm_conf(settings: Settings) -> list[str]:
    return render_slurm_conf(settings, LAYOUT).splitlines()


def partition(settings: Settings, name: str) -> str:
    (line,) = [each for each in slurm_conf(settings) if each.startswith(f"PartitionName={name} ")]
    return line


def test_defaults() -> None:
    lines = slurm_conf(Settings())
    assert "KillWait=10" in lines
    assert "JobRequeue=1" in lines
    assert "PreemptMode=REQUEUE" in lines
    assert "AuthInfo=socket=/state/munge/munge.socket,cred_expire=30" in lines
    assert "AccountingStorageType=accounting_storage/slurmdbd" in lines
    assert not [line for line in lines if line.startswith("SlurmctldParameters")]


@pytest.mark.parametrize("mode", ["requeue", "cancel"])
def test_only_the_low_partition_is_preempted(mode: str) -> None:
    settings = Settings(preempt=mode, grace=7)
    low, high = partition(settings, "low"), partition(settings, "high")
    assert f"PreemptMode={mode.upper()} GraceTime=7" in low
    assert "Default=YES" in low
    assert "PreemptMode=OFF" in high
    assert "Nodes=n[1-6]" in low
    assert "Nodes=n[1-6]" in high


def test_no_requeue() -> None:
    assert "JobRequeue=0" in slurm_conf(Settings(requeue=False))


def test_send_user_signal() -> None:
    lines = slurm_conf(Settings(send_user_signal=True))
    assert "SlurmctldParameters=preempt_send_user_signal" in lines


def test_another_release_has_its_own_plugins_and_words() -> None:
    settings = Settings(release="trixie", send_user_signal=True, max_array=3)
    lines = render_slurm_conf(settings, LAYOUT, Path("/trixie/plugins")).splitlines()
    assert "PluginDir=/trixie/plugins" in lines
    assert "PreemptParameters=send_user_signal" in lines
    assert "MaxArraySize=3" in lines
    assert "PluginDir=/trixie/plugins" in render_slurmdbd_conf(LAYOUT, Path("/trixie/plugins"))
    assert not [line for line in slurm_conf(Settings()) if line.startswith("PluginDir")]


def test_the_plugin_of_another_release_opens_the_libpmix_beside_it(tmp_path: Path) -> None:
    plugin = tmp_path / "x86_64-linux-gnu" / "slurm-wlm" / "mpi_pmix_v5.so"
    plugin.parent.mkdir(parents=True)
    built = b"before\0/usr/lib/x86_64-linux-gnu/pmix2/lib\0after"
    plugin.write_bytes(built)
    take_own_pmix(plugin)
    mended = plugin.read_bytes()
    assert mended.split(b"\0")[:2] == [b"before", b"$ORIGIN/../pmix2/lib"]
    assert (len(mended), mended[-6:]) == (len(built), b"\0after")


def test_no_accounting() -> None:
    text = render_slurm_conf(Settings(accounting=False), LAYOUT)
    assert "AccountingStorage" not in text


def test_no_gpus() -> None:
    settings = Settings(gpus=0)
    assert "gpu" not in render_slurm_conf(settings, LAYOUT)
    assert render_gres_conf(settings, LAYOUT) == ""


def test_gpus() -> None:
    settings = Settings(gpus=4)
    assert "Gres=gpu:4" in render_slurm_conf(settings, LAYOUT)
    assert render_gres_conf(settings, LAYOUT) == "Name=gpu File=/state/gpu/gpu[0-3]\n"


def test_slurmdbd_uses_the_same_munged() -> None:
    lines = render_slurmdbd_conf(LAYOUT).splitlines()
    assert "AuthInfo=socket=/state/munge/munge.socket" in lines


def test_node_names_count_from_one() -> None:
    assert Settings(nodes=3).node_names == ["n1", "n2", "n3"]
    assert node_index(node_name(17)) == 17


@pytest.mark.parametrize("before", ["", "127.0.0.1 localhost\n", "127.0.0.1 localhost\n\n# x\n"])
def test_hosts_block_can_be_undone(before: str) -> None:
    added = add_hosts_block(before, Settings(nodes=2))
    assert "10.213.7.1 ctl\n10.213.7.11 n1\n10.213.7.12 n2\n" in added
    assert remove_hosts_block(added) == before


def test_hosts_block_is_replaced_not_repeated() -> None:
    once = add_hosts_block("127.0.0.1 localhost\n", Settings(nodes=6))
    assert add_hosts_block(once, Settings(nodes=1)).count("ctl") == 1


def test_hosts_block_keeps_lines_after_it() -> None:
    text = add_hosts_block("127.0.0.1 localhost\n", Settings(nodes=1)) + "10.0.0.1 other\n"
    assert remove_hosts_block(text) == "127.0.0.1 localhost\n10.0.0.1 other\n"
