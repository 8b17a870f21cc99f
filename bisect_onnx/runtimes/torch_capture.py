"""One opened-up run of a PyTorch model: its graph, its fingerprints, and its arrays on demand."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from bisect_onnx.core.graph import Graph
from bisect_onnx.core.tensor import Fingerprint
from bisect_onnx.errors import ReferenceNotRepeatableError
from bisect_onnx.runtimes.torch_arrays import Array, to_numpy, to_tensor
from bisect_onnx.runtimes.torch_tape import ModuleCall, Tape
from bisect_onnx.runtimes.torch_vault import Fingerprints, Vault

if TYPE_CHECKING:
    from bisect_onnx.runtimes.torch_exact import ExactRun

__all__ = ["TorchCapture"]


class TorchCapture:
    """See `bisect_onnx.runtimes.base.Capture`."""

    def __init__(
        self,
        *,
        name: str,
        tape: Tape,
        vault: Vault,
        repeat: Callable[[frozenset[str]], Mapping[str, torch.Tensor]],
    ) -> None:
        """Wrap a finished recording.

        Args:
            name: Name of the graph.
            tape: The calls.
            vault: The values that were kept.
            repeat: Runs the model again and returns the named values.
        """
        self._tape = tape
        self._vault = vault
        self._repeat = repeat
        self._exact_runs: dict[int | None, ExactRun] = {}
        self.graph: Graph = tape.graph(name)
        self.fingerprints: Mapping[str, Fingerprint] = Fingerprints(vault)
        self.modules: tuple[ModuleCall, ...] = tuple(tape.modules)

    def fetch(self, names: Sequence[str]) -> dict[str, Array]:
        """See `Capture.fetch`. A value that is no plain array (sparse, nested) is absent."""
        plain = [name for name in names if name not in self._tape.values or self._tape.values[name].plain]
        return {name: to_numpy(tensor) for name, tensor in self.tensors(plain).items()}

    def tensors(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """The recorded values themselves, not to be written to."""
        missing = frozenset(names) - self._vault.kept.keys()
        unknown = sorted(missing - self._tape.values.keys())
        if unknown:
            raise KeyError(f"no value of this capture is called {unknown[0]!r}")
        repeated = self._repeat(missing) if missing else {}
        lost = sorted(missing - repeated.keys())
        if lost:
            raise ReferenceNotRepeatableError(value=lost[0], missing=len(lost), wanted=len(missing))
        return {name: self._vault.kept[name] if name in self._vault.kept else repeated[name] for name in names}

    def exact(self, fetch: Sequence[str], *, given: Sequence[str] | None, seed: int | None) -> dict[str, Array]:
        """See `Capture.exact`."""
        from bisect_onnx.runtimes.torch_exact import ExactRun

        if seed not in self._exact_runs:
            self._exact_runs[seed] = ExactRun(self._tape, self.tensors, seed=seed, max_bytes=self._vault.max_bytes)
        return self._exact_runs[seed].values(fetch, given=given)

    def recompute(self, fetch: Sequence[str], *, given: Mapping[str, Array]) -> dict[str, Array]:
        """See `Capture.recompute`; in float64."""
        from bisect_onnx.runtimes.torch_exact import ExactRun

        others = {name: to_tensor(array).to(self._tape.values[name].dtype) for name, array in given.items()}

        def recorded(names: Sequence[str]) -> Mapping[str, torch.Tensor]:
            own = self.tensors([name for name in names if name not in others])
            return {name: others[name] if name in others else own[name] for name in names}

        run = ExactRun(self._tape, recorded, seed=None, max_bytes=0)
        return run.values(fetch, given=list(given))

    def open_up(self, fetch: Sequence[str], *, given: Sequence[str]) -> "TorchCapture":
        """See `Capture.open_up`."""
        from bisect_onnx.runtimes.torch_open import open_up

        tape, vault = open_up(self._tape, self.tensors, fetch=fetch, given=given)
        return TorchCapture(name=f"{self.graph.name}, opened up", tape=tape, vault=vault, repeat=lambda _: {})
