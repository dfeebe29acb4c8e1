"""How many samples do different neural architectures need?

`sepfx.measure` answers it in one call; `sepfx.tasks`, `sepfx.models` and
`sepfx.training` can be used on their own.
"""

from sepfx.ensembles import measure
from sepfx.errors import InvalidSetting
from sepfx.training import Online

__all__ = ["InvalidSetting", "Online", "measure"]
__version__ = "0.1.0"
