"""Simulated devices, and what a job is told of them."""

import pytest

from fairlease.agent.devices import simulated


def test_a_simulated_cluster_has_named_hosts_gpus_and_blocks_of_sixteen() -> None:
    hosts = simulated("17x8")
    assert [host.host for host in hosts][:2] == ["host-001", "host-002"]
    first, last = hosts[0].inventory(), hosts[16].inventory()
    assert first.gpus[0] == "GPU-sim-host-001-0"
    assert len(first.gpus) == 8
    assert (first.pool, first.model, first.is_simulated) == ("h100", "H100-sim", True)
    assert (first.block, hosts[15].inventory().block, last.block) == ("block-01", "block-01", "block-02")


def test_several_agents_can_share_a_cluster() -> None:
    assert [host.host for host in simulated("2x4", 17)] == ["host-017", "host-018"]
    assert simulated("2x4", 17)[0].inventory() == simulated("17x4")[16].inventory()


@pytest.mark.parametrize("text", ["", "4", "4x", "x8", "0x8", "4x0", "4x17", "4097x8", "4 x 8", "4x8x2", "-4x8"])
def test_what_is_no_cluster_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="write HOSTSxGPUS, for example 4x8"):
        simulated(text)


def test_a_job_sees_its_gpus_by_uuid() -> None:
    (host,) = simulated("1x8")
    assert host.environment(host.inventory().gpus[2:4]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-sim-host-001-2,GPU-sim-host-001-3",
        "NVIDIA_VISIBLE_DEVICES": "GPU-sim-host-001-2,GPU-sim-host-001-3",
        "FAIRLEASE_SIMULATED": "1",
    }
