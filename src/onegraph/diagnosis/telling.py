"""What the texts of one finding draw on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onegraph.diagnosis.naming import Naming
from onegraph.diagnosis.story import Story
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import Binding, EngineCall, Frame, Shared, Site


@dataclass(frozen=True, slots=True)
class Telling:
    """What the texts of one finding draw on."""

    story: Story
    cause: str
    name: str | None
    naming: Naming | None
    sites: dict[str, tuple[Site, ...]]
    shared: Shared
    syntax: Syntax
    # The live names of everything that crosses over, the one of `name` first.
    carried: tuple[Binding, ...] = ()
    # Whether those names still hold the very tensors.
    held: bool = False

    @property
    def stepped(self) -> frozenset[str] | None:
        """The leaves written in place between the two calls; None when nothing was."""
        failed, freed = self.story.failed, self.story.freed
        if failed is None or freed is None:
            return None
        between = [s for s in self.story.trace.stepped if freed.ordinal <= s.epoch < failed.ordinal]
        return frozenset(n for s in between for n in s.names) if between else None

    def loss(self, role: str) -> str | None:
        """The tensor a role's call starts from, as written before ``.backward``."""
        match = re.fullmatch(r"([\w.\[\]\"']+)\.backward\(.*\)", self.code(role))
        if match is None or match.group(1).endswith("autograd"):
            return None  # torch.autograd.backward(loss): a module, not a loss
        return match.group(1)

    @property
    def it(self) -> str:
        """The tensor, by its name if it has one."""
        return f"`{self.name}`" if self.name else "an earlier result"

    def frames(self, role: str) -> tuple[Frame, ...]:
        """The call chain at a role's best site."""
        found = self.sites.get(role)
        return found[0].frames if found else ()

    def line(self, role: str) -> str | None:
        """``file:line`` of a role's best site."""
        found = self.sites.get(role)
        return f"{found[0].file}:{found[0].line}" if found else None

    def code(self, role: str) -> str:
        """The first line of the expression at a role's best site."""
        found = self.sites.get(role)
        return found[0].code.splitlines()[0] if found and found[0].code else ""

    def statement(self, role: str) -> str:
        """The whole statement around a role's best site, on one line."""
        found = self.sites.get(role)
        if not found or not found[0].frames:
            return ""
        statement = self.syntax.statement(found[0].frames[0])
        return statement.text if statement else ""

    @property
    def loops(self) -> bool:
        """Whether the failing call stands in a loop, or its line has run before."""
        return self.same_line or any(self.syntax.loops(f) for f in self.frames("failed"))

    @property
    def same_line(self) -> bool:
        """Whether the freeing and the failing call are two runs of one line."""
        failed, freed = self.story.failed, self.story.freed
        return bool(failed and freed and failed.site == freed.site and failed.site is not None)

    def step(self, call: EngineCall | None) -> str:
        """How to speak of an engine call: its loop turn, or its place among all of them."""
        if call is None:
            return "an earlier call"
        if self.same_line and call.parent is None:
            return f"{'turn' if self.cause == 'sliced-or-blocked' else 'step'} {call.turn}"
        return f"{'grad' if call.kind == 'grad' else 'backward'} call {call.step}"
