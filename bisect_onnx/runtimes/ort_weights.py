"""Weights where every probe finds them without carrying them: in files that the runtime maps.

Serialising weights into each probe would cost seconds and double the memory. The user's external data is read
in place. Inline weights are written once, to a temporary file. Nothing is ever written beside the user's files.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx

from bisect_onnx.errors import TemporarySpaceError
from bisect_onnx.readers.onnx_tensors import (
    INLINE_LOCATION,
    Slim,
    byte_length,
    each_tensor,
    external_entries,
    point_at,
    raw_bytes,
)
from bisect_onnx.runtimes.scratch import make_scratch

__all__ = ["PlacedWeights"]

# The runtime allows external data only below one folder; where data lies in several places it is the folder
# that holds them all.
FOLDER_ENTRY = "session.model_external_initializers_file_folder_path"


class PlacedWeights:
    """A model whose large tensors all lie in files below ``config[...folder_path]``.

    ``model`` may be cut up freely. The temporary file lives as long as this object, at most until the
    program ends. ``path`` is the user's file.
    """

    def __init__(self, slim: Slim, *, path: Path) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(slim.proto)
        external = [t for t in each_tensor(self.model) if t.data_location == onnx.TensorProto.EXTERNAL]
        self.config: dict[str, str] = {}
        if external:
            inline = self._write(slim) if slim.inline else Path()
            # The runtime resolves links before it checks where a file lies.
            self._place(external, inline=inline, folder=path.absolute().parent)

    def _write(self, slim: Slim) -> Path:
        """Write the inline tensors one behind the other, as `Slim.inline` says."""
        try:
            target = make_scratch(self) / "weights.bin"
            with target.open("wb") as stream:
                for offset, tensor in slim.inline:
                    stream.seek(offset)
                    stream.write(raw_bytes(tensor))
        except OSError as error:
            raise TemporarySpaceError(
                folder=Path(tempfile.gettempdir()), problem=error.strerror or str(error)
            ) from error
        return target

    def _place(self, tensors: Iterable[onnx.TensorProto], *, inline: Path, folder: Path) -> None:
        places = []
        for tensor in tensors:
            location = external_entries(tensor).get("location", "")
            places.append((tensor, inline if location == INLINE_LOCATION else (folder / location).resolve()))
        root = _common_folder([path.parent for _, path in places])
        self.config = {FOLDER_ENTRY: str(root)}
        for tensor, path in places:
            offset = int(external_entries(tensor).get("offset", "0"))
            location = path.relative_to(root).as_posix()
            point_at(tensor, location=location, offset=offset, length=byte_length(tensor) or 0)


def _common_folder(folders: Sequence[Path]) -> Path:
    try:
        return Path(os.path.commonpath(folders))
    except ValueError as error:  # Windows: no folder holds two drives
        raise TemporarySpaceError(
            folder=Path(tempfile.gettempdir()), problem=f"another drive than that of {folders[0]}"
        ) from error
