"""Pipeline schedules over openreg and OCCL: losses, outputs and gradients of one process."""

import copy

import torch
from harness import RankTestCase
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline, schedules
from torch.distributed.tensor import init_device_mesh
from training import same

WIDTH = 8


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x)) + x


def layers(count):
    torch.manual_seed(5)
    return [Layer() for _ in range(count)]


def batch(step, size):
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(size, WIDTH, generator=generator) for _ in range(2))


def microbatch_losses(whole, x, y, parts):
    losses = [
        nn.functional.mse_loss(whole(a), b)
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True)
    ]
    (sum(losses) / parts).backward()
    return torch.stack([loss.detach() for loss in losses])


class ScheduleTest(RankTestCase):
    """Two stages a rank where the schedule takes several; in a loop, or there and back (V)."""

    own_devices = True
    ranks = 2

    def check(self, kind, per_rank=1, there_and_back=False, parts=4):
        total = self.ranks * per_rank
        plain = layers(total)
        whole = nn.Sequential(*copy.deepcopy(plain))
        mine = [self.rank + i * self.ranks for i in range(per_rank)]
        if there_and_back:
            mine = [self.rank, total - 1 - self.rank]
        modules = {index: copy.deepcopy(plain[index]).to(self.device) for index in mine}
        stages = [PipelineStage(modules[index], index, total, self.device) for index in mine]
        single = issubclass(kind, schedules.PipelineScheduleSingle)
        schedule = kind(stages[0] if single else stages, parts, loss_fn=nn.functional.mse_loss)
        for step in range(2):
            for module in [whole, *modules.values()]:
                module.zero_grad()
            x, y = batch(step, 2 * parts)
            losses = []
            last = total - 1 in mine
            out = schedule.step(
                *([x.to(self.device)] if 0 in mine else []),
                **({"target": y.to(self.device), "losses": losses} if last else {}),
            )
            expected = microbatch_losses(whole, x, y, parts)
            if last:
                same(torch.stack(losses), expected, what=kind.__name__)
                same(out, whole(x))
            for index in mine:
                found, wanted = modules[index].linear, whole[index].linear
                same(found.weight.grad, wanted.weight.grad, 1e-4, f"{kind.__name__} {index}")

    def test_schedules_of_one_stage_a_rank(self):
        self.init()
        self.check(schedules.ScheduleGPipe)
        self.check(schedules.Schedule1F1B)
        self.check(schedules.Schedule1F1B, parts=7)

    def test_schedules_of_several_stages_a_rank(self):
        self.init()
        self.check(schedules.ScheduleInterleaved1F1B, 2)
        self.check(schedules.ScheduleLoopedBFS, 2)
        self.check(schedules.ScheduleInterleavedZeroBubble, 2)
        self.check(schedules.ScheduleZBVZeroBubble, 2, there_and_back=True)
        self.check(schedules.ScheduleDualPipeV, 2, there_and_back=True, parts=2 * self.ranks)

    def test_a_traced_model_and_inference(self):
        self.init()
        whole = nn.Sequential(*layers(self.ranks))
        x, _ = batch(0, 8)
        splits = {str(index): SplitPoint.BEGINNING for index in range(1, self.ranks)}
        pipe = pipeline(copy.deepcopy(whole), mb_args=(x[:2],), split_spec=splits)
        schedule = schedules.ScheduleGPipe(pipe.build_stage(self.rank, self.device), 4)
        for step in (schedule.step, schedule.eval):
            out = step(*([x.to(self.device)] if self.rank == 0 else []))
            if self.rank == self.ranks - 1:
                same(out, whole(x))


class FourStageTest(ScheduleTest):
    ranks = 4

    def test_a_pipeline_of_sharded_stages(self):
        self.init()
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("pp", "dp"))
        stage_index, shard = mesh.get_coordinate()
        plain = layers(2)
        module = copy.deepcopy(plain[stage_index]).to(self.device)
        fully_shard(module, mesh=mesh["dp"])
        stage = PipelineStage(module, stage_index, 2, self.device, group=mesh.get_group("pp"))
        schedule = schedules.Schedule1F1B(stage, 2, loss_fn=nn.functional.mse_loss)
        x, y = batch(0, 8)
        if stage_index == 0:
            schedule.step(x.chunk(2)[shard].to(self.device))
        else:
            schedule.step(target=y.chunk(2)[shard].to(self.device))
        whole = nn.Sequential(*copy.deepcopy(plain))
        microbatch_losses(whole, x, y, 4)
        same(module.linear.weight.grad, whole[stage_index].linear.weight.grad, 1e-4)
