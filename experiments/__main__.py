"""The command `sepfx`."""

from sepfx.commands import catalogue


def main() -> None:
  """Runs one of the studies of this package, or of another."""
  catalogue.main(__package__)


if __name__ == "__main__":
  main()
