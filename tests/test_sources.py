"""A model, task, protocol or probe is all the code that it runs, and nothing else."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest

import sepfx
from sepfx.ensembles import grid
from sepfx.errors import InvalidSetting
from sepfx.provenance import origins, sources, syntax
from sepfx.records.beginning import begun
from sepfx.records.run_directory import RunDirectory
from sepfx.tasks import QSTR
from sepfx.training import Online

HEAD = """
import dataclasses, functools
import flax.linen as nn
import jax, jax.numpy as jnp
"""
BODY = "nn.Dense(1)(x)[..., 0]"
PLAIN = f"class M(nn.Module):\n  @nn.compact\n  def __call__(self, x): return {BODY}"


def model(*lines, call=f"return {BODY}", base="nn.Module"):
  """The source of a class with further lines in its body."""
  own = [*lines, "@nn.compact", f"def __call__(self, x): {call}"]
  return f"class M({base}):\n" + textwrap.indent("\n".join(own), "  ")


# Where code of a class stands, with a K that an edit changes.
EDITS = {
  "call": model(call=f"return {BODY} * K"),
  "private method": model(
    "def _f(self, y): return y * K", call=f"return self._f({BODY})"
  ),
  "base's method": "class B(nn.Module):\n  def f(self, y): return y * K\n"
  + model(call=f"return self.f({BODY})", base="B"),
  "base's base": "class A:\n  C = K\nclass B(A):\n  pass\n"
  + model(call=f"return self.C * {BODY}", base="B, nn.Module"),
  "constant": model("C = K", call=f"return self.C * {BODY}"),
  "default of a field": model("c: float = K", call=f"return self.c * {BODY}"),
  "factory of a field's default": model(
    "c: list = dataclasses.field(default_factory=lambda: [K])",
    call=f"return self.c[0] * {BODY}",
  ),
  "property": model("@property\ndef c(self): return K", call=f"return self.c * {BODY}"),
  "cached property": model(
    "@functools.cached_property\ndef c(self): return K", call=f"return self.c * {BODY}"
  ),
  "static method": model(
    "@staticmethod\ndef c(): return K", call=f"return self.c() * {BODY}"
  ),
  "class method": model(
    "@classmethod\ndef c(cls): return K", call=f"return self.c() * {BODY}"
  ),
  "global": "G = K\n" + model(call=f"return G * {BODY}"),
  "array": "G = jnp.array([K])\n" + model(call=f"return G * {BODY}"),
  "function": "def f(y): return y * K\n" + model(call=f"return f({BODY})"),
  "function of a function": "def g(y): return y * K\ndef f(y): return g(y)\n"
  + model(call=f"return f({BODY})"),
  "default of an argument": "def f(y, c=K): return y * c\n"
  + model(call=f"return f({BODY})"),
  "lambda beside another": "f, g = (lambda y: y), (lambda y: y * K)\n"
  + model(call=f"return g(f({BODY}))"),
  "closure": "def make(c): return lambda y: y * c\nf = make(K)\n"
  + model(call=f"return f({BODY})"),
  "jitted function": "@jax.jit\ndef f(y): return y * K\n"
  + model(call=f"return f({BODY})"),
  "derivative": "@jax.custom_jvp\ndef f(y): return y\n"
  "@f.defjvp\ndef df(p, t): return p[0], K * t[0]\n" + model(call=f"return f({BODY})"),
  "partial": "def f(c, y): return y * c\nh = functools.partial(f, K)\n"
  + model(call=f"return h({BODY})"),
  "decorator": "def twice(f):\n  @functools.wraps(f)\n"
  "  def g(*a): return f(*a) * K\n  return g\n@twice\ndef f(y): return y\n"
  + model(call=f"return f({BODY})"),
  "table of functions": "def f(y): return y * K\nTABLE = {'f': [f]}\n"
  + model(call=f"return TABLE['f'][0]({BODY})"),
  "class of settings": "class Config:\n  c = K\n"
  + model(call=f"return Config.c * {BODY}"),
  "instance of settings": "class Config:\n  def __init__(self): self.c = K\n"
  "config = Config()\n" + model(call=f"return config.c * {BODY}"),
  "inner module": "class Inner(nn.Module):\n  def _f(self, y): return y * K\n"
  "  def __call__(self, y): return self._f(y)\n" + model(call=f"return Inner()({BODY})"),
  "module in a field": "class Inner(nn.Module):\n  def _f(self, y): return y * K\n"
  "  def __call__(self, y): return self._f(y)\n"
  + model("inner: nn.Module = Inner()", call=f"return self.inner({BODY})"),
  "installed closure": "init = nn.initializers.constant(K)\n"
  + model(call="return nn.Dense(1, kernel_init=init)(x)[..., 0]"),
  "metaclass": "class Meta(type(nn.Module)):\n  c = K\n"
  + model(call=f"return type(self).c * {BODY}", base="nn.Module, metaclass=Meta"),
}
# Where two functions share a name, and what is made of functions.
MAKE = "def make(c): return lambda y: y * c\n"
PAIR = model(call=f"return A(B({BODY}))")
USE = model(call=f"return F({BODY})")
EDITS |= {
  "one of two closures": f"{MAKE}A, B = make(1.0), make(K)\n{PAIR}",
  "one of two lambdas": f"A = lambda y: y\nB = lambda y: y * K\n{PAIR}",
  "vectorised function": "def f(y): return y\n"
  "F = jax.vmap(f, in_axes=int(K > 2), out_axes=int(K > 2))\n" + USE,
  "jitted partial": "def f(c, y): return y * c\nF = jax.jit(functools.partial(f, K))\n"
  + USE,
  "rule of a gradient": "def one(_, g): return (g,)\ndef five(_, g): return (5 * g,)\n"
  "@jax.custom_vjp\ndef F(y): return y\n"
  "F.defvjp(lambda y: (y, None), one if K < 2 else five)\n" + USE,
  "transformed module": "Scan = nn.scan(nn.SimpleCell, variable_broadcast='params',"
  " split_rngs={'params': False}, reverse=K > 2)\n"
  + model(call=f"\n    Scan(3)\n    return {BODY}"),
  "bound method": "class Scale:\n  def __init__(self, c): self.c = c\n"
  "  def on(self, y): return y * self.c\nF = Scale(K).on\n" + USE,
  "order of a table": "def f(y): return y + 1\ndef g(y): return 2 * y\n"
  "T = {'f': f, 'g': g} if K < 2 else {'g': g, 'f': f}\n"
  + model(call=f"\n    y = {BODY}\n    for h in T.values(): y = h(y)\n    return y"),
  "long array in a namespace": "import types, numpy as np\n"
  "T = types.SimpleNamespace(w=np.arange(2000.0) * (np.arange(2000) != 1000 * K))\n"
  + model(call=f"return T.w[1000] * {BODY}"),
  "slots": "class T:\n  __slots__ = ('c',)\n  def __init__(self, c): self.c = c\n"
  "t = T(K)\n" + model(call=f"return t.c * {BODY}"),
  "settings that are attributes": "class T(dict):\n"
  "  def __getattr__(self, name): return self[name]\n"
  "t = T(c=K)\n" + model(call=f"return t.c * {BODY}"),
  "own initialiser of a dataclass": "@dataclasses.dataclass(init=False)\nclass T:\n"
  "  c: float\n  def __init__(self): self.c = K\n" + model(call=f"return T().c * {BODY}"),
  "private slots": "class T:\n  __slots__ = ('__c',)\n"
  "  def __init__(self, c): self.__c = c\n  def c(self): return self.__c\n"
  "t = T(K)\n" + model(call=f"return t.c() * {BODY}"),
  "array of a class": model("C = jnp.array([K])", call=f"return self.C * {BODY}"),
  "optimizer, of which update is a method": "import optax\nOPT = optax.sgd(K)\n"
  + model(call=f"\n    y = {BODY}\n    return OPT.update(y, OPT.init(y))[0]"),
  "array that is added to": "G = K * jnp.ones(3)\n"
  + model(call=f"return G.at[0].add(1.0)[0] * {BODY}"),
  "own method called update": "class T:\n  def __init__(self, c): self.c = c\n"
  "  def update(self, y): return y * self.c\nt = T(K)\n"
  + model(call=f"return t.update({BODY})"),
  "global that an inner function has as an argument": "G = [K]\n"
  + model(call=f"\n    def g(G): G[0] = 1\n    return G[0] * {BODY}"),
  "what a defaultdict was given": "import collections\n"
  "T = collections.defaultdict(list)\nT['f'] = [lambda y: y * K]\n"
  + model(call=f"return T['f'][0]({BODY})"),
  "member of an enumeration": "import enum\nclass E(enum.Enum):\n  C = K\n"
  + model(call=f"return E.C.value * {BODY}"),
}
# What no computation depends on: two sources each.
SAME = {
  "docstring of the class": (PLAIN, model('"It mixes."')),
  "docstring of a method": (PLAIN, model(call=f'\n    "Mixes."\n    return {BODY}')),
  "comments and blank lines": (
    PLAIN,
    "# A comment.\n\n\n" + model(call=f"\n    # Another.\n\n    return {BODY}"),
  ),
  "layout of lines": (PLAIN, model(call="return (nn.Dense(1)(\n      x\n  ))[..., 0]")),
  "annotations": (
    PLAIN,
    PLAIN.replace("(self, x)", "(self, x: jax.Array) -> jax.Array"),
  ),
  "annotated variable": (
    model(call=f"\n    y = {BODY}\n    return y"),
    model(call=f"\n    y: jax.Array = {BODY}\n    return y"),
  ),
  "quotes": (
    model(call="return nn.Dense(1, name='a')(x)[..., 0]"),
    model(call='return nn.Dense(1, name="a")(x)[..., 0]'),
  ),
  "a number's spelling": (
    model(call=f"return 0.001 * {BODY}"),
    model(call=f"return 1e-3 * {BODY}"),
  ),
  "pass": (
    "class B:\n  pass\n" + model(base="B, nn.Module"),
    "class B:\n  'Nothing.'\n" + model(base="B, nn.Module"),
  ),
  "a global that shares an attribute's name": (
    "shape = 1\n" + model(call=f"return x.shape[0] * {BODY}"),
    "shape = 2\n" + model(call=f"return x.shape[0] * {BODY}"),
  ),
  "a function that is not run": (PLAIN, "def f(y): return 3 * y\n" + PLAIN),
  "another class of the module": (PLAIN, "class Other:\n  C = 3\n" + PLAIN),
  "a comment within an expression": (
    PLAIN,
    PLAIN.replace("nn.Dense(1)(x)", "nn.Dense(1)(  # one\n    x)"),
  ),
  "annotations of a function within": (
    model(call=f"\n    def g(y): return y\n    return g({BODY})"),
    model(call=f"\n    def g(y: jnp.ndarray): return y\n    return g({BODY})"),
  ),
  "where a file is": (
    "import pathlib\nP = pathlib.Path('/one')\n" + model(call=f"return (P, {BODY})[1]"),
    "import pathlib\nP = pathlib.Path('/two')\n" + model(call=f"return (P, {BODY})[1]"),
  ),
  "what code keeps in a global": (
    "calls = 1\n" + model(call=f"\n    global calls\n    calls = 7\n    return {BODY}"),
    "calls = 2\n" + model(call=f"\n    global calls\n    calls = 7\n    return {BODY}"),
  ),
}


NONE = sources.Change([], [])


@pytest.fixture
def from_file(tmp_path, monkeypatch):
  """Imports a module of this source, in place of an earlier one."""
  monkeypatch.syspath_prepend(tmp_path)
  ages = iter(range(1, 100))

  def made(source, name="own_mixers"):
    path = tmp_path / f"{name}.py"
    path.write_text(HEAD + source + "\n")
    os.utime(path, (0, next(ages)))  # else an import may take an earlier file's bytecode
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name)

  yield made
  sys.modules.pop("own_mixers", None)


# Executors send classes of a script by value. Functions of such a copy may not say which
# file they are from.
SENT = """
from sepfx.provenance import sources

there = sources.code_of([("it", M())])
for own in dataclasses.fields(M):
  if own.default_factory is dataclasses.MISSING:
    own.default_factory = type(dataclasses.MISSING)()
call = M.__call__.__wrapped__
call.__code__ = call.__code__.replace(co_filename="<dynamic-code>")
print(*sources.changes(there, sources.code_of([("it", M())])))
"""


def from_cell(source):
  """Runs it as a cell of a notebook whose source is not kept."""
  names = {"__name__": "__main__"}
  exec(compile(HEAD + source, "<cell>", "exec"), names)
  return names["M"]


def code_of(*values):
  return sources.code_of([("it", value) for value in values])


def test_what_was_sent_to_another_process_is_the_same(tmp_path):
  source = HEAD + model("c: float = 1.0", call=f"return self.c * {BODY}") + SENT
  script = tmp_path / "script.py"
  script.write_text(source)
  run = subprocess.run([sys.executable, script], capture_output=True, text=True)
  assert run.stdout.split() == ["[]", "[]"], run.stderr


@pytest.mark.parametrize("place", EDITS)
def test_an_edit_is_noticed_wherever_it_stands(place, from_file):
  old, new = (EDITS[place].replace("K", k) for k in ("1.0", "5.0"))
  for define in (from_cell, lambda source: from_file(source).M):
    before, after = code_of(define(old)()), code_of(define(new)())
    assert sources.changes(before, code_of(define(old)())) == NONE
    changed, unknown = sources.changes(before, after)
    assert changed
    assert not unknown


@pytest.mark.parametrize("what", SAME)
def test_what_changes_nothing_is_not_refused(what, from_file):
  before, after = (code_of(from_file(source).M()) for source in SAME[what])
  assert sources.changes(before, after) == NONE


@pytest.mark.parametrize(
  "what", sorted(SAME.keys() - {"annotations of a function within"})
)
def test_nor_in_a_cell_whose_source_is_not_kept(what):
  before, after = (code_of(from_cell(source)()) for source in SAME[what])
  assert sources.changes(before, after) == NONE


@pytest.mark.parametrize(
  "source",
  [
    "MEMO = {}\n"
    + model(call=f"\n    MEMO.setdefault(len(x), 1)\n    MEMO[3] = 2\n    return {BODY}"),
    "CALLS = []\n" + model(call=f"\n    CALLS.append(1)\n    return {BODY}"),
    "def f(y, memo={}):\n  memo[len(y)] = 1\n  return y\n"
    + model(call=f"return f({BODY})"),
    "class T:\n  @functools.cached_property\n  def c(self): return 2.0\nt = T()\n"
    + model(call=f"return t.c * {BODY}"),
    "import numpy as np\nRNG = np.random.default_rng(0)\n"
    + model(call=f"return RNG.random() * {BODY}"),
    "class T:\n  def __init__(self): self.n = 0\n"
    "  def tick(self):\n    self.n += 1\n    return 1.0\nt = T()\n"
    + model(call=f"return t.tick() * {BODY}"),
    "class T(dict): pass\nt = T()\n"
    + model(call=f"\n    t.setdefault(len(x), 1)\n    return {BODY}"),
    "import logging\nL = logging.getLogger('own')\n"
    + model(call=f"\n    L.setLevel(10)\n    return {BODY}"),
    "GAINS = {nn.relu: 2.0}\n" + model(call=f"return GAINS[nn.relu] * {BODY}"),
  ],
)
def test_what_running_changes_is_not_code(source, from_file):
  own = from_file(source).M()
  before = code_of(own)
  for length in (1, 2):
    jax.eval_shape(own.init, jax.random.key(0), jnp.ones((length, 3, 2)))
  assert sources.changes(before, code_of(own)) == NONE


@pytest.mark.parametrize(
  "source",
  [
    "import typing\nclass T(typing.NamedTuple):\n  c: float = 1.0\n",
    "import enum\nclass T(str, enum.Enum):\n  A = 'a'\n",
    "class T(float):\n",
  ],
)
def test_code_of_what_is_given_as_a_setting(source, from_file):
  """Though it is a tuple, a text or a number."""
  found = []
  for k in (1.0, 5.0):
    made = from_file(f"{source}  def f(self, y): return {k} * y\n").T
    found.append(code_of((made.A if hasattr(made, "A") else made(),)))
  assert sources.changes(*found).changed == ["own_mixers:T.f"]


def test_hostile_objects_count_by_their_class(from_file):
  source = (
    "class T:\n  def __getattr__(self, name): raise RuntimeError\n"
    "  def __repr__(self): raise RuntimeError\n"
    "  def __eq__(self, other): raise RuntimeError\n"
    "  def __hash__(self): raise RuntimeError\n"
    "t = T()\nlinked = None\nfor _ in range(1500): linked = [linked]\n"
    + model(call=f"\n    t, linked\n    return {BODY}")
  )
  assert code_of(from_file(source).M()).wholes.keys() == {"it"}


def test_the_part_that_differs_is_named(from_file):
  old, new = (EDITS["private method"].replace("K", k) for k in ("1.0", "5.0"))
  before, after = code_of(from_file(old).M()), code_of(from_file(new).M())
  assert sources.changes(before, after).changed == ["own_mixers:M._f"]


def test_a_method_that_takes_the_place_of_a_base_s(from_file):
  base = "class B(nn.Module):\n  def f(self, y): return y\n"
  old = base + model(call=f"return self.f({BODY})", base="B")
  new = base + model(
    "def f(self, y): return 2 * y", call=f"return self.f({BODY})", base="B"
  )
  before, after = code_of(from_file(old).M()), code_of(from_file(new).M())
  assert sources.changes(before, after).changed == ["own_mixers:M"]


def test_a_global_that_takes_the_place_of_a_builtin(from_file):
  old = model(call=f"return abs({BODY})")
  before = code_of(from_file(old).M())
  after = code_of(from_file("abs = jnp.negative\n" + old).M())
  assert sources.changes(before, after).changed == ["own_mixers:M.__call__"]


def test_modules_of_one_s_own_that_code_imports(from_file):
  for use in (
    "import own_parts\n" + model(call=f"return own_parts.f({BODY})"),
    "from own_parts import f\n" + model(call=f"return f({BODY})"),
    model(call=f"\n    import own_parts\n    return own_parts.f({BODY})"),
    model(call=f"\n    from own_parts import f\n    return f({BODY})"),
  ):
    before, after = [], []
    for found, k in ((before, "1.0"), (after, "5.0")):
      from_file(f"def f(y): return y * {k}", "own_parts")
      found.append(code_of(from_file(use).M()))
    assert sources.changes(before[0], after[0]).changed == ["own_parts:f"]
  sys.modules.pop("own_parts")


def test_source_that_is_no_longer_what_runs(from_file, tmp_path):
  module = from_file(PLAIN)
  before = code_of(module.M())
  (tmp_path / "own_mixers.py").write_text(
    HEAD + PLAIN.replace("[..., 0]", "[..., 0] * 2")
  )
  changed, unknown = sources.changes(before, code_of(module.M()))
  assert (changed, unknown) == ([], ["it"])


def test_installed_code_and_this_project_s_have_versions_instead():
  code = code_of(optax.adam(1e-3), QSTR(), sepfx.models.Transformer())
  assert code.wholes == code.parts == {}
  assert {"optax", "sepfx"} <= origins.versions(frozenset(code.packages)).keys()


def test_a_package_in_a_directory_of_its_own_is_a_user_s(from_file, monkeypatch):
  module = from_file(PLAIN)
  assert origins.is_own("own_mixers")
  monkeypatch.setattr(module, "__file__", "/opt/lib/python3/site-packages/own_mixers.py")
  assert not origins.is_own("own_mixers")


# Directories.


class Applied(nn.Module):
  function: Callable

  @nn.compact
  def __call__(self, x):
    return self.function(nn.Dense(1)(x)[..., 0])


def cells_of(*models):
  protocol = Online(num_test=50, max_samples=640)

  def build(model, length):
    task = QSTR(length=length, token_dim=2)
    return protocol.trial(task, task, models[model])

  return grid(build, {"model": range(len(models)), "length": [3]})


def begin(path, cells, probe=None, settings=None):
  with RunDirectory(path) as directory:
    begun(directory, settings or {}, cells, probe=probe)
  return json.loads((path / "config.json").read_text())


def refusal(*args, **options):
  with pytest.raises(InvalidSetting) as caught:
    begin(*args, **options)
  return caught.value


def test_a_directory_is_of_one_code(from_file, tmp_path):
  old, new = (EDITS["private method"].replace("K", k) for k in ("1.0", "5.0"))
  path = tmp_path / "run"
  config = begin(path, cells_of(from_file(old).M()))
  assert config["code"]["scheme"] == sources.SCHEME
  error = refusal(path, cells_of(from_file(new).M()))
  assert error.setting == "output_dir"
  assert error.takes.endswith("it was begun with another own_mixers:M._f")
  begin(path, cells_of(from_file(f"# A comment.\n{old}").M()))


def test_fewer_closures_of_one_name_go_on(from_file, tmp_path):
  one, two = map(from_file(MAKE).make, (1.0, 2.0))
  both, alone = (
    cells_of(*(Applied(own, name=name) for own, name in own))
    for own in ([(one, "a"), (two, "b")], [(one, "a")])
  )
  begin(tmp_path / "run", both)
  begin(tmp_path / "run", alone)
  other = cells_of(Applied(two, name="a"))
  assert "model=a" in refusal(tmp_path / "run", other).takes


def test_a_model_that_is_left_out_is_still_known(from_file, tmp_path):
  path = tmp_path / "run"
  old, new = (EDITS["call"].replace("K", k) for k in ("1.0", "5.0"))
  begin(path, cells_of(from_file(old).M(), sepfx.models.FeedForward((3,))))
  begin(path, cells_of(sepfx.models.FeedForward((3,))))
  assert "own_mixers:M.__call__" in refusal(path, cells_of(from_file(new).M())).takes


def test_an_edited_probe_is_refused(from_file, tmp_path):
  source = "def probe(trial, params, world, key): return {'own': K}"
  path = tmp_path / "run"
  cells = cells_of(sepfx.models.FeedForward((3,)))
  for k in ("1.0", "5.0"):
    probe = sepfx.probes.combined(
      from_file(source.replace("K", k)).probe, [cell.trial for cell in cells]
    )
    if k == "1.0":
      begin(path, cells, probe)
    else:
      assert "own_mixers:probe" in refusal(path, cells, probe).takes


def test_other_probes_may_be_asked_for_later(from_file, tmp_path):
  """In any order; each must be what it was."""
  source = "def {0}(trial, params, world, key): return {{'{0}': {1}}}\n"
  path = tmp_path / "run"
  cells = cells_of(sepfx.models.FeedForward((3,)))
  trials = [cell.trial for cell in cells]
  module = from_file(source.format("a", 1.0) + source.format("b", 1.0))
  for chosen in ([module.a], [module.b, module.a], ["norms", module.b], []):
    begin(path, cells, sepfx.probes.combined(chosen, trials))
  edited = from_file(source.format("a", 5.0) + source.format("b", 1.0))
  begin(path, cells, sepfx.probes.combined([edited.b], trials))
  probe = sepfx.probes.combined([edited.b, edited.a], trials)
  assert refusal(path, cells, probe).takes.endswith("with another own_mixers:a")


def test_tasks_protocols_and_optimizers_count_too(from_file):
  source = """
import optax
from sepfx.tasks import QSTR
from sepfx.training import Online

@dataclasses.dataclass(frozen=True)
class Task(QSTR):
  def encode(self, planted, sample): return K * super().encode(planted, sample)

@dataclasses.dataclass(frozen=True)
class Protocol(Online):
  def trial(self, *args):
    return super().trial(*args)
  @property
  def budget(self): return int(K * 640)

def rate(step): return K / (1 + step)
"""
  found = []
  for k in ("1.0", "5.0"):
    module = from_file(source.replace("K", k))
    values = (module.Task(), module.Protocol(), optax.adam(module.rate))
    found.append([code_of(value) for value in values])
  changed = [sources.changes(*both).changed for both in zip(*found, strict=True)]
  names = ("Task.encode", "Protocol.budget", "rate")
  assert changed == [[f"own_mixers:{name}"] for name in names]


def test_a_factory_in_the_settings_counts(from_file, tmp_path):
  source = "def make(width=3): return nn.Dense(width + K)"
  path, cells = tmp_path / "run", cells_of(sepfx.models.FeedForward((3,)))
  settings = {"models": {"own": "own_mixers:make:width=4"}}
  from_file(source.replace("K", "1"))
  begin(path, cells, settings=settings)
  from_file(source.replace("K", "5"))
  assert "own_mixers:make" in refusal(path, cells, settings=settings).takes


def test_a_directory_without_digests_goes_on_with_a_warning(from_file, tmp_path):
  path, cells = tmp_path / "run", cells_of(from_file(PLAIN).M())
  config = begin(path, cells)
  for code in (None, {**config["code"], "scheme": sources.SCHEME + 1}):
    stored = {**config, "code": code}
    if code is None:
      del stored["code"]
    (path / "config.json").write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match=r"own_mixers:M, own_mixers:M\.__call__"):
      begin(path, cells)
  library = tmp_path / "library"
  config = begin(library, cells_of(sepfx.models.FeedForward((3,))))
  del config["code"]
  (library / "config.json").write_text(json.dumps(config))
  begin(library, cells_of(sepfx.models.FeedForward((3,))))  # nothing to be told apart


def test_a_package_of_another_version_warns(from_file, tmp_path, monkeypatch):
  path, cells = tmp_path / "run", cells_of(from_file(PLAIN).M())
  for version in ("1.0", "2.0"):
    monkeypatch.setattr(origins, "versions", lambda _, own=version: {"mixers": own})
    if version == "1.0":
      begin(path, cells)
    else:
      with pytest.warns(UserWarning, match=r"mixers 1\.0 \(now 2\.0\)"):
        begin(path, cells)


def test_other_pythons_warn(from_file, tmp_path):
  path, cells = tmp_path / "run", cells_of(from_cell(PLAIN)())
  config = begin(path, cells)
  text = json.dumps(config["code"])
  assert syntax.COMPILED in text
  config["code"] = json.loads(text.replace(syntax.COMPILED, "@3.10"))
  (path / "config.json").write_text(json.dumps(config))
  with pytest.warns(UserWarning, match="another Python.* task=qstr/model=M/length=3"):
    begin(path, cells)


def test_a_config_with_code_of_another_form_is_refused(tmp_path):
  path, cells = tmp_path / "run", cells_of(sepfx.models.FeedForward((3,)))
  config = begin(path, cells)
  for code in ([], {"scheme": "1"}, {"scheme": 1, "wholes": {"a": 3}, "packages": {}}):
    (path / "config.json").write_text(json.dumps({**config, "code": code}))
    assert "code: of another form" in refusal(path, cells).takes


@pytest.mark.slow
def test_through_measure(from_file, tmp_path):
  old, new = (EDITS["constant"].replace("K", k) for k in ("1.0", "5.0"))
  protocol = Online(thresholds=(0.9,), num_test=50, max_samples=640)
  task, options = (
    QSTR(length=3, token_dim=2),
    {"directory": tmp_path / "run", "progress": False},
  )
  sepfx.measure(task, from_file(old).M(), 3, protocol, num_trials=1, **options)
  with pytest.raises(InvalidSetting, match=r"own_mixers:M\.C"):
    sepfx.measure(task, from_file(new).M(), 3, protocol, num_trials=2, **options)
  from_file(new)
  named = {**options, "directory": tmp_path / "named"}
  from_file(old)
  sepfx.measure(task, "own_mixers:M", 3, protocol, num_trials=1, **named)
  from_file(new)
  with pytest.raises(InvalidSetting, match=r"own_mixers:M\.C"):
    sepfx.measure(task, "own_mixers:M", 3, protocol, num_trials=2, **named)


def test_the_same_in_another_process(from_file, tmp_path):
  source = "\n".join(EDITS["table of functions"].replace("K", "1.0").splitlines())
  here = code_of(from_file(source).M())
  code = (
    "import json, own_mixers; from sepfx.provenance import sources\n"
    "print(json.dumps(sources.code_of([('it', own_mixers.M())])))"
  )
  root = pathlib.Path(__file__).parents[1]
  environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{root}", "PYTHONHASHSEED": "7"}
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, env=environment
  )
  assert json.loads(done.stdout) == json.loads(json.dumps(here)), done.stderr


def test_arrays_in_closures_have_their_content():
  one, other = ((lambda y, c=c: y * c) for c in (jnp.ones(3), jnp.zeros(3)))
  assert sources.changes(code_of(one), code_of(other)).changed
