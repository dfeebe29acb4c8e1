"""A study from Python: what its command runs, with settings in place of flags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from sepfx import kinds, precision
from sepfx.drawing import looks
from sepfx.ensembles import Watcher
from sepfx.errors import require
from sepfx.measuring import calls
from sepfx.studies import settings as settings_lib
from sepfx.studies.share_runs import Part
from sepfx.studies.study import Finished, Study, StudyCall
from sepfx.training import Probe


@precision.single()
def run(
  study: Study,
  settings: Mapping[str, Any] | None = None,
  *,
  directory: str | os.PathLike,
  probes: Iterable[str | Probe] | str | Probe | None = (),
  keep_weights: bool = False,
  beside: Sequence[str | os.PathLike] | str | os.PathLike = (),
  against: str = "length",
  classes: Sequence[str] | str = (),
  share: tuple[int, int] | str | None = None,
  progress: bool = True,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  watchers: Sequence[Watcher] = (),
) -> Finished | Part:
  """Runs a study, in a directory that its command goes on with, and the other way round.

  What is there is kept, also where the call leaves it out. Ctrl-C keeps what is in
  progress; the same call goes on. A search that chooses among trials, for critical sample
  sizes or the best of several learning rates, works as it does from the shell.

  Args:
    study: such as `sepfx.experiments.best_rate.STUDY`.
    settings: by the names of the study's flags, one value or a sequence of several; also
      of further fields of the task, the model, the protocol or the optimizer.
    directory: where trials are recorded.
    probes: what is measured of each trial when it has ended.
    keep_weights: whether each trial's weights are kept.
    beside: directories of complete runs to summarise and draw together with this one, or
      names of `Study.recorded`. Of these the runs of the tasks in `directory` are shown.
    against: the numeric axis that figures are drawn along.
    classes: names of own classes, or factories, that directories may name.
    share: (3, 64), "3/64" or "auto": run a share of the trials, in a directory of its own
      under `directory`. The same call without it takes up what all shares have.
    progress: whether to show how far it is.
    lanes: lanes per device; 0 to choose.
    devices: where to run; None for all of the default platform.
    watchers: told of everything that happens.

  Returns:
    Records, summary and cells of all that stands in the directory. Its figure is there,
    too. Of a share: its records, and what is missing elsewhere in words. Likewise where
    trials are missing that an earlier call asked for.

  Raises:
    InvalidSetting: (a ValueError) for bad input, or a directory of something else, before
      anything is compiled.
    OSError: if something could not be recorded.
  """
  takes = "a study, such as sepfx.experiments.best_rate.STUDY"
  require(isinstance(study, Study), "study", study, takes)
  takes = "values by the names of flags, such as {'lengths': [4, 8]}"
  require(isinstance(settings or {}, Mapping), "settings", settings, takes)
  keep_weights = kinds.taken(keep_weights, bool, "keep_weights")
  calls.check_directory(directory)
  options = calls.options_of(lanes, devices, watchers, progress, share, directory)
  asked = StudyCall(
    study,
    settings_lib.from_values(study.settings, settings or {}),
    probes=_several(probes),
    keep_weights=keep_weights,
    paths=list(map(str, _several(beside))),
    against=against,
    trusted=_several(classes),
    look=looks.look,
  )
  finished: Finished | Part = calls.recorded(asked, directory, options)
  return finished


def _several(given: Any) -> list:
  """One or several, as a list."""
  if given is None:
    return []
  alone = isinstance(given, str | os.PathLike) or callable(given)
  return [given] if alone else list(given)
