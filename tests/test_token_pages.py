"""The page of tasks of tokens: its sequences are what the tasks draw."""

import pathlib
import re

import jax
import numpy as np

from experiments.suite.parts import named
from sepfx.tasks.tokens import TASKS

PAGE = pathlib.Path(__file__).parent.parent / "docs/guides/token_tasks.md"


def shown(text):
  """A sequence of a task's specification, and the answers that are asked for."""
  task = named(text)
  planted = task.init(jax.random.key(0))
  sample = task.sample(jax.random.key(1), planted, 1)
  tokens, asked, labels = (np.asarray(own)[0].tolist() for own in sample)
  answers = dict(zip(asked, labels, strict=True))
  wanted = [answers.get(k, -1) for k in range(len(tokens))]
  rows = [map(str, tokens), ("." if own < 0 else str(own) for own in wanted)]
  names = ("tokens ", "answers")
  return [
    "    " + " ".join([name, *(own.rjust(2) for own in row)])
    for name, row in zip(names, rows, strict=True)
  ]


def test_sequences_are_what_tasks_draw():
  lines = PAGE.read_text().splitlines()
  found = set()
  for k, line in enumerate(lines):
    if re.match(r"    \w+:", line):
      assert lines[k + 1 : k + 3] == shown(line.strip()), line
      found.add(named(line.strip()).name)
  assert {*TASKS} - found == {"word_problem_S5"}  # of 120 elements


def test_tasks_that_the_text_names_can_be_made():
  found = re.findall(r"`(\w+:\w+=[^`]*)`", PAGE.read_text())
  assert found
  for text in found:
    named(text)


def test_all_tasks_are_named():
  text = PAGE.read_text()
  assert all(f"`{name}`" in text for name in TASKS)
