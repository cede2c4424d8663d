"""The forms in which an operator is called on both devices: plain, backward, out=, in place."""

import comparing
import torch
from moving import Mover, leaves, tensors_of

DEVICE = "openreg"
SEED = 1234
# Results that are memory nobody wrote: only their form can be compared.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}


# All arguments but the first are of the host, on every device.
HOST_ARGUMENTS = {"tensor_split"}


def seed(number):
    """Makes the next random numbers the same on both devices: those of this seed."""
    torch.default_generator.manual_seed(number)
    torch.get_device_module(DEVICE).manual_seed(number)


class CpuError(Exception):
    """The CPU itself raises: there is nothing to compare with."""


def mentions_device(arguments):
    """True if a tensor or a device is among the arguments."""
    return any(
        isinstance(leaf, (torch.Tensor, torch.device)) or (isinstance(leaf, str) and leaf == DEVICE)
        for leaf in leaves(arguments)
    )


class Call:
    """One sample of an operator, called with fresh copies of its arguments each time."""

    def __init__(self, op, sample, device):
        self.op = op
        self.sample = sample
        self.device = torch.device(device)
        self.numbers = op.name not in UNINITIALISED
        self.plain = None  # what the CPU gave in the plain form, for its shapes and dtypes

    def arguments(self, device):
        """Returns independent copies of (input, args, kwargs) on `device`."""
        args = self.sample.args
        if self.op.name not in HOST_ARGUMENTS:
            return Mover(device).tree((self.sample.input, args, self.sample.kwargs))
        return (
            Mover(device).tree(self.sample.input),
            *Mover("cpu").tree((args, self.sample.kwargs)),
        )

    def run(self, function, device, *, arguments=None, **kwargs):
        """Returns (arguments, result or the exception)."""
        if arguments is None:
            arguments = self.arguments(device)
        first, args, named = arguments
        seed(SEED)
        try:
            return arguments, function(first, *args, **named, **kwargs)
        except Exception as error:  # compared with the other side's
            return arguments, error

    def compare(self, what, function, *, numbers=None):
        """Calls `function` on both devices and compares everything. Returns both results."""
        cpu_arguments, cpu = self.run(function, "cpu")
        device_arguments, device = self.run(function, self.device)
        self.compare_sides(what, (cpu_arguments, cpu), (device_arguments, device), numbers=numbers)
        return cpu, device

    def compare_sides(self, what, cpu_side, device_side, *, numbers=None):
        """Compares (arguments, result) of both devices."""
        numbers = self.numbers if numbers is None else numbers
        cpu_arguments, cpu = cpu_side
        device_arguments, device = device_side
        if isinstance(cpu, Exception):
            if not isinstance(device, Exception):
                raise comparing.Difference(f"{what}: the CPU raises {cpu!r}, the device does not")
            raise CpuError(repr(cpu))
        if isinstance(device, Exception):
            raise comparing.Difference(f"{what}: {type(device).__name__}: {device}") from device
        # A factory that is told no device makes tensors of the host.
        expected = self.device if mentions_device(device_arguments) else torch.device("cpu")
        comparing.compare_structures(what, cpu, device, expected, values=numbers)
        comparing.compare_structures(
            f"{what}: arguments afterwards",
            tensors_of(cpu_arguments),
            tensors_of(device_arguments),
            None,
            values=self.numbers,
        )
        left = comparing.relations(cpu_arguments, cpu)
        right = comparing.relations(device_arguments, device)
        if left != right:
            comparing.fail(f"{what}: aliasing", left, right)


def is_random(call):
    """True if the CPU's result depends on the seed, or is not determined at all."""
    results = []
    for number in (1, 2):
        first, args, named = call.arguments("cpu")
        seed(number)
        try:
            results.append(tensors_of(call.op(first, *args, **named)))
        except Exception as error:  # (whatever it is, there is no reference)
            raise CpuError(repr(error)) from error
    for left, right in zip(*results, strict=True):
        if not comparing.equal(left.detach(), right.detach()):
            return True
    return False


def forward(call):
    """The plain call."""
    call.plain, _ = call.compare("forward", call.op)


def repeatable(call):
    """A random operator: the same seed gives the same numbers."""
    _, first = call.run(call.op, call.device)
    _, second = call.run(call.op, call.device)
    if isinstance(first, Exception):
        raise comparing.Difference(f"forward: {first!r}")
    for left, right in zip(tensors_of(first), tensors_of(second), strict=True):
        comparing.compare_values("the same seed twice", left.detach().cpu(), right)


def _gradients(call, device):
    def compute(first, *args, **named):
        result = call.op(first, *args, **named)
        if call.sample.output_process_fn_grad is not None:
            result = call.sample.output_process_fn_grad(result)
        outputs = [t for t in tensors_of(result) if t.requires_grad]
        inputs = [t for t in tensors_of((first, args, named)) if t.requires_grad]
        if not outputs or not inputs:
            return []
        generator = torch.Generator().manual_seed(SEED)
        grads = [
            torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device) for t in outputs
        ]
        return list(torch.autograd.grad(outputs, inputs, grads, allow_unused=True))

    return call.run(compute, device)


def backward(call):
    """The gradients of all inputs for one gradient of the outputs."""
    call.compare_sides("backward", _gradients(call, "cpu"), _gradients(call, call.device))


def _outs(results, change):
    """Tensors to be given as out=, made from a plain result by `change`."""
    if isinstance(results, torch.Tensor):
        return change(results)
    return tuple(change(result) for result in results)


def _same(result):
    return torch.full_like(result.resolve_conj().resolve_neg(), 1)


def _spread(result):
    """The right shape, every second element of a larger storage."""
    storage = torch.ones((*result.shape, 2), dtype=result.dtype)
    return storage[..., 0] if result.dim() else storage[0].clone()


def _small(result):
    return torch.ones(0, dtype=result.dtype)


OUT_FORMS = {"out=": _same, "out= with gaps": _spread, "out= resized": _small}


def out(call):
    """out= with tensors of the right shape, with gaps, and with nothing in them."""
    plain = call.plain
    results = plain if isinstance(plain, (tuple, list)) else [plain]
    if not all(isinstance(result, torch.Tensor) for result in results):
        return
    with torch.no_grad():
        for name, change in OUT_FORMS.items():
            sides = []
            for device in ("cpu", call.device):
                outs = Mover(device).tree(_outs(plain, change))
                arguments, result = call.run(call.op, device, out=outs)
                sides.append(((arguments, outs), result))
            try:
                call.compare_sides(name, *sides)
            except CpuError:
                continue


def in_place(call):
    """The variant that ends in an underscore."""
    with torch.no_grad():
        call.compare("in place", call.op.inplace_variant)
