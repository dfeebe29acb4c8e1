"""What is learned: data-generating models with planted parameters, pure samplers.

The rest of the library asks this of a task (see docs/guides/own_task.md): a frozen
dataclass with `name`, `length`, `objective`, `init(key)`, `sample(key, planted, n)` whose
result has `labels`, `encode(planted, sample)`, `best_constant_error()` and
`check_draw(keys)`.
"""

from sepfx.tasks.asked import Asked
from sepfx.tasks.boolean import (
  FUNCTIONS,
  BooleanFunction,
  ByCount,
  Hidden,
  LabelledBits,
  SparseBoolean,
  Symmetric,
  TruthTable,
  boolean_function,
  threshold,
)
from sepfx.tasks.codes import coherence, default_code_dim, draw_codes, incoherent_code_dim
from sepfx.tasks.few_heads import FewHeads
from sepfx.tasks.fourier import FourierSparse, Spectrum, UnseenStrings
from sepfx.tasks.in_context import Examples, LinearInContext
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
from sepfx.tasks.objectives import (
  CLASSIFICATION,
  REGRESSION,
  REGRESSION_ON_BITS,
  STEPS,
  Objective,
)
from sepfx.tasks.parity_chain import BitsAndSteps, ParityChain, UnseenChains
from sepfx.tasks.pointwise import PointwiseQSTR
from sepfx.tasks.qstr import QSTR, Planted, Prompts, first_half_scales

__all__ = [
  "CLASSIFICATION",
  "FUNCTIONS",
  "LINKS",
  "QSTR",
  "REGRESSION",
  "REGRESSION_ON_BITS",
  "STEPS",
  "Asked",
  "BitsAndSteps",
  "BooleanFunction",
  "ByCount",
  "Custom",
  "Examples",
  "FewHeads",
  "FourierSparse",
  "HalfFixed",
  "Hidden",
  "IndexDistribution",
  "LabelledBits",
  "Linear",
  "LinearInContext",
  "Link",
  "Mean",
  "Objective",
  "ParityChain",
  "Planted",
  "PointwiseQSTR",
  "Prompts",
  "ReLUTeacher",
  "SparseBoolean",
  "Spectrum",
  "SquaredNorm",
  "Symmetric",
  "TruthTable",
  "TwoLayer",
  "UnseenChains",
  "UnseenStrings",
  "boolean_function",
  "coherence",
  "default_code_dim",
  "draw_codes",
  "first_half_scales",
  "incoherent_code_dim",
  "independent",
  "shared",
  "threshold",
]
