"""Which of autograd's errors a message is: the symptom's name in the public contract."""

from __future__ import annotations

SECOND, CHANGED = "second-backward", "inplace-modified"
LEAF, VIEW, NO_GRAD = "leaf-inplace", "view-inplace", "no-grad"
UNUSED, NONLEAF_OPTIMIZER, NONLEAF_GRAD = "unused-input", "nonleaf-optimizer", "nonleaf-grad"
READY_TWICE, DONATED = "ddp-ready-twice", "donated-buffers"

# Words of torch's messages, with the first symptom that fits.
_MARKS = (
    ("backward through the graph a second time", SECOND),
    ("modified by an inplace operation", CHANGED),
    ("leaf Variable that requires grad is being used in an in-place operation", LEAF),
    ("is a view and is being modified inplace", VIEW),
    ("is a view and its base or another view of its base has been modified inplace", VIEW),
    ("view was created in no_grad mode and is being modified inplace", VIEW),
    ("does not require grad and does not have a grad_fn", NO_GRAD),
    ("appears to not have been used in the graph", UNUSED),
    ("can't optimize a non-leaf Tensor", NONLEAF_OPTIMIZER),
    ("to mark a variable ready only once", READY_TWICE),
    ("non-empty donated buffers", DONATED),
)
# An engine call raises these; the others are raised by the operation that is refused.
OF_ENGINE = frozenset({SECOND, CHANGED, NO_GRAD, UNUSED, READY_TWICE, DONATED})


def symptom_of(message: str) -> str | None:
    """The symptom that an exception's message tells of, None where it is no error of autograd.

    Reading ``.grad`` of a tensor that keeps none gives None, on which the program then fails in
    words of its own: that is `NONLEAF_GRAD` only where such a read was seen.
    """
    for mark, symptom in _MARKS:
        if mark in message:
            return symptom
    return NONLEAF_GRAD if "NoneType" in message else None
