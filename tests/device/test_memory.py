import gc
import threading

import pytest
import torch
import torch_openreg  # noqa: F401
from helpers import DEADLINE_S, gate, run_python

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _device_zero():
    torch.openreg.set_device(0)
    gc.collect()
    torch.openreg.synchronize()


def test_allocated_memory_follows_tensors():
    before = torch.openreg.memory_allocated()
    tensor = torch.empty(MIB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() == before + MIB
    assert torch.openreg.memory_reserved() >= torch.openreg.memory_allocated()
    del tensor
    assert torch.openreg.memory_allocated() == before


@pytest.mark.parametrize(
    "grow",
    [
        lambda tensor, many: tensor.resize_(many),
        lambda tensor, many: tensor.set_(tensor.untyped_storage(), 0, (many,), (1,)),
        lambda tensor, many: torch.arange(many, device="openreg", out=tensor),
        lambda tensor, many: tensor.untyped_storage().resize_(8 * many),
    ],
    ids=["resize_", "set_", "out", "storage"],
)
def test_a_tensor_for_which_there_is_no_memory_stays_as_it_is(grow):
    tensor = torch.arange(5, device="openreg")
    with pytest.raises(torch.OutOfMemoryError):
        grow(tensor, torch.openreg.mem_get_info()[1])
    assert tensor.shape == (5,) and tensor.untyped_storage().nbytes() == 40
    assert tensor.tolist() == [0, 1, 2, 3, 4]


def test_memory_is_counted_per_device():
    before = torch.openreg.memory_allocated(0), torch.openreg.memory_allocated(1)
    tensor = torch.empty(MIB, dtype=torch.uint8, device="openreg:1")
    assert torch.openreg.memory_allocated(0) == before[0]
    assert torch.openreg.memory_allocated("openreg:1") == before[1] + MIB
    assert tensor.device == torch.device("openreg:1")


def test_peak_and_its_reset():
    base = torch.openreg.memory_allocated()
    tensor = torch.empty(8 * MIB, dtype=torch.uint8, device="openreg")
    del tensor
    assert torch.openreg.max_memory_allocated() >= base + 8 * MIB
    torch.openreg.reset_peak_memory_stats()
    assert torch.openreg.max_memory_allocated() == torch.openreg.memory_allocated()
    assert torch.openreg.max_memory_reserved() == torch.openreg.memory_reserved()
    torch.openreg.reset_max_memory_allocated()
    torch.openreg.reset_max_memory_reserved()


def test_accumulated_statistics_and_their_reset():
    torch.openreg.reset_accumulated_memory_stats()
    for _ in range(3):
        torch.empty(MIB, dtype=torch.uint8, device="openreg")
    stats = torch.openreg.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 3
    assert stats["allocated_bytes.all.allocated"] == 3 * MIB
    torch.openreg.reset_accumulated_memory_stats()
    assert torch.openreg.memory_stats()["allocation.all.allocated"] == 0


def test_torch_accelerator_tells_the_same():
    tensor = torch.empty(MIB, dtype=torch.uint8, device="openreg")
    assert torch.accelerator.memory_allocated() == torch.openreg.memory_allocated()
    assert torch.accelerator.memory_reserved() == torch.openreg.memory_reserved()
    assert torch.accelerator.max_memory_allocated() == torch.openreg.max_memory_allocated()
    assert torch.accelerator.memory_stats() == torch.openreg.memory_stats()
    assert torch.accelerator.get_memory_info() == torch.openreg.mem_get_info()
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()
    assert tensor.numel() == MIB


def test_mem_get_info_counts_what_is_used():
    torch.openreg.empty_cache()
    free, total = torch.openreg.mem_get_info()
    assert 0 < free <= total
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.mem_get_info()[0] <= free - 64 * MIB
    del tensor
    torch.openreg.synchronize()
    assert torch.openreg.mem_get_info()[0] >= free - MIB


def test_empty_cache_gives_reserved_memory_back():
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="openreg")
    del tensor
    torch.openreg.synchronize()
    reserved = torch.openreg.memory_reserved()
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() <= reserved - 64 * MIB


def test_a_freed_block_is_reused():
    tensor = torch.empty(MIB, dtype=torch.uint8, device="openreg")
    address = tensor.data_ptr()
    del tensor
    assert torch.empty(MIB, dtype=torch.uint8, device="openreg").data_ptr() == address


def test_summary_is_a_table_of_the_statistics():
    full, short = torch.openreg.memory_summary(), torch.openreg.memory_summary(abbreviated=True)
    assert "Allocated memory" in full and "Allocated memory" in short
    assert full.count("from large pool") == full.count("from small pool") == 9
    assert "from" not in short
    assert len(short) < len(full)
    assert len({len(line) for line in full.splitlines()}) == 1


def test_small_and_large_allocations_are_counted_apart():
    names = ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes")
    before = torch.openreg.memory_stats()
    small = torch.empty(1000, dtype=torch.uint8, device="openreg")
    large = torch.empty(MIB + 1, dtype=torch.uint8, device="openreg")
    stats = torch.openreg.memory_stats()
    for pool, size in (("small_pool", 1000), ("large_pool", MIB + 1)):
        key = f"requested_bytes.{pool}.current"
        assert stats[key] == before[key] + size
        key = f"allocation.{pool}.current"
        assert stats[key] == before[key] + 1
    for name in (*names, "segment", "reserved_bytes", "inactive_split", "inactive_split_bytes"):
        parts = [stats[f"{name}.{pool}.current"] for pool in ("small_pool", "large_pool")]
        assert stats[f"{name}.all.current"] == sum(parts), name
    for name in names:
        for metric in ("allocated", "freed"):
            parts = [stats[f"{name}.{pool}.{metric}"] for pool in ("small_pool", "large_pool")]
            assert stats[f"{name}.all.{metric}"] == sum(parts), (name, metric)
    del small, large


def test_statistics_as_a_nested_dictionary():
    tensor = torch.empty(1000, device="openreg")
    flat, nested = torch.openreg.memory_stats(), torch.openreg.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["small_pool"]["current"] == tensor.numel() * 4 + 96
    assert nested["num_ooms"] == flat["num_ooms"]
    for name, value in flat.items():
        group = nested
        for key in name.split("."):
            group = group[key]
        assert group == value


def test_statistics_of_pinned_memory():
    torch.openreg.init()
    torch.openreg.reset_peak_host_memory_stats()
    torch.openreg.reset_accumulated_host_memory_stats()
    before = torch.openreg.host_memory_stats()
    pinned = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    stats = torch.openreg.host_memory_stats()
    # Blocks are powers of two.
    assert stats["active_bytes.current"] == before["active_bytes.current"] + 4 * MIB
    assert stats["active_requests.current"] == before["active_requests.current"] + 1
    assert stats["active_bytes.allocated"] == 4 * MIB
    assert stats["allocated_bytes.current"] >= stats["active_bytes.current"]
    assert stats["allocations.current"] >= stats["active_requests.current"]
    assert stats["host_alloc_time.count"] == stats["num_host_alloc"]
    nested = torch.openreg.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["peak"] == stats["active_bytes.peak"] >= 4 * MIB
    del pinned
    freed = torch.openreg.host_memory_stats()
    assert freed["active_bytes.current"] == before["active_bytes.current"]
    assert freed["active_bytes.freed"] == 4 * MIB
    torch.accelerator.empty_host_cache()
    assert torch.openreg.host_memory_stats()["allocated_bytes.current"] < 4 * MIB


def test_out_of_memory_has_the_usual_figures():
    total = torch.openreg.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(total + MIB, dtype=torch.uint8, device="openreg")
    text = str(caught.value)
    assert text.startswith("openreg out of memory. Tried to allocate ")
    for figure in (
        "total capacity",
        "is free",
        "is allocated by PyTorch",
        "is reserved by PyTorch",
    ):
        assert figure in text
    assert torch.openreg.OutOfMemoryError is torch.OutOfMemoryError
    assert torch.openreg.memory_stats()["num_ooms"] >= 1
    assert torch.zeros(3, device="openreg").sum().item() == 0  # and life goes on


def test_the_limit_of_the_environment_holds_for_all_devices_together():
    code = """
        import torch, torch_openreg
        assert torch.openreg.mem_get_info()[1] == 64 << 20
        first = torch.empty(40 << 20, dtype=torch.uint8, device="openreg:0")
        try:
            torch.empty(40 << 20, dtype=torch.uint8, device="openreg:1")
        except torch.OutOfMemoryError as error:
            assert "64.00 MiB" in str(error), error
        else:
            raise SystemExit("no error")
        del first
        torch.openreg.synchronize()
        torch.empty(40 << 20, dtype=torch.uint8, device="openreg:1")  # cached memory is given up
    """
    run_python(code, {"OPENREG_DEVICE_MEMORY": "64M"})


def test_a_fraction_limits_the_device():
    code = """
        import torch, torch_openreg
        torch.openreg.set_per_process_memory_fraction(0.25, 1)
        assert torch.openreg.get_per_process_memory_fraction(1) == 0.25
        assert torch.openreg.get_per_process_memory_fraction(0) == 1.0
        torch.empty(20 << 20, dtype=torch.uint8, device="openreg:0")
        try:
            torch.empty(20 << 20, dtype=torch.uint8, device="openreg:1")
        except torch.OutOfMemoryError:
            pass
        else:
            raise SystemExit("no error")
    """
    run_python(code, {"OPENREG_DEVICE_MEMORY": "64M"})


def test_a_fraction_that_is_none_is_refused():
    with pytest.raises(TypeError, match="float"):
        torch.openreg.set_per_process_memory_fraction(1)
    for fraction in (0.0, -0.5, 1.5):
        with pytest.raises(ValueError, match="fraction"):
            torch.openreg.set_per_process_memory_fraction(fraction)


def test_raw_allocations():
    before = torch.openreg.memory_allocated()
    stream = torch.openreg.Stream()
    for given in (None, stream, stream.openreg_stream):
        address = torch.openreg.caching_allocator_alloc(1000, stream=given)
        assert address % 512 == 0
        assert torch.openreg.memory_allocated() > before
        torch.openreg.caching_allocator_delete(address)
    assert torch.openreg.memory_allocated() == before
    with pytest.raises(ValueError, match="at least 0"):
        torch.openreg.caching_allocator_alloc(-1)
    with pytest.raises(ValueError, match="openreg:1"):
        torch.openreg.caching_allocator_alloc(1, device=1, stream=stream)


def test_a_double_free_is_an_error():
    address = torch.openreg.caching_allocator_alloc(1000)
    torch.openreg.caching_allocator_delete(address)
    with pytest.raises(torch.AcceleratorError):
        torch.openreg.caching_allocator_delete(address)


def test_freeing_what_is_no_block_is_an_error():
    host = torch.empty(8)
    with pytest.raises(torch.AcceleratorError):
        torch.openreg.caching_allocator_delete(host.data_ptr())
    address = torch.openreg.caching_allocator_alloc(4096)
    with pytest.raises(torch.AcceleratorError):
        torch.openreg.caching_allocator_delete(address + 512)
    torch.openreg.caching_allocator_delete(address)


def test_negative_sizes_are_refused():
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device="openreg")


def test_a_stream_that_records_a_tensor_keeps_its_block():
    stream = torch.openreg.Stream()
    tensor = torch.empty(MIB, dtype=torch.uint8, device="openreg")
    address = tensor.data_ptr()
    held = gate(stream)
    tensor.record_stream(stream)
    del tensor
    later = torch.empty(MIB, dtype=torch.uint8, device="openreg")
    assert later.data_ptr() != address
    held.open()
    stream.synchronize()


def test_memory_freed_on_one_stream_is_not_given_to_another_too_early():
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        tensor = torch.empty(MIB, dtype=torch.uint8, device="openreg")
        held = gate()
        address = tensor.data_ptr()
        del tensor
    assert torch.empty(MIB, dtype=torch.uint8, device="openreg").data_ptr() != address
    held.open()
    stream.synchronize()


def test_resizing_a_storage_keeps_its_bytes():
    tensor = torch.arange(8, dtype=torch.int32, device="openreg")
    storage = tensor.untyped_storage()
    storage.resize_(1 << 16)
    assert storage.nbytes() == 1 << 16
    assert tensor.tolist() == list(range(8))
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(32)
    tensor.fill_(3)
    assert tensor.tolist() == [3] * 8


def test_an_empty_tensor_takes_no_memory():
    before = torch.openreg.memory_allocated()
    tensor = torch.empty(0, 5, device="openreg:2")
    assert tensor.device.index == 2 and tensor.data_ptr() == 0
    assert torch.openreg.memory_allocated(2) == 0 or torch.openreg.memory_allocated() == before


def test_threads_allocate_at_once():
    errors = []

    def work(device):
        try:
            for size in range(1, 400):
                tensor = torch.full((size,), float(size), device=f"openreg:{device}")
                if tensor[size - 1].item() != size:
                    errors.append(size)
        except Exception as error:  # noqa: BLE001, reported below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert errors == []


def test_pinned_memory():
    pinned = torch.empty(1000, pin_memory=True)
    assert pinned.is_pinned() and pinned.device.type == "cpu"
    assert torch.ones(3).pin_memory().is_pinned()
    assert torch.ones(3).pin_memory().tolist() == [1, 1, 1]
    assert not torch.ones(3).is_pinned()


def test_pinned_copies_do_not_block_and_keep_their_memory():
    stream = torch.openreg.Stream()
    target = torch.zeros(1000, device="openreg")
    torch.openreg.synchronize()
    with torch.openreg.stream(stream):
        held = gate()
        source = torch.full((1000,), 5.0).pin_memory()
        target.copy_(source, non_blocking=True)
        address = source.data_ptr()
        del source  # the copy has not run: its memory must not be reused
        again = torch.full((1000,), 9.0).pin_memory()
        assert again.data_ptr() != address
        assert not stream.query()
        held.open()
    stream.synchronize()
    assert torch.equal(target.cpu(), torch.full((1000,), 5.0))


def test_non_blocking_copy_to_pinned_memory():
    source = torch.arange(1000.0, device="openreg")
    target = torch.zeros(1000).pin_memory()
    target.copy_(source, non_blocking=True)
    torch.openreg.current_stream().synchronize()
    assert torch.equal(target, torch.arange(1000.0))


@pytest.mark.parametrize("to_device", [True, False])
def test_a_long_pinned_copy_is_left_to_the_stream(to_device):
    stream = torch.openreg.Stream()
    count = 1 << 20
    source, target = torch.arange(count, dtype=torch.int32), torch.zeros(count, dtype=torch.int32)
    source = source.pin_memory() if to_device else source.openreg()
    target = target.openreg() if to_device else target.pin_memory()
    torch.openreg.synchronize()
    with torch.openreg.stream(stream):
        held = gate()
        target.copy_(source, non_blocking=True)
        copied = stream.record_event()
        if to_device:
            address = source.data_ptr()
            del source  # its pinned block must not be taken by somebody else
            other = torch.full((count,), -1, dtype=torch.int32).pin_memory()
            assert other.data_ptr() != address
        assert not copied.query()
        held.open()
        copied.synchronize()
    assert torch.equal(target.cpu(), torch.arange(count, dtype=torch.int32))


@pytest.mark.parametrize("waited_by", ["stream", "event", "device", "operator", "item"])
def test_a_pinned_copy_that_is_waited_for_at_once(waited_by):
    source = torch.full((1 << 20,), 3.0).pin_memory()
    for _ in range(20):
        target = torch.zeros(1 << 20, device="openreg")
        target.copy_(source, non_blocking=True)
        if waited_by == "stream":
            torch.openreg.current_stream().synchronize()
        elif waited_by == "event":
            torch.openreg.current_stream().record_event().synchronize()
        elif waited_by == "device":
            torch.openreg.synchronize()
        total = target.sum() if waited_by == "operator" else target[-1]
        assert total.item() == (3 << 20 if waited_by == "operator" else 3)


def test_a_copy_to_the_host_that_does_not_block_is_pinned():
    tensor = torch.arange(100.0, device="openreg")
    copy = tensor.to("cpu", non_blocking=True)
    torch.openreg.synchronize()
    assert copy.is_pinned() and torch.equal(copy, torch.arange(100.0))


def test_dereference_on_the_host_dies_by_segmentation_fault():
    code = """
        import ctypes, torch, torch_openreg
        ctypes.string_at(torch.ones(4, device="openreg").data_ptr(), 4)
    """
    assert run_python(code, check=False).returncode == -11
