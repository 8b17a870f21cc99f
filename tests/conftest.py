"""What every test run is under: quiet threads, no network, no luck, no terminal of its own."""

import os
import signal
import sys
from pathlib import Path

if "torch" in sys.modules:
    raise RuntimeError("torch was imported before tests/conftest.py could set OMP_WAIT_POLICY; load it later")

# Two OpenMP threads that spin on a busy two-core machine slow torch twenty-fold.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the other cores have a worker each
# transformers models are made from a configuration with random weights; a download would be a mistake.
os.environ["HF_HUB_OFFLINE"] = "1"
# What a test prints must not depend on the terminal the suite was started from.
for variable in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
    os.environ.pop(variable, None)

# A shell has its background jobs ignore Ctrl-C, and their children with them; tests that send it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402 - the environment comes first
from hypothesis import HealthCheck, settings  # noqa: E402 - the environment comes first

# The same examples in every run, and no verdict from the clock: a busy machine is not a defect.
settings.register_profile("house", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(scope="session")
def export_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `fixtures.export.exported` keeps the files that all tests of one run share, in every worker."""
    own = tmp_path_factory.getbasetemp()  # below one folder of the whole run when there are workers
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "exports"
    folder.mkdir(exist_ok=True)
    return folder
