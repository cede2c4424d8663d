"""Random operators: the same seed gives the same numbers, however many threads compute them."""

import pytest
import torch
import torch_openreg  # noqa: F401

DEVICE = "openreg"
N = 100_000
DRAWS = {
    "rand": lambda: torch.rand(N, device=DEVICE),
    "randn": lambda: torch.randn(N, device=DEVICE),
    "randint": lambda: torch.randint(0, 1000, (N,), device=DEVICE),
    "randperm": lambda: torch.randperm(N, device=DEVICE),
    "bernoulli": lambda: torch.full((N,), 0.3, device=DEVICE).bernoulli_(),
    "bernoulli_p": lambda: torch.empty(N, device=DEVICE).bernoulli_(0.3),
    "exponential": lambda: torch.empty(N, device=DEVICE).exponential_(),
    "multinomial": lambda: torch.multinomial(torch.ones(N, device=DEVICE), 1000),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(N, device=DEVICE), 0.3),
    "normal": lambda: torch.normal(torch.zeros(N, device=DEVICE), 2.0),
    "poisson": lambda: torch.poisson(torch.full((N,), 3.0, device=DEVICE)),
    "gamma": lambda: torch._standard_gamma(torch.full((N,), 3.0, device=DEVICE)),
    "rrelu": lambda: torch.nn.functional.rrelu(-torch.ones(N, device=DEVICE), training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_number_of_threads_does_not_matter(name):
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            torch.manual_seed(7)
            # The second draw starts from an offset.
            results.append([DRAWS[name]().cpu(), DRAWS[name]().cpu()])
    finally:
        torch.set_num_threads(before)
    for first, second in results[1:]:
        assert torch.equal(first, results[0][0]) and torch.equal(second, results[0][1])
    assert not torch.equal(*results[0])


@pytest.mark.parametrize("name", DRAWS)
def test_the_hosts_generator_is_left_alone(name):
    state = torch.random.get_rng_state()
    DRAWS[name]()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_generator_of_ones_own():
    own = torch.Generator(DEVICE).manual_seed(3)
    first = torch.rand(10, device=DEVICE, generator=own)
    again = torch.rand(10, device=DEVICE, generator=own)
    own.manual_seed(3)
    assert torch.equal(torch.rand(10, device=DEVICE, generator=own), first)
    assert not torch.equal(first, again)


def test_a_generator_of_the_host_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(10, device=DEVICE, generator=torch.Generator())


def test_the_numbers_are_those_of_their_distribution():
    torch.manual_seed(0)
    torch.rand(1, device=DEVICE)
    uniform = torch.rand(N, device=DEVICE)
    assert abs(uniform.mean().item() - 0.5) < 0.01
    assert abs(uniform.var().item() - 1 / 12) < 0.01
    assert torch.nn.functional.dropout(
        torch.ones(N, device=DEVICE), 0.25
    ).count_nonzero().item() in range(int(0.73 * N), int(0.77 * N))


def test_a_seed_of_64_bits_counts_whole():
    torch.manual_seed(1)
    torch.rand(1, device=DEVICE)
    first = torch.rand(4, device=DEVICE)
    torch.manual_seed(1 + (1 << 40))
    torch.rand(1, device=DEVICE)
    assert not torch.equal(torch.rand(4, device=DEVICE), first)
