"""Which cores count: those of the machine that this process may use."""

import os

import jax
import pytest
import rich.console

from sepfx import cores
from sepfx.commands import command_line
from sepfx.measuring import calls

QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


def system(root, groups, files):
  """The files of a system with these control groups, by path."""
  own = {"proc/self/cgroup": "".join(f"{line}\n" for line in groups)}
  own |= {f"sys/fs/cgroup/{name}": f"{text}\n" for name, text in files.items()}
  for name, text in own.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
  return root


@pytest.mark.parametrize(
  ("groups", "files", "number"),
  [
    ([], {}, 64),
    (["0::/"], {"cpu.max": "max 100000"}, 64),
    (["0::/"], {"cpu.max": "200000 100000"}, 2),
    (["0::/"], {"cpu.max": "150000 100000"}, 2),  # a part of a core is one
    (["0::/"], {"cpu.max": "5000 100000"}, 1),
    (["0::/"], {"cpu.max": "9900000 100000"}, 64),  # more than there are
    # The least of a group's own quota and of those of all groups around it.
    (["0::/a/b"], {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
    (["0::/a/b"], {"a/cpu.max": "300000 100000", "a/b/cpu.max": "400000 100000"}, 3),
    (["0::/a/b"], {"a/c/cpu.max": "100000 100000"}, 64),  # a neighbour's
    # The host's path, in a container that has only its own group.
    (["0::/docker/1f"], {"cpu.max": "500000 100000"}, 5),
    (["0::/../1f"], {"cpu.max": "500000 100000"}, 5),
    (["4:cpu:/"], {f"cpu/{QUOTA}": "-1", f"cpu/{PERIOD}": "100000"}, 64),
    (["4:cpu:/"], {f"cpu/{QUOTA}": "250000", f"cpu/{PERIOD}": "100000"}, 3),
    (
      ["9:memory:/m", "4:cpu,cpuacct:/slurm/job_1", "0::/"],
      {
        f"cpu,cpuacct/slurm/job_1/{QUOTA}": "-1",
        f"cpu,cpuacct/slurm/job_1/{PERIOD}": "100000",
        f"cpu,cpuacct/slurm/{QUOTA}": "400000",
        f"cpu,cpuacct/slurm/{PERIOD}": "100000",
      },
      4,
    ),
    (["4:cpuset:/"], {f"cpu/{QUOTA}": "100000", f"cpu/{PERIOD}": "100000"}, 64),
    # Nothing is read into what cannot be read.
    (["nonsense", "0::/"], {"cpu.max": ""}, 64),
    (["0::/"], {"cpu.max": "100000"}, 64),
    (["0::/"], {"cpu.max": "100000 0"}, 64),
    (["4:cpu:/"], {f"cpu/{QUOTA}": "100000"}, 64),
  ],
)
def test_quotas_of_control_groups(tmp_path, monkeypatch, groups, files, number):
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
  assert cores.available(system(tmp_path, groups, files)) == number


def test_affinity_counts_and_a_system_without_it(tmp_path, monkeypatch):
  two = system(tmp_path, ["0::/"], {"cpu.max": "200000 100000"})
  monkeypatch.setattr(os, "cpu_count", lambda: 64)
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
  assert cores.available(two) == 1
  monkeypatch.delattr(os, "sched_getaffinity")
  assert cores.available(two) == 2
  assert cores.available(tmp_path / "nothing") == 64
  monkeypatch.setattr(os, "cpu_count", lambda: None)
  assert cores.available(tmp_path / "nothing") == 1


def test_a_program_makes_as_many_devices(monkeypatch):
  made = {}
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
  monkeypatch.setattr(jax.config, "update", made.__setitem__)
  monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
  command_line.prepare_jax()
  assert made["jax_num_cpu_devices"] == 1


def test_a_call_says_how_many_of_them_it_uses(monkeypatch, capsys):
  """Where JAX has been used, its devices stay as they are: two of them in these tests."""

  def too_late(*_):
    raise RuntimeError("JAX has been used")

  def printed(number):
    monkeypatch.setattr(cores, "available", lambda: number)
    calls.use_all_cores(rich.console.Console(stderr=True, width=200))
    return capsys.readouterr().err

  monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
  monkeypatch.setattr(type(jax.config), "jax_num_cpu_devices", -1)
  monkeypatch.setattr(jax.config, "update", too_late)
  assert printed(2) == ""
  assert printed(3).startswith("runs on 2 of 3 cores: for all of them, set ")
