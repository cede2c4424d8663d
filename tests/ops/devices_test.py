"""Tensors of several devices in one call, and what openreg does not have."""

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"


def test_a_scalar_of_the_host_may_be_mixed_in():
    device = torch.ones(3, device=DEVICE)
    assert (device + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert (1 - device).device.type == DEVICE
    assert (torch.tensor(2.0) * device).device.type == DEVICE
    assert torch.where(device > 0, 1.0, torch.tensor(0.0)).device.type == DEVICE


def test_indices_may_be_on_the_host():
    device = torch.arange(4.0, device=DEVICE)
    assert device[torch.tensor([1, 3])].tolist() == [1, 3]
    device[torch.tensor([0])] = 5
    assert device.tolist() == [5, 1, 2, 3]


@pytest.mark.parametrize("other", ["cpu", "openreg:1"])
def test_two_devices_are_an_error_that_names_both(other):
    with pytest.raises(RuntimeError, match="at least two devices, openreg:0 and " + other):
        torch.ones(3, device=DEVICE) + torch.ones(3, device=other)
    with pytest.raises(RuntimeError, match="at least two devices"):
        torch.cat([torch.ones(3, device=DEVICE), torch.ones(3, device=other)])


def test_a_result_cannot_be_written_to_the_host():
    with pytest.raises(RuntimeError, match="at least two devices"):
        torch.zeros(()).add_(torch.ones((), device=DEVICE))


def test_an_operator_runs_on_the_device_of_its_tensors():
    tensor = torch.ones(3, device="openreg:1")
    assert torch.openreg.current_device() == 0
    assert (tensor + 1).device == torch.device("openreg:1")
    assert torch.linalg.qr(torch.eye(2, device="openreg:1")).Q.device.index == 1


def test_factories_follow_the_device_argument():
    for make in (
        torch.arange,
        torch.eye,
        torch.randperm,
        torch.zeros,
        torch.randn,
        torch.bartlett_window,
        torch.hann_window,
    ):
        assert make(4, device="openreg:1").device == torch.device("openreg:1")
    with torch.device("openreg:1"):
        assert torch.tril_indices(3, 3).device == torch.device("openreg:1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.quantize_per_tensor(torch.ones(2, device=DEVICE), 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).to(DEVICE),
        lambda: torch.empty(2, dtype=torch.qint8, device=DEVICE),
    ],
)
def test_quantized_tensors_are_refused(make):
    with pytest.raises(NotImplementedError, match="openreg has no quantized tensors"):
        make()


def test_tensors_of_onednn_are_refused():
    with pytest.raises(NotImplementedError, match="openreg has no Mkldnn tensors"):
        torch.ones(2, device=DEVICE).to_mkldnn()


def test_an_operator_that_does_not_exist_says_so():
    with pytest.raises(NotImplementedError, match="does not exist for openreg"):
        torch._cudnn_init_dropout_state(
            0.5, True, 1, dtype=torch.float, layout=torch.strided, device=DEVICE, pin_memory=False
        )


def test_a_kernel_in_python_gets_the_hosts_memory():
    allocated = []
    library = torch.library.Library("openreg_devices_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")

    def twice(x):
        allocated.append(torch.zeros(1000))
        return x * 2

    library.impl("twice", twice, "CPU")
    before = torch.openreg.memory_allocated()
    result = torch.ops.openreg_devices_test.twice(torch.ones(2, device=DEVICE))
    assert result.tolist() == [2, 2] and result.device.type == DEVICE
    assert torch.openreg.memory_allocated() - before < 4000
    assert allocated[0].sum() == 0
