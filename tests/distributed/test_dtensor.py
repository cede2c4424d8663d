"""DTensor, device meshes and tensor parallelism over openreg and OCCL."""

import copy
import functools
import itertools

import torch
import torch.distributed as dist
import torch.distributed.tensor as dt
from harness import RankTestCase
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.experimental import context_parallel, local_map
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from training import same, same_gradients

VOCABULARY, WIDTH, HEADS = 33, 16, 4


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class RedistributionTest(RankTestCase):
    own_devices = True
    ranks = 4

    def mesh(self):
        return init_device_mesh("openreg", (self.ranks,))

    def test_every_placement_to_every_other(self):
        self.init()
        mesh = self.mesh()
        for shape in ((7, 5), (1, 3), (8, 4), (self.ranks - 1, 2), (3, 2, 5)):
            whole = numbers(*shape)
            placements = [Replicate(), *(Shard(dim) for dim in range(len(shape)))]
            for source, target in itertools.product(placements, placements):
                tensor = distribute_tensor(whole.to(self.device), mesh, [source])
                moved = tensor.redistribute(mesh, [target])
                same(moved, whole, 0, f"{shape} {source} to {target}")
                if target.is_shard():
                    parts = [*whole.chunk(self.ranks, target.dim)]
                    if self.rank < len(parts):
                        same(moved.to_local(), parts[self.rank], 0)
                    else:
                        self.assertEqual(moved.to_local().numel(), 0)

    def test_partial_values_of_every_kind(self):
        self.init()
        mesh = self.mesh()
        parts = [numbers(7, 5) * 0.5 + rank * (-1) ** rank for rank in range(self.ranks)]
        stacked = torch.stack(parts)
        kinds = {
            "sum": stacked.sum(0),
            "avg": stacked.mean(0),
            "max": stacked.amax(0),
            "min": stacked.amin(0),
            "product": stacked.prod(0),
        }
        for kind, expected in kinds.items():
            for target in (Replicate(), Shard(0), Shard(1)):
                local = parts[self.rank].to(self.device)
                found = DTensor.from_local(local, mesh, [Partial(kind)])
                same(found.redistribute(mesh, [target]), expected, 1e-5, f"{kind} to {target}")

    def test_dtypes_and_gradients(self):
        self.init()
        mesh = self.mesh()
        for dtype in (torch.float16, torch.float64, torch.int64, torch.bool, torch.complex64):
            whole = (torch.arange(15).reshape(5, 3) % 2).to(dtype)
            for source in (Shard(0), Shard(1), Replicate()):
                tensor = distribute_tensor(whole.to(self.device), mesh, [source])
                same(tensor.redistribute(mesh, [Shard(1)]), whole, 0)
        leaf = distribute_tensor(numbers(6, 4).to(self.device), mesh, [Shard(0)]).requires_grad_()
        whole = leaf.redistribute(mesh, [Replicate()], async_op=True)
        (whole.to_local() * numbers(6, 4).to(self.device)).sum().backward()
        same(leaf.grad, numbers(6, 4))

    def test_two_dimensions(self):
        self.init()
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("a", "b"))
        whole = numbers(7, 5)
        placements = (Replicate(), Shard(0), Shard(1))
        pairs = list(itertools.product(placements, placements))
        for source, target in itertools.product(pairs, pairs):
            tensor = distribute_tensor(whole.to(self.device), mesh, source)
            same(tensor.redistribute(mesh, target), whole, 0, f"{source} to {target}")
        for target in pairs:
            for kind, factor in (("sum", 4), ("max", 1)):
                local = whole.to(self.device)
                partial = DTensor.from_local(local, mesh, [Partial(kind), Partial(kind)])
                same(partial.redistribute(mesh, target), factor * whole, 0)

    def test_meshes_and_their_parts(self):
        self.init(device_id=self.device)

        def summed(group):
            tensor = torch.full((1,), float(self.rank), device=self.device)
            dist.all_reduce(tensor, group=group)
            return tensor.item()

        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("dp", "tp"))
        row, column = divmod(self.rank, 2)
        self.assertEqual(list(mesh.get_coordinate()), [row, column])
        self.assertEqual(summed(mesh["tp"].get_group()), 4 * row + 1)
        self.assertEqual(summed(mesh["dp"].get_group()), 2 * column + 2)
        self.assertEqual(summed(mesh["dp", "tp"]._flatten("all").get_group()), 6)
        self.assertEqual(DeviceMesh.from_group(dist.group.WORLD, "openreg").size(), 4)
        turned = DeviceMesh("openreg", [[0, 2], [1, 3]], mesh_dim_names=("x", "y"))
        self.assertEqual(summed(turned.get_group("y")), 2 * (self.rank % 2) + 2)

    def test_random_numbers_are_those_of_one_device(self):
        self.init()
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("a", "b"))
        pairs = itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2)

        def draw(make, ones):
            torch.manual_seed(5)
            tensors = [make["rand"](7, 5), make["randn"](7, 5), torch.rand_like(ones)]
            for fill in (
                nn.init.kaiming_uniform_,
                nn.init.trunc_normal_,
                lambda t: t.bernoulli_(0.4),
                lambda t: t.normal_(generator=torch.Generator("openreg").manual_seed(3)),
            ):
                tensors.append(torch.zeros_like(ones))
                fill(tensors[-1])
            tensors.append(nn.functional.dropout(ones, 0.5))
            return [*tensors, torch.rand(3, device=self.device)]

        ones = torch.ones(7, 5, device=self.device)
        alone = {
            kind: functools.partial(getattr(torch, kind), device=self.device)
            for kind in ("rand", "randn")
        }
        expected = draw(alone, ones)
        for placements in pairs:
            options = {"device_mesh": mesh, "placements": placements}
            spread = {
                kind: functools.partial(getattr(dt, kind), **options) for kind in ("rand", "randn")
            }
            found = draw(spread, dt.ones(7, 5, **options))
            for index, pair in enumerate(zip(found, expected, strict=True)):
                same(*pair, 0, f"{placements} {index}")

    def test_operators(self):
        self.init()
        mesh = self.mesh()
        a, b = random(8, 4), random(4, 8, seed=2)
        placements = (Shard(0), Shard(1), Replicate())
        operators = (
            lambda t: t.mean(0),
            lambda t: t.softmax(-1),
            lambda t: nn.functional.layer_norm(t, (4,)),
            lambda t: t.reshape(4, 8),
            lambda t: t[:, 1:3],
            lambda t: torch.linalg.vector_norm(t),
            lambda t: torch.where(t > 0, t, -t),
        )
        for place in placements:
            left = distribute_tensor(a.to(self.device), mesh, [place])
            for other in placements:
                right = distribute_tensor(b.to(self.device), mesh, [other])
                same(left @ right, a @ b, 1e-4)
            for index, operator in enumerate(operators):
                same(operator(left), operator(a), 1e-4, f"{index} {place}")
        shard_sum = local_map(
            lambda t: t.sum(0),
            out_placements=[Partial()],
            in_placements=([Shard(0)],),
            device_mesh=mesh,
        )
        same(shard_sum(distribute_tensor(a.to(self.device), mesh, [Shard(0)])), a.sum(0))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        shape = (*x.shape[:2], -1, WIDTH // HEADS)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(*x.shape[:2], -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.feed = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def parallelize(model, mesh):
    """Tensor and sequence parallel; the logits stay sharded over the vocabulary."""
    whole = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    parallelize_module(
        model,
        mesh,
        {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(
                input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
            ),
        },
    )
    for layer in model.layers:
        plan = {
            "norm1": SequenceParallel(),
            "norm2": SequenceParallel(),
            "attention": PrepareModuleInput(**whole),
            "attention.o": RowwiseParallel(output_layouts=Shard(1)),
            "feed": PrepareModuleInput(**whole),
            "feed.up": ColwiseParallel(),
            "feed.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        plan |= {f"attention.{name}": ColwiseParallel() for name in "qkv"}
        parallelize_module(layer, mesh, plan)
    return model


def tokens(step, count=4):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(VOCABULARY, (2, count, 8), generator=generator)


class TensorParallelTest(RankTestCase):
    own_devices = True
    ranks = 4

    def test_a_feed_forward_layer_eager_and_compiled(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        torch.manual_seed(1)
        plain = FeedForward()
        x = random(6, WIDTH)
        for compiled in (False, True):
            plain.zero_grad()
            model = copy.deepcopy(plain).to(self.device)
            parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
            call = torch.compile(model, backend="aot_eager") if compiled else model
            out = call(x.to(self.device))
            same(out, plain(x))
            out.square().sum().backward()
            plain(x).square().sum().backward()
            same_gradients(model, plain, 1e-4)

    def test_a_transformer_with_sequence_and_loss_parallel(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        torch.manual_seed(1)
        plain = Transformer()
        model = parallelize(copy.deepcopy(plain).to(self.device), mesh)
        x, y = tokens(0)
        with loss_parallel():
            logits = model(x.to(self.device)).flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, y.flatten().to(self.device))
            loss.backward()
        expected = nn.functional.cross_entropy(plain(x).flatten(0, 1), y.flatten())
        expected.backward()
        same(loss, expected, 1e-4)
        same_gradients(model, plain, 1e-3)

    def test_sharded_and_tensor_parallel(self):
        self.init()
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("dp", "tp"))
        torch.manual_seed(1)
        plain = Transformer()
        model = parallelize(copy.deepcopy(plain).to(self.device), mesh["tp"])
        for part in [*model.layers, model]:
            fully_shard(part, mesh=mesh["dp"])
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, plain)]
        for step in range(3):
            x, y = tokens(step)
            mine = slice(2 * mesh["dp"].get_local_rank(), 2 * mesh["dp"].get_local_rank() + 2)
            for optimizer in optimizers:
                optimizer.zero_grad()
            with loss_parallel():
                logits = model(x[mine].to(self.device)).flatten(0, 1)
                target = y[mine].flatten().to(self.device)
                nn.functional.cross_entropy(logits, target).backward()
            nn.functional.cross_entropy(plain(x).flatten(0, 1), y.flatten()).backward()
            norms = [nn.utils.clip_grad_norm_(m.parameters(), 1.0) for m in (model, plain)]
            same(*norms, 1e-3)
            for optimizer in optimizers:
                optimizer.step()
        for found, expected in zip(model.parameters(), plain.parameters(), strict=True):
            same(found, expected, 2e-3)

    def test_losses_over_a_sharded_vocabulary(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        logits, target = random(6, VOCABULARY), tokens(0).flatten()[:6]
        for options in ({}, {"reduction": "sum"}, {"ignore_index": int(target[0])}):
            found = distribute_tensor(logits.to(self.device), mesh, [Shard(1)]).requires_grad_()
            expected = logits.clone().requires_grad_()
            with loss_parallel():
                loss = nn.functional.cross_entropy(found, target.to(self.device), **options)
                loss.backward()
            plain = nn.functional.cross_entropy(expected, target, **options)
            plain.backward()
            same(loss, plain)
            same(found.grad, expected.grad)

    def test_attention_of_distributed_tensors(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        whole = random(4, HEADS, 8, 16)
        expected = whole.clone().requires_grad_()
        plain = nn.functional.scaled_dot_product_attention(*[expected] * 3, is_causal=True)
        plain.square().sum().backward()
        for place in (Shard(0), Shard(1), Replicate()):
            found = distribute_tensor(whole.to(self.device), mesh, [place]).requires_grad_()
            out = nn.functional.scaled_dot_product_attention(*[found] * 3, is_causal=True)
            same(out, plain, 1e-4)
            out.square().sum().backward()
            same(found.grad, expected.grad, 1e-4)

    def test_context_parallel(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        whole = [random(2, HEADS, 8 * self.ranks, 16, seed=seed) for seed in range(3)]
        expected = [tensor.clone().requires_grad_() for tensor in whole]
        plain = nn.functional.scaled_dot_product_attention(*expected, is_causal=True)
        plain.square().sum().backward()
        found = [tensor.to(self.device) for tensor in whole]
        with context_parallel(mesh, buffers=found, buffer_seq_dims=[2, 2, 2]):
            leaves = [tensor.clone().requires_grad_() for tensor in found]  # of a part each
            out = nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
            out.square().sum().backward()
            gathered = context_parallel_unshard(
                mesh, [out.detach(), *(leaf.grad for leaf in leaves)], [2] * 4
            )
        for one, other in zip(gathered, [plain, *(t.grad for t in expected)], strict=True):
            same(one, other, 1e-3)

    def test_distribute_module(self):
        self.init()
        mesh = init_device_mesh("openreg", (self.ranks,))
        torch.manual_seed(1)
        plain = FeedForward()

        def shard(name, module, mesh):
            for key, parameter in list(module.named_parameters(recurse=False)):
                sharded = nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]))
                module.register_parameter(key, sharded)

        model = distribute_module(
            copy.deepcopy(plain).to(self.device),
            mesh,
            shard,
            input_fn=lambda module, inputs, mesh: distribute_tensor(inputs[0], mesh, [Shard(0)]),
            output_fn=lambda module, output, mesh: output.full_tensor(),
        )
        x = random(8, WIDTH)
        same(model(x.to(self.device)), plain(x))
