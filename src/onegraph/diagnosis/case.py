"""Everything a cause is decided from, and what lines tell of a program's loop turns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onegraph.diagnosis.naming import Naming
from onegraph.diagnosis.story import Bridge, Story
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import Frame, Graph


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a cause is decided from."""

    story: Story
    syntax: Syntax
    time_bridge: Bridge | None
    share_bridge: Bridge | None
    naming: Naming | None

    @property
    def graph(self) -> Graph:
        """The failing graph."""
        return self.story.graph

    def one_line(self, bridge: Bridge) -> bool:
        """Whether both ends of a bridge were made by one line, so that it tells nothing."""
        one, other = self.frames(bridge.old), self.frames(bridge.new)
        places = [(f[0].file, f[0].line) for f in (one, other) if f]
        return len(places) == 2 and places[0] == places[1]

    def frames(self, node: int) -> tuple[Frame, ...]:
        """The call chain of the expression that made a node."""
        site = self.graph.site[node]
        return self.story.trace.sites[site].frames if site >= 0 else ()


def rebuilt(case: Case, bridge: Bridge) -> bool:
    """Whether what crosses the bridge is made anew in every turn of the failing line's loop.

    The line that made it may also serve other inputs. A variable that still holds the very
    tensor, and that no loop around the failing line stores into, was not made anew.
    """
    if not case.story.rebuilt(bridge.old):
        return False
    naming, frames = case.naming, failing_frames(case.story)
    binding = naming.binding if naming is not None and naming.exact else None
    if binding is None or binding.depth is None or binding.depth >= len(frames):
        return True
    variable = re.match(r"\w+", binding.name)
    if variable is None or "." in binding.name:
        return True
    return case.syntax.stored_in_loop(frames[binding.depth], variable.group()) is not False


def same_turn(case: Case, node: int) -> bool:
    """Whether a node was made in the same loop turn as the failing call, as far as lines tell."""
    story = case.story
    if story.crossed(node) is not None:
        return False
    pair = divergence(case.frames(node), failing_frames(story))
    if pair is None:
        return True
    made, failing = pair
    if made.line <= failing.line:
        return True
    # Made further down than the failing line, yet before it ran: only a loop goes back up.
    return not set(case.syntax.loops(made)) & set(case.syntax.loops(failing))


def outside_loop(case: Case, node: int) -> bool:
    """Whether a node was made outside a loop that the failing call stands in."""
    pair = divergence(case.frames(node), failing_frames(case.story))
    if pair is None:
        return False
    made, failing = pair
    return bool(set(case.syntax.loops(failing)) - set(case.syntax.loops(made)))


def failing_frames(story: Story) -> tuple[Frame, ...]:
    """The call chain of the failing call."""
    failure = story.trace.failure
    if failure is None or failure.site is None:
        return ()
    return story.trace.sites[failure.site].frames


def divergence(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, Frame] | None:
    """Where two call chains that start alike part ways: the frames of the last shared function."""
    last = None
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        last = (a, b)
        if a.line != b.line:
            break
    return last
