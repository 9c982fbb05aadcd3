"""The version of onegraph, kept where the build and the package can both read it."""

__version__ = "0.1.0"
