"""Copies of a sample's tensors on another device, with the relations between them kept."""

import torch


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
        if tensor.is_quantized or tensor.is_nested:
            raise UnsupportedSampleError(f"a tensor of type {tensor.type()}")
        if tensor.layout != torch.strided:
            copy = tensor.detach().clone().to(self.device)
            return copy.requires_grad_(tensor.requires_grad)
        with torch.no_grad():
            plain = tensor.detach()
            storage = plain.untyped_storage()
            if self._is_alone(plain, storage):
                copy = torch.empty_like(plain, device=self.device).copy_(plain)
                self._storages[storage._cdata] = (copy.untyped_storage(), storage)
                return copy.requires_grad_(tensor.requires_grad)
            conj, neg = plain.is_conj(), plain.is_neg()
            copy = torch.empty(0, dtype=tensor.dtype, device=self.device)
            copy.set_(self._storage(storage), plain.storage_offset(), plain.size(), plain.stride())
            if conj:
                copy = torch._conj(copy)
            if neg:
                copy = torch._neg_view(copy)
        return copy.requires_grad_(tensor.requires_grad)

    def _is_alone(self, tensor, storage):
        """True if the tensor fills a storage that no other has shown: the common, quick case."""
        return (
            tensor.is_contiguous()
            and storage.nbytes() == tensor.nbytes
            and not (tensor.is_conj() or tensor.is_neg())
            and storage._cdata not in self._storages
        )

    def _storage(self, storage):
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
        if isinstance(values, (list, tuple)):
            copies = [self.tree(value) for value in values]
            plain = type(values) in (list, tuple, torch.Size)
            return type(values)(copies) if plain else type(values)(*copies)
        if isinstance(values, dict):
            return {key: self.tree(value) for key, value in values.items()}
        return self.leaf(values)


def leaves(values):
    """Returns what a structure of lists, tuples and dicts holds, in order.

    (torch.utils._pytree does the same, at several times the cost of a small operator.)
    """
    if isinstance(values, (list, tuple)):
        return [leaf for value in values for leaf in leaves(value)]
    if isinstance(values, dict):
        return [leaf for value in values.values() for leaf in leaves(value)]
    return [values]


def tensors_of(values):
    """Returns the tensors of a structure, in order."""
    return [leaf for leaf in leaves(values) if isinstance(leaf, torch.Tensor)]
