"""Distributed checkpoints of models on openreg: saved, resumed, resharded, written meanwhile."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from harness import RankTestCase
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from training import adam, net, same, train


def shard(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


class CheckpointTest(RankTestCase):
    own_devices = True
    ranks = 4

    def folder(self):
        names = [tempfile.mkdtemp() if self.rank == 0 else None]
        dist.broadcast_object_list(names, src=0)
        return names[0]

    def save(self, folder, model, optimizer, **more):
        states = get_state_dict(model, optimizer)
        dcp.save({"model": states[0], "optimizer": states[1], **more}, checkpoint_id=folder)

    def load(self, folder, model, optimizer, **more):
        states = get_state_dict(model, optimizer)
        state = {"model": states[0], "optimizer": states[1], **more}
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        return state

    def test_training_resumes_where_it_was(self):
        self.init()
        folder = self.folder()
        model = shard(net().to(self.device))
        optimizer = adam(model)
        train(model, optimizer, self.device, self.rank, 2)
        extra = torch.arange(5.0, device=self.device)
        self.save(folder, model, optimizer, step=2, extra=extra)
        other = shard(net().to(self.device))
        other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.5)
        state = self.load(folder, other, other_optimizer, step=0, extra=torch.zeros_like(extra))
        self.assertEqual(state["step"], 2)
        same(state["extra"], extra, 0)
        same(other.out.weight, model.out.weight, 0)
        expected = train(model, optimizer, self.device, self.rank, 2, first=2)
        found = train(other, other_optimizer, self.device, self.rank, 2, first=2)
        self.assertEqual(found, expected)

    def test_another_layout_and_another_number_of_ranks(self):
        self.init()
        folder = self.folder()
        model = DistributedDataParallel(net().to(self.device))
        optimizer = adam(model)
        train(model, optimizer, self.device, self.rank, 2)
        self.save(folder, model, optimizer)
        mesh = init_device_mesh("openreg", (2, 2), mesh_dim_names=("replicate", "shard"))
        for options in ({}, {"mesh": mesh}, {"mesh": mesh["shard"]}):
            other = shard(net().to(self.device), **options)
            other_optimizer = adam(other)
            self.load(folder, other, other_optimizer)
            same(other.out.weight, model.module.out.weight, 0)
            moments = [
                optimizer.state[weight]["exp_avg"]
                for optimizer, weight in (
                    (other_optimizer, other.out.weight),
                    (optimizer, model.module.out.weight),
                )
            ]
            same(*moments, 0)
        if self.rank == 0:
            dcp_to_torch_save(folder, f"{folder}/whole.pt")
            whole = torch.load(f"{folder}/whole.pt", weights_only=False)
            same(whole["model"]["out.weight"], model.module.out.weight, 0)

    def test_tensors_of_any_placement(self):
        self.init()
        folder = self.folder()
        mesh = init_device_mesh("openreg", (self.ranks,))
        whole = torch.arange(35.0).reshape(7, 5)
        rows = distribute_tensor(whole.to(self.device), mesh, [Shard(0)])
        columns = distribute_tensor(whole.bfloat16().to(self.device), mesh, [Shard(1)])
        dcp.save({"rows": rows, "columns": columns, "list": [1, "x"]}, checkpoint_id=folder)
        state = {
            "rows": distribute_tensor(torch.zeros_like(rows.full_tensor()), mesh, [Shard(1)]),
            "columns": torch.zeros(7, 5, dtype=torch.bfloat16, device=self.device),
            "list": None,
        }
        dcp.load(state, checkpoint_id=folder)
        same(state["rows"], whole, 0)
        same(state["columns"], whole, 0)

    def test_full_state_dicts(self):
        self.init()
        model = shard(net().to(self.device))
        train(model, adam(model), self.device, self.rank, 1)
        full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        same(full["out.weight"], model.out.weight, 0)
        other = shard(net().to(self.device))
        set_model_state_dict(other, full, options=StateDictOptions(full_state_dict=True))
        same(other.out.weight, model.out.weight, 0)

    def test_saving_while_training_goes_on(self):
        self.init("cpu:gloo,openreg:occl")
        folder = self.folder()
        model = shard(net().to(self.device))
        before = model.out.weight.full_tensor().clone()
        stagers = [
            None,
            DefaultStager(StagingOptions(False, False, False, False)),
            DefaultStager(StagingOptions(True, False, True, False)),
        ]
        for index, stager in enumerate(stagers):
            target = f"{folder}/{index}"
            saved = dcp.async_save(
                {"model": model.state_dict()}, checkpoint_id=target, async_stager=stager
            )
            # Two futures where the stager works in the background too, one elsewhere.
            if hasattr(saved, "staging_completion"):
                saved.staging_completion.result()
            train(model, adam(model), self.device, self.rank, 2)
            getattr(saved, "upload_completion", saved).result()
            state = {"model": model.state_dict()}
            dcp.load(state, checkpoint_id=target)
            model.load_state_dict(state["model"])
            same(model.out.weight, before, 0)
