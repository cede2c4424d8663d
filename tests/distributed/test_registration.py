"""What `import torch_openreg` registers, and the backend object without a second rank."""

import copy
import datetime
import pickle

import pytest
import torch
import torch.distributed as dist
import torch_openreg  # noqa: F401
from torch_openreg.distributed import ProcessGroupOCCL


def test_backend_is_registered_for_the_device():
    assert "occl" in dist.Backend.backend_list and dist.is_occl_available()
    assert dist.Backend.OCCL == "occl"
    assert dist.Backend.default_device_backend_map["openreg"] == "occl"
    assert dist.Backend.backend_capability["occl"] == ["openreg"]
    assert dist.is_backend_available("occl")


def test_constructor_has_torchs_four_arguments():
    store = dist.HashStore()
    group = ProcessGroupOCCL(store, 0, 1, datetime.timedelta(seconds=5))
    assert (group.rank(), group.size(), group.name()) == (0, 1, "occl")
    assert group.options._timeout == datetime.timedelta(seconds=5)
    default = ProcessGroupOCCL(store, 0, 1)
    assert default.options._timeout == datetime.timedelta(minutes=30)
    assert isinstance(group, dist.ProcessGroup) is False


@pytest.mark.parametrize(("rank", "size"), [(1, 1), (-1, 1), (0, 0)])
def test_constructor_refuses_a_rank_outside_the_group(rank, size):
    with pytest.raises(ValueError, match=f"rank {rank} is not one of"):
        ProcessGroupOCCL(dist.HashStore(), rank, size)


def test_a_group_of_one_rank_communicates_with_itself():
    group = ProcessGroupOCCL(dist.HashStore(), 0, 1)
    tensor = torch.arange(5.0, device="openreg")
    work = group.allreduce([tensor])
    assert work.wait()
    torch.openreg.synchronize()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert tensor.cpu().tolist() == [0, 1, 2, 3, 4]
    group.shutdown()


def test_capabilities():
    group = ProcessGroupOCCL(dist.HashStore(), 0, 1)
    assert group.supports_coalescing
    assert group.supports_splitting
    assert group.supports_shrinking
    assert not group.supports_time_estimate
    assert group.supports_tensor_alloc(torch.device("openreg", 0))
    tensor = group.allocate_tensor(6, dtype=torch.float16, device=torch.device("openreg", 0))
    assert (tensor.numel(), tensor.dtype, tensor.device.type) == (6, torch.float16, "openreg")


@pytest.mark.parametrize("name", ["suspend", "resume"])
def test_what_it_cannot_do_it_refuses(name):
    group = ProcessGroupOCCL(dist.HashStore(), 0, 1)
    with pytest.raises(RuntimeError, match=f"occl does not support {name}"):
        getattr(group, name)()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda options: options.clone()])
def test_options_are_copied_whole(copied):
    options = ProcessGroupOCCL.Options(is_high_priority_stream=True)
    options._timeout = datetime.timedelta(seconds=7)
    options.global_ranks_in_group = [3, 5]
    options.group_name = "tp"
    options.nan_check = True
    other = copied(options)
    assert type(other) is ProcessGroupOCCL.Options
    assert other.is_high_priority_stream
    assert other._timeout == datetime.timedelta(seconds=7)
    assert other.global_ranks_in_group == [3, 5]
    assert other.group_name == "tp"
    assert other.nan_check
    other.nan_check = False
    assert options.nan_check


def test_tensors_of_another_device_are_refused():
    group = ProcessGroupOCCL(dist.HashStore(), 0, 1)
    with pytest.raises(ValueError, match="expected openreg tensors, got one on cpu"):
        group.allreduce([torch.zeros(2)])


def test_pg_options_of_another_backend_are_refused(tmp_path):
    with pytest.raises(TypeError, match="ProcessGroupOCCL.Options"):
        dist.init_process_group(
            "occl",
            store=dist.FileStore(str(tmp_path / "store"), 1),
            rank=0,
            world_size=1,
            pg_options=dist.ProcessGroupGloo._Options(),
        )


def test_flight_recorder_dump_is_a_pickle():
    dump = pickle.loads(torch_openreg.distributed.dump_flight_recorder())
    assert dump["version"] == "2.10"
    assert isinstance(dump["entries"], list)
