"""The command line with a fake `locate` behind it."""

import dataclasses
import sys
import types
from collections.abc import Callable

import pytest

from bisect_onnx.cli import app
from bisect_onnx.core.events import Listener
from bisect_onnx.core.report import Report
from bisect_onnx.pipeline.request import LocateRequest
from tests.report_builders import CASES


@dataclasses.dataclass
class FakeLocate:
    """Answers with ``outcome``; remembers what it was asked."""

    outcome: Callable[[LocateRequest, Listener], Report] = lambda _request, _listen: CASES["located"]()
    requests: list[LocateRequest] = dataclasses.field(default_factory=list)

    def locate(self, request: LocateRequest, *, on_event: Listener) -> Report:
        self.requests.append(request)
        return self.outcome(request, on_event)

    @property
    def request(self) -> LocateRequest:
        (request,) = self.requests
        return request

    def answers(self, case: str) -> None:
        self.outcome = lambda _request, _listen: CASES[case]()

    def raises(self, error: BaseException) -> None:
        def outcome(request: LocateRequest, listen: Listener) -> Report:
            raise error

        self.outcome = outcome


@dataclasses.dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


@pytest.fixture
def fake(monkeypatch) -> FakeLocate:
    fake = FakeLocate()
    module = types.ModuleType("bisect_onnx.pipeline.locate")
    module.locate = fake.locate  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "bisect_onnx.pipeline.locate", module)
    return fake


@pytest.fixture
def bisect_onnx(fake, capfd) -> Callable[..., Ended]:
    """Runs the command line in this process and tells how it ended."""

    def call(*arguments: object) -> Ended:
        status = app.run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(status, out, err)

    return call


@pytest.fixture
def locate(bisect_onnx) -> Callable[..., Ended]:
    return lambda *arguments: bisect_onnx("locate", "m.onnx", "-r", "net.py:build", *arguments)
