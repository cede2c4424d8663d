"""A small model, its data, and what one process on the CPU makes of the batches of all ranks."""

import torch
from torch import nn

INSIDE, OUTSIDE = 8, 4


class Block(nn.Module):
    """A residual block whose inner width no number of ranks here divides."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(INSIDE, 13), nn.Linear(13, INSIDE)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm, self.out = nn.LayerNorm(INSIDE), nn.Linear(INSIDE, OUTSIDE)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def net(kind=Net):
    torch.manual_seed(7)
    return kind()


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (
        torch.randn(6, INSIDE, generator=generator),
        torch.randn(6, OUTSIDE, generator=generator),
    )


def loss_of(model, step, rank, device="cpu"):
    x, y = (tensor.to(device) for tensor in batch(step, rank))
    return nn.functional.mse_loss(model(x).float(), y)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, device, rank, steps=4, first=0):
    """The losses of `steps` steps on this rank's batches."""
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, rank, device)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def reference(ranks, steps=4, make_optimizer=sgd, active=None, kind=Net):
    """The model after `steps` steps on the batches of all ranks, or of active(step)."""
    model = net(kind)
    optimizer = make_optimizer(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(ranks) if active is None else active(step):
            (loss_of(model, step, rank) / ranks).backward()
        optimizer.step()
    return model


def same(found, expected, tolerance=1e-5, what=""):
    """Two tensors, of whatever device and kind, have the same values."""
    found, expected = (
        tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        for tensor in (found.detach(), expected.detach())
    )
    torch.testing.assert_close(
        found.cpu(),
        expected.cpu(),
        rtol=tolerance,
        atol=tolerance,
        check_dtype=False,
        msg=lambda message: f"{what}: {message}",
    )


def same_parameters(found, expected, tolerance=1e-5, device=None):
    """Every parameter of `found` has the values of the one of that name in `expected`."""
    wanted = dict(expected.named_parameters())
    for name, parameter in found.named_parameters():
        for wrapper in ("module.", "_fsdp_wrapped_", "_checkpoint_wrapped_"):
            name = name.replace(wrapper, "")
        value = parameter if device is None else parameter.to(device)
        same(value, wanted[name], tolerance, name)


def same_gradients(found, expected, tolerance=1e-5):
    for (name, mine), theirs in zip(found.named_parameters(), expected.parameters(), strict=True):
        same(mine.grad, theirs.grad, tolerance, name)
