"""Two host devices for every test, and no compilation cache of the user's."""

import os

os.environ["JAX_NUM_CPU_DEVICES"] = "2"

import hypothesis

hypothesis.settings.register_profile(
  "sepfx", deadline=None, derandomize=True, max_examples=5
)
hypothesis.settings.load_profile("sepfx")
