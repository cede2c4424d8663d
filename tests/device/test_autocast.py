import pytest
import torch
import torch_openreg  # noqa: F401


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_products_run_in_the_lower_precision(dtype):
    a, b = torch.randn(4, 4, device="openreg"), torch.randn(4, 4, device="openreg")
    layer = torch.nn.Linear(4, 4, device="openreg")
    with torch.autocast("openreg", dtype=dtype):
        assert (a @ b).dtype == dtype
        assert layer(a).dtype == dtype
        assert torch.nn.functional.conv2d(a.view(1, 1, 4, 4), b.view(1, 1, 4, 4)).dtype == dtype
        assert torch.is_autocast_enabled("openreg")
        assert torch.get_autocast_dtype("openreg") == dtype
    assert (a @ b).dtype == torch.float32
    assert not torch.is_autocast_enabled("openreg")


def test_sensitive_operators_run_in_float32():
    half = torch.rand(4, device="openreg").half()
    with torch.autocast("openreg"):
        assert half.exp().dtype == torch.float32
        assert torch.softmax(half, 0).dtype == torch.float32
        assert half.sum().dtype == torch.float32
        assert torch.nn.functional.mse_loss(half, half).dtype == torch.float32


def test_promotion_takes_the_widest():
    half, single = torch.rand(4, device="openreg").half(), torch.rand(4, device="openreg")
    with torch.autocast("openreg"):
        assert torch.cat([half, single]).dtype == torch.float32
        assert torch.addcmul(single, half, half).dtype == torch.float32


def test_nested_and_disabled():
    a = torch.randn(4, 4, device="openreg")
    with torch.autocast("openreg"):
        with torch.autocast("openreg", enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.float16


def test_the_cpus_autocast_is_another():
    a = torch.randn(4, 4, device="openreg")
    with torch.autocast("cpu"):
        assert (a @ a).dtype == torch.float32


def test_binary_cross_entropy_is_refused():
    p, t = torch.rand(4, device="openreg"), torch.ones(4, device="openreg")
    with torch.autocast("openreg"):
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            torch.nn.functional.binary_cross_entropy(p, t)
        torch.nn.functional.binary_cross_entropy_with_logits(p, t)


def test_a_dtype_that_is_not_supported_switches_off_with_a_warning():
    with pytest.warns(UserWarning, match="not supported"):
        with torch.autocast("openreg", dtype=torch.float64):
            assert not torch.is_autocast_enabled("openreg")


def test_training_with_gradient_scaling():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    ).openreg()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("openreg", init_scale=1024.0)
    x, y = torch.randn(64, 8, device="openreg"), torch.zeros(64, 1, device="openreg")
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("openreg"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert scaler.get_scale() == 1024.0


def test_an_overflow_skips_the_step_and_halves_the_scale():
    weight = torch.ones(2, device="openreg", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("openreg", init_scale=8.0)
    (scaler.scale(weight.sum()) * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1]
    assert scaler.get_scale() == 4.0
