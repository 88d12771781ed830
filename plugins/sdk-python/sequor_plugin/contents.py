"""Tensors between this kit and the generated types of the contract. Only a component imports this."""

from wit_world.imports import tensors

from .tensors import CODES, NAMES, Tensor


def taken(content):
    """A tensor that the server gave."""
    if isinstance(content, tensors.Content_Handle):
        return Tensor.held(content.value)
    flat = content.value
    return Tensor(NAMES.get(flat.dtype, "?"), flat.shape, flat.bytes)


def given(tensor):
    """A tensor for the server."""
    if tensor.handle is not None:
        return tensors.Content_Handle(tensor.handle)
    return tensors.Content_Flat(tensors.Flat(CODES[tensor.dtype], tensor.shape, tensor.bytes))
