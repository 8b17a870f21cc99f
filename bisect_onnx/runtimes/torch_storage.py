"""Which named value a tensor holds right now, although other tensors may write to the same storage."""

import dataclasses
import weakref
from collections.abc import Iterator

import numpy as np
import torch

from bisect_onnx.runtimes.torch_arrays import Array
from bisect_onnx.runtimes.torch_tape import Call, Geometry

__all__ = ["Holder", "StorageLog", "Storages", "Write", "geometry_of", "overlap"]

# Up to this many elements an exact answer is cheap; above it, interleaved views count as overlapping, which
# costs a needless new version of a value and never a wrong one.
EXACT_OVERLAP_LIMIT = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """Elements that a call changed; ``name`` is their new value."""

    epoch: int
    call: Call
    name: str
    geometry: Geometry
    dtype: torch.dtype


@dataclasses.dataclass(kw_only=True, slots=True)
class StorageLog:
    """The writes to one storage, and the tensors that show it."""

    key: int
    epoch: int = 0
    writes: list[Write] = dataclasses.field(default_factory=list)
    holders: dict[int, "Holder"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(kw_only=True, slots=True)
class Holder:
    """A living tensor: the value it holds as of ``epoch`` of its storage."""

    name: str
    epoch: int
    geometry: Geometry
    dtype: torch.dtype
    log: StorageLog
    alive: weakref.ref[torch.Tensor]

    def missed_writes(self) -> list[Write]:
        """Writes through other tensors since this holder was last looked at that touch its elements."""
        return [
            write
            for write in self.log.writes
            if write.epoch > self.epoch and (write.dtype is not self.dtype or overlap(write.geometry, self.geometry))
        ]


class Storages:
    """All living tensors of a run by identity, grouped by storage.

    Identity is safe: an entry goes the moment its tensor dies, and torch keeps one Python object for a
    tensor as long as either side holds it.
    """

    def __init__(self) -> None:
        self._holders: dict[int, Holder] = {}
        self._logs: dict[int, StorageLog] = {}

    def holder(self, tensor: torch.Tensor) -> Holder | None:
        return self._holders.get(id(tensor))

    def log(self, tensor: torch.Tensor) -> StorageLog:
        key = storage_key(tensor)
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = StorageLog(key=key)
        return log

    def hold(self, tensor: torch.Tensor, name: str) -> Holder:
        """Say that ``tensor`` holds the value ``name`` from now on."""
        identity = id(tensor)
        log = self.log(tensor)
        known = self._holders.get(identity)
        if known is not None and known.log is not log:  # `set_` gave it another storage
            self._forget(identity, known)
        holder = Holder(
            name=name,
            epoch=log.epoch,
            geometry=geometry_of(tensor),
            dtype=tensor.dtype,
            log=log,
            alive=weakref.ref(tensor, lambda _: self._forget(identity, holder)),
        )
        self._holders[identity] = holder
        log.holders[identity] = holder
        return holder

    def log_write(self, tensor: torch.Tensor, *, call: Call, name: str) -> None:
        """Note that ``call`` changed the elements of ``tensor``, which hold the value ``name`` from now on."""
        log = self.log(tensor)
        log.epoch += 1
        write = Write(epoch=log.epoch, call=call, name=name, geometry=geometry_of(tensor), dtype=tensor.dtype)
        log.writes.append(write)

    def rename(self, log: StorageLog, old: str, new: str) -> None:
        """Use another name for a value in the storage's history."""
        log.writes[:] = [dataclasses.replace(write, name=new) if write.name == old else write for write in log.writes]
        for holder in log.holders.values():
            if holder.name == old:
                holder.name = new

    def living(self, log: StorageLog) -> Iterator[Holder]:
        """Holders that show ``log``, newest first."""
        return reversed(tuple(log.holders.values()))

    def _forget(self, identity: int, holder: Holder) -> None:
        if self._holders.get(identity) is not holder:
            return  # replaced by a newer holder of the same tensor
        del self._holders[identity]
        holder.log.holders.pop(identity, None)
        if not holder.log.holders and self._logs.get(holder.log.key) is holder.log:
            del self._logs[holder.log.key]  # the storage dies with its last tensor; its address may serve again


def storage_key(tensor: torch.Tensor) -> int:
    """The address of the tensor's memory; something of its own when it has none (empty, sparse, nested)."""
    try:
        return tensor.untyped_storage().data_ptr() or -id(tensor)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


def geometry_of(tensor: torch.Tensor) -> Geometry:
    if tensor.layout is not torch.strided or tensor.is_nested:
        shape = tuple(tensor.shape) if not tensor.is_nested else ()
        return Geometry(shape, (0,) * len(shape), 0)
    return Geometry(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


def overlap(first: Geometry, second: Geometry) -> bool:
    """Whether two views of one storage (same dtype) share an element."""
    low_first, high_first = first.extent()
    low_second, high_second = second.extent()
    low, high = max(low_first, low_second), min(high_first, high_second)
    if low >= high:
        return False
    if _is_dense(first) and _is_dense(second):
        return True
    span = max(high_first, high_second)
    if span > EXACT_OVERLAP_LIMIT:
        return True
    marks = np.zeros(span, dtype=np.bool_)
    _show(marks, first)[...] = True
    return bool(_show(marks, second).any())


def _show(buffer: Array, geometry: Geometry) -> Array:
    # One byte an element, so strides in elements are strides in bytes.
    return np.lib.stride_tricks.as_strided(buffer[geometry.offset :], geometry.shape, geometry.stride)


def _is_dense(geometry: Geometry) -> bool:
    low, high = geometry.extent()
    count = 1
    for size in geometry.shape:
        count *= size
    return count == high - low and 0 not in geometry.stride
