"""Where the programs are that the tests compare with."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def repository():
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def programs():
    """``train`` and ``bt``: those of ``HANKEL_PROGRAMS``, or of a debug build."""
    folder = Path(os.environ.get("HANKEL_PROGRAMS", REPOSITORY / "target/debug"))
    missing = [name for name in ("train", "bt") if not (folder / name).is_file()]
    if missing:
        pytest.fail(f"{folder} has no {missing[0]}: run cargo build -p hankel-train -p hankel-tools, or set HANKEL_PROGRAMS")
    return folder


@pytest.fixture(scope="session")
def families(repository):
    """Tiny models of transformers."""
    return repository / "tests/golden/families"


@pytest.fixture(scope="session")
def golden_model(repository, families):
    """Where the tiny model of a family is."""
    return lambda family: repository / "tests/golden/mistral/window/hf" if family == "mistral" else families / family / "hf"


@pytest.fixture(scope="session")
def llama_run(programs, families, tmp_path_factory):
    """Every kind of adapter on the tiny Llama."""
    from helpers import ADAPTERS, fit

    return fit(programs, tmp_path_factory.mktemp("llama"), families / "llama/hf", list(ADAPTERS))
