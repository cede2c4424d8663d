"""Networks train on the device as on the CPU."""

import threading

import pytest
import torch
import torch_openreg  # noqa: F401
from torch import nn

DEVICE = "openreg"


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 5),
    ), torch.randn(6, 3, 8, 8)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(7, 9, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(18, 5)

    def forward(self, inputs):
        return self.head(self.layer(inputs)[0][:, -1])


MODELS = {
    "convolutional": convolutional,
    "attention": lambda: (Attention(), torch.randint(0, 11, (6, 10))),
    "lstm": lambda: (Recurrent(nn.LSTM), torch.randn(6, 4, 7)),
    "gru": lambda: (Recurrent(nn.GRU), torch.randn(6, 4, 7)),
    "rnn": lambda: (Recurrent(nn.RNN), torch.randn(6, 4, 7)),
}


def train(name, device):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.to(device)
    inputs, targets = inputs.to(device), torch.arange(6).remainder(5).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {key: value.cpu() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_states_are_the_cpus(name):
    losses, state = train(name, DEVICE)
    cpu_losses, cpu_state = train(name, "cpu")
    torch.testing.assert_close(losses, cpu_losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, cpu_state)


@pytest.mark.parametrize("shape", [(2, 4, 8, 16), (4, 8, 16)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_and_without_a_batch(shape, causal):
    gradients = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        query, key, value = (torch.randn(shape).to(device).requires_grad_() for _ in range(3))
        out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        out.square().sum().backward()
        gradients.append([t.cpu() for t in (out.detach(), query.grad, key.grad, value.grad)])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_statistics_of_sync_batch_norm(dtype):
    inputs = torch.randn(6, 3, 4).to(dtype)
    device = inputs.to(DEVICE)
    mean, invstd = torch.batch_norm_stats(device, 1e-5)
    wide = inputs.float()
    torch.testing.assert_close(mean.cpu(), wide.mean((0, 2)))
    torch.testing.assert_close(invstd.cpu(), (wide.var((0, 2), correction=0) + 1e-5).rsqrt())
    # Two ranks with half of the rows each know together what one knows alone.
    halves = [torch.batch_norm_stats(part, 1e-5) for part in device.chunk(2)]
    running_mean, running_var = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
    merged_mean, merged_invstd = torch.batch_norm_gather_stats_with_counts(
        device,
        torch.stack([half[0] for half in halves]),
        torch.stack([half[1] for half in halves]),
        running_mean,
        running_var,
        0.1,
        1e-5,
        torch.full((2,), 12.0, device=DEVICE),
    )
    torch.testing.assert_close(merged_mean, mean)
    torch.testing.assert_close(merged_invstd, invstd)
    torch.testing.assert_close(running_mean.cpu(), wide.mean((0, 2)) * 0.1)
    torch.testing.assert_close(running_var.cpu(), 0.9 + wide.var((0, 2)) * 0.1)


def test_the_gradients_of_sync_batch_norm():
    torch.manual_seed(0)
    host = torch.randn(6, 3, 4, requires_grad=True)
    weight, bias = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    out = nn.functional.batch_norm(host, None, None, weight, bias, training=True)
    grad = torch.randn_like(out)
    wanted = torch.autograd.grad(out, (host, weight, bias), grad)

    inputs, dy, gamma = (t.detach().to(DEVICE) for t in (host, grad, weight))
    mean, invstd = torch.batch_norm_stats(inputs, 1e-5)
    forward = torch.batch_norm_elemt(inputs, gamma, bias.detach().to(DEVICE), mean, invstd, 1e-5)
    torch.testing.assert_close(forward.cpu(), out.detach())
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
        dy, inputs, mean, invstd, gamma, True, True, True
    )
    count = torch.tensor([24], dtype=torch.int32, device=DEVICE)
    grad_input = torch.batch_norm_backward_elemt(
        dy, inputs, mean, invstd, gamma, sum_dy, sum_dy_xmu, count
    )
    for got, expected in zip((grad_input, grad_weight, grad_bias), wanted, strict=True):
        torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("own_thread", [None, False, True])
def test_backward_runs_where_it_is_called_unless_told_otherwise(own_thread):
    threads = []
    tensor = torch.ones(2, device=DEVICE, requires_grad=True)
    result = tensor * 2
    result.register_hook(lambda _: threads.append(threading.get_ident()))
    default = torch.autograd.is_multithreading_enabled()
    with torch.autograd.set_multithreading_enabled(default if own_thread is None else own_thread):
        result.sum().backward()
    assert (threads[0] != threading.get_ident()) == bool(own_thread)
    assert tensor.grad.tolist() == [2, 2]
