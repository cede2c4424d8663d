"""Copies of a sample's tensors on another device, with the relations between them kept."""

import torch
from torch.utils import _pytree as pytree


class UnsupportedSampleError(Exception):
    """The sample holds a tensor that has no counterpart on the device (sparse, quantized, ...)."""


class Mover:
    """Copies tensors to `device`; those that share a storage share one there too.

    Sizes, strides, offsets, lazy conjugation and negation, and requires_grad are kept. Also moves
    `device=` arguments. One Mover per independent set of copies.
    """

    def __init__(self, device):
        self.device = torch.device(device)
        self._storages = {}

    def tensor(self, tensor):
        """Returns the copy of one tensor, a leaf."""
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            raise UnsupportedSampleError(f"a {tensor.layout} tensor")
        with torch.no_grad():
            plain = tensor.detach()
            conj, neg = plain.is_conj(), plain.is_neg()
            copy = torch.empty(0, dtype=tensor.dtype, device=self.device)
            copy.set_(self._storage(plain), plain.storage_offset(), plain.size(), plain.stride())
            if conj:
                copy = torch._conj(copy)
            if neg:
                copy = torch._neg_view(copy)
        return copy.requires_grad_(tensor.requires_grad)

    def _storage(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            copy = torch.empty_like(raw, device=self.device).copy_(raw)
            # The original is kept, so that its address is not given to another storage.
            self._storages[key] = (copy.untyped_storage(), storage)
        return self._storages[key][0]

    def leaf(self, value):
        """Returns the copy of a tensor or the counterpart of a device, anything else as it is."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return self.device
        if isinstance(value, str) and value == "cpu":
            return str(self.device)
        if isinstance(value, torch.Generator):
            generator = torch.Generator(self.device)
            generator.manual_seed(value.initial_seed())
            return generator
        return value

    def tree(self, values):
        """Returns the copy of a structure of lists, tuples and dicts."""
        return pytree.tree_map(self.leaf, values)


def tensors_of(values):
    """Returns the tensors of a structure, in order."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
