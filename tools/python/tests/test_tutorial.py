"""Every line of docs/python.md is run, but the installation; what needs torch, where torch is installed."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest


def blocks(repository):
    page = (repository / "docs/python.md").read_text()
    return page, re.findall(r"^```(sh|python)\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def test_the_page_is_short(repository):
    page, found = blocks(repository)
    assert len(page.splitlines()) <= 64
    assert [language for language, _ in found] == ["sh", "sh", "python", "python"]


def test_its_lines_run(repository, programs, tmp_path):
    pytest.importorskip("matplotlib")
    torch = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("transformers") is not None
    path = os.pathsep.join([str(programs), os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "MPLBACKEND": "Agg"}
    _, found = blocks(repository)
    assert found[0][1].startswith("pip install") and found[0][1].count("\n") == 1
    for language, code in found[1:]:
        if language == "python" and "torch" in code and not torch:
            continue
        command = ["bash", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    made = ["runs/tutorial/adapters/hrm/adapter_model.safetensors", "error.svg"] + ["mine/adapter_config.json"] * torch
    assert all((tmp_path / name).is_file() for name in made)
