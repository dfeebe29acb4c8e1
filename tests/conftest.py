"""Two host devices for every test, and programs that compile fast rather than run fast.

Most of the suite's time is compilation of small programs that run once.
"""

import os

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

import hypothesis

hypothesis.settings.register_profile(
  "sepfx", deadline=None, derandomize=True, max_examples=5
)
hypothesis.settings.load_profile("sepfx")
