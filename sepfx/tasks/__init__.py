"""What is learned: data-generating models with planted parameters, pure samplers.

The rest of the library asks this of a task (see docs/adding_a_task.md): a frozen
dataclass with `name`, `length`, `input_dim`, `init(key)`, `sample(key, planted,
num_prompts)` whose result has `labels` [n N], `encode(planted, sample)` [n N D],
`variance()`, `uniform_attention_risk()` and `check_draw(keys)`.
"""

from sepfx.tasks.codes import coherence, default_code_dim, draw_codes
from sepfx.tasks.indices import HalfFixed, IndexDistribution, independent, shared
from sepfx.tasks.links import (
  LINKS,
  Custom,
  Linear,
  Link,
  Mean,
  ReLUTeacher,
  SquaredNorm,
  TwoLayer,
)
from sepfx.tasks.qstr import QSTR, Planted, Prompts, first_half_scales

__all__ = [
  "LINKS",
  "QSTR",
  "Custom",
  "HalfFixed",
  "IndexDistribution",
  "Linear",
  "Link",
  "Mean",
  "Planted",
  "Prompts",
  "ReLUTeacher",
  "SquaredNorm",
  "TwoLayer",
  "coherence",
  "default_code_dim",
  "draw_codes",
  "first_half_scales",
  "independent",
  "shared",
]
