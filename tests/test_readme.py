"""The README's Python runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_there_are_two_examples():
  assert len(BLOCKS) == 2


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example_runs(block, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = {"__name__": "readme"}
  exec(compile(block, "README.md", "exec"), names)
  if "records" in names:
    assert set(names["records"].table["outcome"]) == {"reached"}
    assert (tmp_path / "samples.png").exists()
