"""Keeps the elements of recorded values within a memory budget, and their fingerprints beyond it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bisect_onnx.core.tensor import Fingerprint, fingerprint
from bisect_onnx.runtimes.torch_arrays import view_as_numpy
from bisect_onnx.runtimes.torch_storage import overlap
from bisect_onnx.runtimes.torch_tape import Geometry, Recorded

__all__ = ["Fingerprints", "Vault"]


class Vault:
    """Holds tensors by value name.

    A kept tensor shares its storage with the run; it is copied when that storage is about to be written.
    """

    def __init__(self, *, max_bytes: int | None, wanted: frozenset[str] | None = None) -> None:
        """Keep what fits in ``max_bytes`` (None: everything) of the values in ``wanted`` (None: all values)."""
        self.kept: dict[str, torch.Tensor] = {}
        self.fingerprints: dict[str, Fingerprint] = {}
        self.max_bytes = max_bytes
        self._wanted = wanted
        self._bytes = 0
        self._charged: set[int] = set()
        self._shared: dict[int, dict[str, Geometry]] = {}  # storage -> kept values that still share it
        self._lasting: set[int] = set()
        self._written: set[int] = set()

    def offer(self, value: Recorded, tensor: torch.Tensor, *, storage: int) -> None:
        """Keep the value, or its fingerprint when the budget is spent."""
        if self._wanted is not None and value.name not in self._wanted:
            return
        if self._wanted is None and not self._affordable(tensor, storage=storage):
            self.fingerprints[value.name] = fingerprint(view_as_numpy(tensor))
            return
        self.kept[value.name] = tensor
        self._shared.setdefault(storage, {})[value.name] = value.geometry

    def mark_lasting(self, storage: int) -> None:
        """Say that a storage outlives the run: it belongs to the module, or is an input. Keeping it costs nothing."""
        self._lasting.add(storage)

    def before_write(self, storage: int, geometry: Geometry) -> None:
        """Copy the kept values that a write to these elements of a storage would change."""
        self._written.add(storage)
        sharing = self._shared.get(storage, {})
        for name in [name for name, shown in sharing.items() if overlap(shown, geometry)]:
            self._detach(storage, name)

    def rename(self, old: str, new: str) -> None:
        """Keep what was kept of a value under another name."""
        for table in self._tables():
            if old in table:
                table[new] = table.pop(old)

    def forget(self, name: str) -> None:
        """Drop what was kept of a value."""
        for table in self._tables():
            table.pop(name, None)

    def _tables(self) -> Iterator[dict[str, Any]]:
        yield self.kept
        yield self.fingerprints
        yield from self._shared.values()

    def settle(self) -> None:
        """Copy what still shares a storage that outlives the run and was written during it."""
        for storage in self._lasting & self._written:
            for name in tuple(self._shared.get(storage, ())):
                self._detach(storage, name)

    def _detach(self, storage: int, name: str) -> None:
        """Give a kept value memory of its own, or only a fingerprint when that exceeds the budget."""
        del self._shared[storage][name]
        shared = self.kept.pop(name)
        if self._wanted is None and self.max_bytes is not None and self._bytes + shared.nbytes > self.max_bytes:
            if name not in self.fingerprints:
                self.fingerprints[name] = fingerprint(view_as_numpy(shared))
            return
        self.kept[name] = shared.detach().clone()
        self._bytes += shared.nbytes

    def _affordable(self, tensor: torch.Tensor, *, storage: int) -> bool:
        if self.max_bytes is None or storage in self._charged or storage in self._lasting:
            return True
        size = tensor.untyped_storage().nbytes()
        if self._bytes + size > self.max_bytes:
            return False
        self._charged.add(storage)
        self._bytes += size
        return True


class Fingerprints(Mapping[str, Fingerprint]):
    """Fingerprints of all recorded values; those of kept ones are computed when first asked for."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def __getitem__(self, name: str) -> Fingerprint:
        found = self._vault.fingerprints.get(name)
        if found is None:
            found = self._vault.fingerprints[name] = fingerprint(view_as_numpy(self._vault.kept[name]))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._vault.kept), **dict.fromkeys(self._vault.fingerprints)})

    def __len__(self) -> int:
        return len(self._vault.kept.keys() | self._vault.fingerprints.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._vault.kept or name in self._vault.fingerprints
