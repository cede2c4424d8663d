import threading

import pytest
import torch
import torch_openreg  # noqa: F401
from helpers import run_python

COUNT = torch.openreg.device_count()


@pytest.fixture(autouse=True)
def _device_zero():
    torch.openreg.set_device(0)
    yield
    torch.openreg.set_device(0)


def test_module_is_registered():
    import torch.openreg as module

    assert module is torch.openreg
    assert torch.get_device_module("openreg") is module
    assert torch.device("openreg:1").type == "openreg"


def test_count_is_eight_by_default_and_available():
    assert COUNT == 8
    assert torch.openreg.is_available()


@pytest.mark.parametrize("count", ["1", "3", "64"])
def test_count_follows_the_environment(count):
    code = "import torch, torch_openreg; print(torch.openreg.device_count())"
    assert run_python(code, {"OPENREG_DEVICE_COUNT": count}).stdout.strip() == count


@pytest.mark.parametrize("count", ["0", "65", "-1", "many"])
def test_a_count_that_is_none_is_an_error_when_the_device_is_used(count):
    code = """
        import torch, torch_openreg
        try:
            torch.openreg.init()
        except RuntimeError as error:
            assert "OPENREG_DEVICE_COUNT" in str(error), error
        else:
            raise SystemExit("accepted")
        assert not torch.openreg.is_available()
    """
    run_python(code, {"OPENREG_DEVICE_COUNT": count})


def test_current_device_is_per_thread():
    torch.openreg.set_device(2)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.openreg.current_device()))
    thread.start()
    thread.join(30)
    assert seen == [0]
    assert torch.openreg.current_device() == 2


@pytest.mark.parametrize("device", [1, "openreg:1", torch.device("openreg", 1)])
def test_devices_may_be_given_as_index_string_or_device(device):
    torch.openreg.set_device(device)
    assert torch.openreg.current_device() == 1
    torch.openreg.set_device("openreg")
    assert torch.openreg.current_device() == 1


def test_set_device_with_a_negative_index_changes_nothing():
    torch.openreg.set_device(3)
    torch.openreg.set_device(-1)
    assert torch.openreg.current_device() == 3


@pytest.mark.parametrize("index", [COUNT, 127, 1000])
def test_an_index_that_does_not_exist_names_what_was_expected(index):
    for call in (
        torch.openreg.set_device,
        torch.openreg.synchronize,
        torch.openreg.get_device_properties,
        torch.openreg.mem_get_info,
        torch.openreg.memory_stats,
        torch.openreg.current_stream,
        torch.openreg.Stream,
    ):
        with pytest.raises(RuntimeError, match=f"0 to {COUNT - 1}, got {index}|[Ii]nvalid device"):
            call(index)
    assert torch.openreg.current_device() == 0


def test_the_error_is_an_accelerator_error_with_a_code():
    with pytest.raises(torch.AcceleratorError) as caught:
        torch.openreg.set_device(COUNT)
    assert caught.value.error_code == 4  # orErrorInvalidDevice


@pytest.mark.parametrize("device", ["cpu", "meta", torch.device("cpu")])
def test_another_kind_of_device_is_refused(device):
    with pytest.raises(ValueError, match="openreg"):
        torch.openreg.synchronize(device)


@pytest.mark.parametrize("device", [1.5, True, object()])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(TypeError, match="device"):
        torch.openreg.set_device(device)


def test_device_context_restores_and_nests():
    with torch.openreg.device(1):
        assert torch.openreg.current_device() == 1
        with torch.openreg.device("openreg:2"):
            assert torch.openreg.current_device() == 2
        assert torch.openreg.current_device() == 1
        with torch.openreg.device(-1), torch.openreg.device(None):
            assert torch.openreg.current_device() == 1
    assert torch.openreg.current_device() == 0


def test_device_context_restores_after_an_exception():
    with pytest.raises(KeyError):
        with torch.openreg.device(1):
            raise KeyError
    assert torch.openreg.current_device() == 0


def test_device_of_follows_openreg_tensors_only():
    with torch.openreg.device_of(torch.empty(1, device="openreg:3")):
        assert torch.openreg.current_device() == 3
    with torch.openreg.device_of(torch.empty(1)):
        assert torch.openreg.current_device() == 0


def test_properties():
    properties = torch.openreg.get_device_properties(1)
    assert properties.name == torch.openreg.get_device_name("openreg:1")
    assert (properties.major, properties.minor) == torch.openreg.get_device_capability(1)
    assert properties.total_memory == torch.openreg.mem_get_info(1)[1]
    assert properties.multi_processor_count >= 1
    assert len(properties.uuid) == 16
    assert properties.uuid != torch.openreg.get_device_properties(0).uuid
    assert properties.name in repr(properties)


def test_peers_reach_each_other():
    assert torch.openreg.can_device_access_peer(0, COUNT - 1)
    with pytest.raises(RuntimeError):
        torch.openreg.can_device_access_peer(0, COUNT)


def test_torch_accelerator_is_openreg():
    assert torch.accelerator.current_accelerator() == torch.device("openreg")
    assert torch.accelerator.device_count() == COUNT
    torch.accelerator.set_device_index(2)
    assert torch.accelerator.current_device_index() == torch.openreg.current_device() == 2
    with torch.accelerator.device_index(1):
        assert torch.openreg.current_device() == 1
    torch.accelerator.synchronize()


def test_lists_dtypes_and_capabilities():
    assert torch.openreg.is_bf16_supported()
    assert set(torch.openreg.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16}
    assert torch.openreg.get_arch_list() == []
    assert torch.openreg.is_current_stream_capturing() is False


def test_the_dtypes_it_says_it_has_are_those_it_has():
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.complex64, torch.uint64, torch.bool} <= supported
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        if dtype in supported:
            wide = torch.complex64 if dtype.is_complex else torch.float32
            ones = torch.ones(4, dtype=wide, device="openreg")
            assert torch.equal(ones.to(dtype).to(wide), ones), dtype
        else:
            with pytest.raises((RuntimeError, TypeError)):
                torch.empty(4, dtype=dtype, device="openreg").to(torch.float32)


def test_every_public_name_exists():
    for name in torch.openreg.__all__:
        assert getattr(torch.openreg, name) is not None
    with pytest.raises(AttributeError, match="no_such_thing"):
        torch.openreg.no_such_thing  # noqa: B018
