import pytest
import torch
import torch_openreg  # noqa: F401
from helpers import run_python

COUNT = torch.openreg.device_count()


@pytest.fixture(autouse=True)
def _device_zero():
    torch.openreg.set_device(0)


def test_the_state_is_seed_and_offset():
    torch.openreg.manual_seed(0x0102030405060708)
    state = torch.openreg.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    assert state.tolist() == [8, 7, 6, 5, 4, 3, 2, 1] + [0] * 8
    assert torch.openreg.initial_seed() == 0x0102030405060708


def test_drawing_moves_the_offset_by_multiples_of_four():
    torch.openreg.manual_seed(1)
    torch.rand(100, device="openreg")
    state = torch.openreg.get_rng_state()
    offset = int.from_bytes(bytes(state.tolist()[8:]), "little")
    assert offset > 0 and offset % 4 == 0
    assert torch.openreg._get_rng_state_offset() == offset
    torch.openreg._set_rng_state_offset(8)
    assert torch.openreg._get_rng_state_offset() == 8


def test_a_restored_state_repeats_the_numbers():
    state = torch.openreg.get_rng_state()
    first = torch.randn(1000, device="openreg")
    second = torch.randn(1000, device="openreg")
    assert not torch.equal(first, second)
    torch.openreg.set_rng_state(state)
    assert torch.equal(torch.randn(1000, device="openreg"), first)
    assert torch.equal(torch.randn(1000, device="openreg"), second)


def test_an_offset_in_the_state_is_where_the_numbers_go_on():
    torch.openreg.manual_seed(11)
    torch.rand(10, device="openreg")
    state = torch.openreg.get_rng_state()
    expected = torch.rand(10, device="openreg")
    torch.openreg.manual_seed(99)
    torch.openreg.set_rng_state(state)
    assert torch.equal(torch.rand(10, device="openreg"), expected)


def test_seed_alone_as_a_state():
    torch.openreg.manual_seed(5)
    state = torch.openreg.get_rng_state()
    torch.rand(10, device="openreg")
    torch.openreg.set_rng_state(state[:8])
    assert torch.equal(torch.openreg.get_rng_state(), state)


def test_states_that_are_none_are_refused():
    with pytest.raises(RuntimeError, match="16"):
        torch.openreg.set_rng_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises((TypeError, RuntimeError), match="ByteTensor"):
        torch.openreg.set_rng_state(torch.zeros(16))
    with pytest.raises(RuntimeError, match="multiple of 4"):
        torch.openreg._set_rng_state_offset(3)
    with pytest.raises(RuntimeError, match="multiple of 4"):
        torch.openreg.set_rng_state(torch.tensor([0] * 8 + [1] + [0] * 7, dtype=torch.uint8))


def test_torch_manual_seed_seeds_all_devices():
    torch.manual_seed(1234)
    assert all(generator.initial_seed() == 1234 for generator in torch.openreg.default_generators)
    torch.openreg.manual_seed_all(77)
    assert [g.initial_seed() for g in torch.openreg.default_generators] == [77] * COUNT
    torch.openreg.manual_seed(78)
    assert [g.initial_seed() for g in torch.openreg.default_generators] == [78] + [77] * (COUNT - 1)


def test_states_of_all_devices():
    states = torch.openreg.get_rng_state_all()
    assert len(states) == COUNT
    first = torch.rand(4, device="openreg:1")
    torch.openreg.set_rng_state_all(states)
    assert torch.equal(torch.rand(4, device="openreg:1"), first)


def test_random_seeds_differ():
    torch.openreg.seed()
    first = torch.openreg.initial_seed()
    torch.openreg.seed_all()
    seeds = {generator.initial_seed() for generator in torch.openreg.default_generators}
    assert len(seeds) == 1 and first not in seeds


def test_fork_rng_restores():
    torch.openreg.manual_seed(3)
    expected = torch.rand(5, device="openreg")
    torch.openreg.manual_seed(3)
    with torch.random.fork_rng(devices=[0, 1], device_type="openreg"):
        torch.openreg.manual_seed(4)
        torch.rand(100, device="openreg")
    assert torch.equal(torch.rand(5, device="openreg"), expected)


def test_generators_of_ones_own():
    first, second = (torch.Generator("openreg:1").manual_seed(42) for _ in range(2))
    assert first.device == torch.device("openreg:1")
    default = torch.openreg.get_rng_state(1)
    a = torch.rand(8, device="openreg:1", generator=first)
    assert torch.equal(torch.openreg.get_rng_state(1), default)
    assert torch.equal(torch.rand(8, device="openreg:1", generator=second), a)
    clone = first.clone_state()
    b = torch.rand(8, device="openreg:1", generator=first)
    assert torch.equal(torch.rand(8, device="openreg:1", generator=clone), b)


def test_a_generator_of_the_cpu_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device="openreg", generator=torch.Generator())


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: torch.rand(3, generator=generator),
        lambda generator: torch.randperm(3, generator=generator),
        lambda generator: torch.empty(3).normal_(generator=generator),
        lambda generator: torch.bernoulli(torch.ones(3), generator=generator),
        lambda generator: torch.multinomial(torch.ones(3), 2, generator=generator),
        lambda generator: torch.binomial(torch.ones(3), torch.ones(3), generator=generator),
    ],
)
def test_a_generator_of_openreg_draws_for_no_tensor_of_the_host(draw):
    with pytest.raises(RuntimeError, match="generator"):
        draw(torch.Generator("openreg"))


def test_the_number_of_threads_does_not_matter():
    code = """
        import hashlib, torch, torch_openreg
        torch.manual_seed(7)
        shape = (1 << 18,)
        draws = [
            torch.rand(shape, device="openreg"),
            torch.randn(shape, device="openreg"),
            torch.randint(1000, shape, device="openreg"),
            torch.nn.functional.dropout(torch.ones(shape, device="openreg"), 0.3),
            torch.empty(shape, device="openreg").exponential_(),
            torch.randperm(1000, device="openreg"),
        ]
        for draw in draws:
            print(hashlib.sha256(draw.cpu().numpy().tobytes()).hexdigest())
    """
    one = run_python(code, {"OMP_NUM_THREADS": "1"}).stdout
    four = run_python(code, {"OMP_NUM_THREADS": "4"}).stdout
    assert len(set(one.split())) == 6
    assert one == four


def test_seeding_brings_nothing_to_life():
    code = """
        import torch, torch_openreg
        torch.manual_seed(3)
        torch.openreg.manual_seed_all(4)
        torch.openreg.get_rng_state()
        assert not torch.openreg.is_initialized()
    """
    run_python(code)
