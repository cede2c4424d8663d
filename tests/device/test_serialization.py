import copy
import io
import pickle

import pytest
import torch
import torch_openreg  # noqa: F401


def _through_a_file(value, **kwargs):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **kwargs)


def test_save_and_load_stay_on_their_device():
    tensor = torch.arange(6.0, device="openreg:1").view(2, 3)
    loaded = _through_a_file(tensor)
    assert loaded.device == torch.device("openreg:1")
    assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize("source", ["cpu", "openreg:0", "openreg:3"])
@pytest.mark.parametrize("target", ["cpu", "openreg:0", "openreg:2", "openreg"])
def test_map_location(source, target):
    tensor = torch.arange(6, dtype=torch.int64, device=source)
    for location in (target, torch.device(target)):
        loaded = _through_a_file(tensor, map_location=location)
        assert loaded.device.type == torch.device(target).type
        assert loaded.device.index == (
            torch.device(target).index or (None if target == "cpu" else 0)
        )
        assert loaded.tolist() == list(range(6))


def test_map_location_as_dict_and_function():
    tensor = torch.ones(3, device="openreg:0")
    assert _through_a_file(tensor, map_location={"openreg:0": "openreg:1"}).device.index == 1
    moved = _through_a_file(tensor, map_location=lambda storage, location: storage)
    assert moved.device.type == "cpu" and moved.tolist() == [1, 1, 1]


def test_a_device_that_does_not_exist_is_named():
    with pytest.raises(RuntimeError, match="100|device"):
        _through_a_file(torch.ones(3, device="openreg"), map_location="openreg:100")


def test_views_share_their_storage_after_loading():
    base = torch.zeros(4, device="openreg")
    loaded, view = _through_a_file([base, base[2:]])
    view.fill_(1)
    assert loaded.tolist() == [0, 0, 1, 1]


def test_module_and_optimizer_state():
    model = torch.nn.Linear(3, 2, device="openreg")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, device="openreg")).sum().backward()
    optimizer.step()
    state = _through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(state["model"])
    assert torch.equal(other.weight, model.weight.cpu())
    assert state["optimizer"]["state"][0]["exp_avg"].device.type == "openreg"


def test_deepcopy_and_pickle():
    tensor = torch.arange(3.0, device="openreg:1", requires_grad=True)
    for twin in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert twin.device == tensor.device and twin.requires_grad
        assert twin.data_ptr() != tensor.data_ptr()
        assert torch.equal(twin.detach().cpu(), tensor.detach().cpu())
    module = copy.deepcopy(torch.nn.Linear(2, 2, device="openreg"))
    assert module.weight.device.type == "openreg"


def test_generator_state_travels():
    state = torch.openreg.get_rng_state()
    expected = torch.rand(5, device="openreg")
    torch.openreg.set_rng_state(_through_a_file(state, map_location="cpu"))
    assert torch.equal(torch.rand(5, device="openreg"), expected)
