"""What the import hook of jaxtyping checks: shapes and dtypes of arrays, alone."""

import typing

import jaxtyping
from beartype import beartype


def _arrays_in(annotation):
  """The arrays that an annotation is made of."""
  if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
    yield annotation
  for part in typing.get_args(annotation):
    yield from _arrays_in(part)


def checked(function):
  """A function that checks its arrays.

  Other wrong arguments are refused by the library in its own words, which tests want to
  see.
  """
  own = {}
  for name, annotation in function.__annotations__.items():
    arrays = list(_arrays_in(annotation))
    for array in arrays:
      array.array_type = typing.Any  # NumPy's do where JAX's are expected
    if arrays:
      own[name] = annotation
  function.__annotations__ = own
  return beartype(function)
