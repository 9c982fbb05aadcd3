"""Training runs: presets, the loop, checkpoints, evaluation, pictures.

`onegraph ntm` is the front of it. Its modules need the extra: ``pip install '.[ntm]'``.
"""
