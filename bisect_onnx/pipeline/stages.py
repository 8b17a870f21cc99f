"""What a run of `locate` tells while it works and measures of itself: stages, their seconds, peak memory."""

import contextlib
import time
from collections.abc import Iterator

from bisect_onnx.core.events import Listener, StageFinished, StageStarted

__all__ = ["StageClock", "peak_memory"]


class StageClock:
    """Times the stages and tells the listener."""

    def __init__(self, on_event: Listener) -> None:
        self.tell = on_event
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def stage(self, name: str, title: str) -> Iterator[None]:
        self.tell(StageStarted(stage=name, title=title))
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self.tell(StageFinished(stage=name, seconds=seconds))

    def timing(self) -> dict[str, float]:
        return {**self.seconds, "total": time.perf_counter() - self._start}


def peak_memory() -> int | None:
    import sys

    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
