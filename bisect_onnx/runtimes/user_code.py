"""Import the file or package that REF names and call the factory in it; the only code of the user's run by name."""

import contextlib
import dataclasses
import difflib
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType, TracebackType

from bisect_onnx.errors import (
    FactoryFailedError,
    FactoryNotFoundError,
    ReferenceFormError,
    ReferenceImportError,
    ReferenceNotFoundError,
)

__all__ = [
    "FactoryAddress",
    "UserAttribute",
    "call_factory",
    "load_attribute",
    "require_file",
    "similar_files",
    "split_factory",
    "user_code_runs",
]

# Folders whose modules were imported on behalf of a REF's file, by module name: a later REF in another folder
# must not be served the first folder's `layers.py` for its own.
_siblings: dict[str, Path] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactoryAddress:
    """``path/to/file.py:name`` or ``package.module:name``, taken apart."""

    text: str
    module: str  # the part before the colon
    attribute: str  # dotted

    @property
    def file(self) -> Path | None:
        """The file to import; None when ``module`` is the name of a package or module."""
        return Path(self.module) if self.module.endswith(".py") else None

    @property
    def search_path(self) -> Path:
        """The folder from which the user's own imports are found, first."""
        return self.file.resolve().parent if self.file is not None else Path.cwd()


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserAttribute:
    """What the address leads to."""

    address: FactoryAddress
    module: ModuleType
    value: object


def split_factory(text: str) -> FactoryAddress | None:
    """The parts of ``MODULE:NAME``; None when ``text`` is not of that form."""
    module, colon, attribute = text.rpartition(":")
    if not colon or not module or not all(part.isidentifier() for part in attribute.split(".")):
        return None
    return FactoryAddress(text=text, module=module, attribute=attribute)


def require_file(address: FactoryAddress) -> None:
    """Refuse an address whose file is not there; quick, so that it can come before anything heavy."""
    if address.file is not None and not address.file.is_file():
        raise _missing_file(address, address.file.resolve())


def load_attribute(address: FactoryAddress) -> UserAttribute:
    """Import the module (nothing of it may print on our stdout) and find the attribute in it."""
    with user_code_runs(address):
        module = _import_file(address) if address.file is not None else _import_package(address)
    value: object = module
    for part in address.attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise _not_found(address, owner=value, name=part) from None
    return UserAttribute(address=address, module=module, value=value)


@contextlib.contextmanager
def user_code_runs(address: FactoryAddress) -> Iterator[None]:
    """The user's folder leads the import path, and what their code prints goes to stderr."""
    folder = address.search_path
    _forget_siblings(but_of=folder)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(ValueError):  # their code may have removed it
            sys.path.remove(str(folder))
        _remember_siblings(folder, before=before)


def call_factory(found: UserAttribute) -> object:
    """Call the attribute without arguments."""
    assert callable(found.value)
    try:
        with user_code_runs(found.address):
            return found.value()
    except (Exception, SystemExit) as error:
        raise FactoryFailedError(
            reference=found.address.text, line=_user_line(error, found.address), problem=_describe(error)
        ) from error


def _import_file(address: FactoryAddress) -> ModuleType:
    assert address.file is not None
    path = address.file.resolve()
    # A name of our own, so that `model.py` hides no package; the same name each time, so that a second
    # opening replaces the first. Registered, so that dataclasses, pickle and inspect find it.
    name = f"_bisect_onnx_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(address, error) from error
    return module


def _import_package(address: FactoryAddress) -> ModuleType:
    try:
        return importlib.import_module(address.module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{address.module}.".startswith(f"{error.name}."):
            raise ReferenceNotFoundError(
                reference=address.text,
                where=f"module {address.module!r}, looked for in {Path.cwd()} and where packages are installed",
                got=f"no module named {error.name!r}",
                similar=similar_files(Path.cwd(), address.module),
            ) from error
        raise _import_failed(address, error) from error
    except (TypeError, ValueError) as error:  # a name such as "../model"
        raise ReferenceFormError(
            reference=address.text,
            got=f"{address.module!r}, which is neither a .py file nor the name of a module",
            next_step="write path/to/file.py:factory or package.module:factory",
        ) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(address, error) from error


def _forget_siblings(*, but_of: Path) -> None:
    for name, folder in list(_siblings.items()):
        if folder != but_of:
            sys.modules.pop(name, None)
            del _siblings[name]


def _remember_siblings(folder: Path, *, before: set[str]) -> None:
    for name in sorted(set(sys.modules) - before):
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(folder) and "site-packages" not in Path(file).parts:
            _siblings[name] = folder


def _missing_file(address: FactoryAddress, path: Path) -> ReferenceNotFoundError | ReferenceFormError:
    if path.is_dir():
        return ReferenceFormError(
            reference=address.text, got="a folder", next_step="name the .py file in it that defines the factory"
        )
    return ReferenceNotFoundError(
        reference=address.text, where=str(path), got="no such file", similar=similar_files(path.parent, path.name)
    )


def similar_files(folder: Path, name: str) -> list[str]:
    if not folder.is_dir():
        return []
    return difflib.get_close_matches(name, sorted(entry.name for entry in folder.iterdir()), n=3)


def _import_failed(address: FactoryAddress, error: BaseException) -> ReferenceImportError:
    if isinstance(error, ModuleNotFoundError):
        step = f"install {error.name!r}, or run bisect-onnx in the environment where the model runs"
    elif isinstance(error, ImportError) and "relative import" in str(error):
        step = "run from the folder above the package and give package.module:factory"
    elif isinstance(error, SystemExit):
        step = 'put what the file runs as a program under: if __name__ == "__main__":'
    else:
        step = "import the file in Python on its own until that works"
    return ReferenceImportError(
        reference=address.text, line=_user_line(error, address), problem=_describe(error), next_step=step
    )


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"SystemExit: the code ends the program with status {error.code}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _user_line(error: BaseException, address: FactoryAddress) -> str:
    """The innermost line of the user's own code on the way to ``error``: ``FILE, line N: CODE``."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}".removesuffix(": ")
    folder = address.search_path
    place = address.module
    for frame, line in traceback.walk_tb(_without_ours(error.__traceback__)):
        if _belongs_to(frame, folder):
            summary = traceback.extract_stack(frame, limit=1)[0]
            code = traceback.FrameSummary(summary.filename, line, summary.name).line
            place = f"{summary.filename}, line {line}: {code}".removesuffix(": ")
    return place


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _belongs_to(frame: FrameType, folder: Path) -> bool:
    path = Path(frame.f_code.co_filename)
    return path.is_relative_to(folder) and not {"site-packages", "dist-packages"} & set(path.parts)


def _not_found(address: FactoryAddress, *, owner: object, name: str) -> FactoryNotFoundError:
    module_name = getattr(owner, "__name__", "")
    # What the module itself defines, not what it imports.
    defined = (
        [
            key
            for key, value in vars(owner).items()
            if not key.startswith("_") and getattr(value, "__module__", None) == module_name
        ]
        if hasattr(owner, "__dict__")
        else []
    )
    return FactoryNotFoundError(
        reference=address.text,
        module=address.module,
        name=name,
        nearest=difflib.get_close_matches(name, [key for key in dir(owner) if not key.startswith("_")], n=3),
        defined=sorted(defined),
    )
