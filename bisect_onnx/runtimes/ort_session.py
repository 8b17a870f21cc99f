"""Sessions of ONNX Runtime: which provider, which level, which options."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import onnxruntime as ort

from bisect_onnx.errors import (
    CustomOpsError,
    ModelNotLoadedError,
    OptimizationLevelError,
    ProviderNotGrantedError,
    SessionOptionValueError,
    UnknownProviderError,
    UnknownSessionOptionError,
)

__all__ = ["Settings", "create_session", "first_line", "provider_name"]

SHORT_NAMES: Final[Mapping[str, str]] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "dml": "DmlExecutionProvider",
    "rocm": "ROCMExecutionProvider",
}

LEVELS: Final = {
    0: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    3: ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    99: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}

EXECUTION_MODES: Final = {
    "sequential": ort.ExecutionMode.ORT_SEQUENTIAL,
    "parallel": ort.ExecutionMode.ORT_PARALLEL,
}

# Nothing below this is printed: what matters arrives as an exception.
FATAL: Final = 4

# Idle threads that spin take the machine from torch, which runs right after; results are the same. A user's own
# choice replaces it: the runtime warns of an entry that is set twice.
DEFAULT_OPTIONS: Final[Mapping[str, str]] = {"session.intra_op.allow_spinning": "0"}

# The part of a user's options that probes share: how much of the machine to take, not what to compute.
THREAD_OPTIONS: Final = frozenset({"intra_op_num_threads", "inter_op_num_threads"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """One configuration of the runtime, checked."""

    providers: tuple[str, ...]  # full names
    level: int
    options: Mapping[str, str]
    custom_ops: tuple[Path, ...]
    without: tuple[str, ...] = ()  # optimisers that are off

    def __post_init__(self) -> None:
        available = ort.get_available_providers()
        for provider in self.providers:
            if provider not in available:
                raise UnknownProviderError(provider=provider, available=available, short=tuple(SHORT_NAMES))
        self.session_options()  # raises for anything that cannot be

    def for_probes(self, config: Mapping[str, str]) -> "Settings":
        """Level 0 on CPU, with the same threads and operators, and ``config`` added."""
        shared = {name: value for name, value in self.options.items() if name in THREAD_OPTIONS}
        return Settings(
            providers=(SHORT_NAMES["cpu"],), level=0, options={**shared, **config}, custom_ops=self.custom_ops
        )

    def describe(self) -> str:
        """For messages: "CPUExecutionProvider, level 99"."""
        text = f"{', '.join(self.providers)}, level {self.level}"
        return f"{text}, without {', '.join(self.without)}" if self.without else text

    def session_options(self) -> ort.SessionOptions:
        """A fresh options object of the runtime."""
        options = ort.SessionOptions()
        if self.level not in LEVELS:
            raise OptimizationLevelError(level=self.level)
        options.graph_optimization_level = LEVELS[self.level]
        options.log_severity_level = FATAL
        for name, value in {**DEFAULT_OPTIONS, **self.options}.items():
            _set_option(options, name, value=value)
        for library in self.custom_ops:
            _register(options, library)
        return options


def provider_name(name: str) -> str:
    """The full name of a provider given by its full or short name."""
    return SHORT_NAMES.get(name.lower(), name)


def create_session(model: Path | bytes, *, settings: Settings, path: Path) -> ort.InferenceSession:
    """Start a session with exactly the providers that were asked for.

    Args:
        model: A file, or a serialised model.
        settings: The configuration.
        path: The file named in errors.

    Raises:
        ModelNotLoadedError: The runtime refuses the model.
        ProviderNotGrantedError: The session would run on something else.
    """
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(
            source,
            settings.session_options(),
            providers=list(settings.providers),
            disabled_optimizers=list(settings.without) or None,
            enable_fallback=0,
        )
    except RUNTIME_ERRORS as error:
        raise ModelNotLoadedError(path=path, configuration=settings.describe(), detail=first_line(error)) from error
    for provider in settings.providers:
        if provider not in session.get_providers():
            raise ProviderNotGrantedError(provider=provider, got=session.get_providers())
    return session


# Some messages start with the place in the runtime's own source that raised them.
SOURCE_POSITION: Final = re.compile(r"^/\S+\.(?:cc|h):\d+ [^()]*\([^()]*\)(?: const)?\s*(?=\S)")


def first_line(error: Exception) -> str:
    """What the runtime says first, without the code of its status and where in its source that is."""
    line = str(error).strip().partition("\n")[0]
    line = line.split(" : ", 3)[-1] if line.startswith("[ONNXRuntimeError]") else line
    return SOURCE_POSITION.sub("", line)


# The binding raises its own classes, which derive from Exception alone, and plain ones for bad arguments.
RUNTIME_ERRORS: Final[tuple[type[Exception], ...]] = (
    *(
        kind
        for kind in vars(ort.capi.onnxruntime_pybind11_state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
    RuntimeError,
    ValueError,
    TypeError,
)


def _integer(options: ort.SessionOptions, name: str, *, value: str) -> None:
    if not value.isdecimal():
        raise SessionOptionValueError(option=name, value=value, expected="an integer of 0 or more")
    setattr(options, name, int(value))


def _switch(options: ort.SessionOptions, name: str, *, value: str) -> None:
    states = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    if value.lower() not in states:
        raise SessionOptionValueError(option=name, value=value, expected="true or false")
    setattr(options, name, states[value.lower()])


def _text(options: ort.SessionOptions, name: str, *, value: str) -> None:
    setattr(options, name, value)


def _mode(options: ort.SessionOptions, name: str, *, value: str) -> None:
    if value.lower() not in EXECUTION_MODES:
        raise SessionOptionValueError(option=name, value=value, expected=" or ".join(EXECUTION_MODES))
    setattr(options, name, EXECUTION_MODES[value.lower()])


SETTERS: Final[Mapping[str, Callable[..., None]]] = {
    "enable_cpu_mem_arena": _switch,
    "enable_mem_pattern": _switch,
    "enable_mem_reuse": _switch,
    "enable_profiling": _switch,
    "execution_mode": _mode,
    "inter_op_num_threads": _integer,
    "intra_op_num_threads": _integer,
    "log_severity_level": _integer,
    "log_verbosity_level": _integer,
    "optimized_model_filepath": _text,
    "profile_file_prefix": _text,
    "use_deterministic_compute": _switch,
    "use_per_session_threads": _switch,
}


def _set_option(options: Any, name: str, *, value: str) -> None:
    """Set an attribute of the options, or a config entry, which has a dot in its name."""
    if "." in name:
        try:
            options.add_session_config_entry(name, value)
        except RUNTIME_ERRORS as error:
            raise SessionOptionValueError(option=name, value=value, expected=first_line(error)) from error
    elif name in SETTERS:
        SETTERS[name](options, name, value=value)
    else:
        raise UnknownSessionOptionError(option=name, known=tuple(SETTERS))


def _register(options: ort.SessionOptions, library: Path) -> None:
    if not library.is_file():
        raise CustomOpsError(library=library, problem="no such file")
    try:
        options.register_custom_ops_library(str(library))
    except RUNTIME_ERRORS as error:
        raise CustomOpsError(library=library, problem=first_line(error)) from error
