"""A study as a program: its flags, what it prints."""

from __future__ import annotations

import pathlib

from absl import flags

from sepfx.commands import command_line, dry_run, options
from sepfx.studies import running, settings, tables
from sepfx.studies.settings import Chosen
from sepfx.studies.share_runs import Part
from sepfx.studies.study import Study, StudyCall

flags.disclaim_key_flags()
FLAGS = options.FLAGS


def main(study: Study) -> None:
  """Runs a study as a program."""
  settings.define(study.settings, FLAGS)
  FLAGS.set_default("output_dir", study.output_dir)
  command_line.main(
    lambda unknown: run(study, settings.from_flags(study.settings, FLAGS, unknown))
  )


def run(study: Study, chosen: Chosen) -> None:
  """Runs what is asked for, in --output_dir, and leaves summary and figure there.

  Under --dry_run it says what it would take, and leaves nothing.
  """
  stop = options.start()
  console = options.console()
  asked = StudyCall(
    study,
    chosen,
    probes=FLAGS.probes,
    keep_weights=FLAGS.keep_weights,
    paths=FLAGS.beside,
    against=FLAGS.against,
    trusted=options.trusted(),
  )
  if FLAGS.dry_run:
    for part in dry_run.shown(asked, FLAGS.output_dir, stop):
      console.print(part)
    return
  finished = running.run(asked, FLAGS.output_dir, options.options(stop))
  figure = f"figure: {pathlib.Path(FLAGS.output_dir) / 'figure.png'}"
  if isinstance(finished, Part):
    console.print(finished.words, soft_wrap=True)
    if not FLAGS.share:
      console.print(figure, soft_wrap=True)
    return
  counts = finished.summary["parameters"]
  shown = [*study.table(finished.summary), tables.parameters(finished.cells, counts)]
  if finished.probes is not None:
    shown += tables.probes(finished.probes)
  for part in shown:
    console.print(part)
  console.print(figure, soft_wrap=True)
