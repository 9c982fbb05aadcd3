"""Trains for many steps, bare and then recorded, and prints what memory either took.

    python -m tests.memory.growth KIND STEPS

A graph built and freed before the first recorded step is used again after the last, which fails.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

import onegraph
from onegraph.watch import Session, Use

WARM_UP = 200


def regular() -> Callable[[], None]:
    """The same step again and again."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        loss = net(torch.randn(2, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def irregular() -> Callable[[], None]:
    """Steps of varying length, in which nearly every one takes turns of its own."""
    cell = nn.GRUCell(4, 4)
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)

    def step() -> None:
        h = torch.zeros(1, 4)
        for _ in range(random.randint(1, 8)):
            h = cell(torch.randn(1, 4), h)
            chance = random.random()
            if chance < 0.3:
                h = h.tanh()
            elif chance < 0.5:
                h = h * 2
            elif chance < 0.8:
                h = h.sin() + 1
        loss = h.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def adversarial() -> Callable[[], None]:
    """Several backward calls in a step, as a GAN has them."""
    critic, maker = nn.Linear(4, 1), nn.Linear(4, 4)
    critics = torch.optim.Adam(critic.parameters())
    makers = torch.optim.Adam(maker.parameters())

    def step() -> None:
        real = torch.randn(2, 4)
        fake = maker(torch.randn(2, 4))
        critics.zero_grad()
        critic(real).mean().backward()
        critic(fake.detach()).mean().neg().backward()
        critics.step()
        makers.zero_grad()
        critic(fake).mean().backward()
        makers.step()

    return step


def attacks() -> Callable[[], None]:
    """New leaves in every step, each written to in place: there is no end of tensors to note."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    kept: list[torch.Tensor] = []

    def step() -> None:
        x = torch.randn(2, 4, requires_grad=True)
        (gradient,) = torch.autograd.grad(net(x).sum(), x)
        with torch.no_grad():
            x += gradient
        kept.insert(0, x)
        # Some live long, so that ever new addresses are used.
        del kept[random.randint(0, 2000) :]

    return step


def checkpointed() -> Callable[[], None]:
    """Parts are computed again in backward, and a custom Function is applied."""
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        x = torch.randn(2, 4, requires_grad=True)
        for reentrant in (False, True):
            x = checkpoint(net, x, use_reentrant=reentrant)
        optimizer.zero_grad()
        x.sum().backward()
        optimizer.step()

    return step


def threaded() -> Callable[[], None]:
    """A new thread in every step, as pools and replicas have them."""
    train = regular()

    def step() -> None:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()

    return step


KINDS = {f.__name__: f for f in (regular, irregular, adversarial, attacks, checkpointed, threaded)}


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def size_of(thing: Any) -> int:
    """Bytes of an object and all that it alone can be reached through; no code, no types."""
    seen: set[int] = set()
    stack, total = [thing], 0
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, (type, ModuleType, FunctionType, torch.Tensor)):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        if isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack.extend(item)
        elif type(item).__module__.startswith("onegraph."):
            stack.append(getattr(item, "__dict__", None))
            slots = [s for kind in type(item).__mro__ for s in getattr(kind, "__slots__", ())]
            stack.extend(getattr(item, slot, None) for slot in slots if slot != "mode")
    return total


def train(kind: str, steps: int) -> dict[str, Any]:
    """Train so many steps bare and so many recorded, then fail and explain it.

    Returns:
        the bytes by which the process grew in either phase after a warm-up, and the recorder's
        own structures in the second; the expressions the report names, and the seconds it took.
    """
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    step = KINDS[kind]()
    result: dict[str, Any] = {"bare": _grown(step, steps)}
    use = Use(lines=True)
    use.begin()
    scale = torch.ones(3, requires_grad=True)
    prior = scale.exp()
    prior.sum().backward()
    for _ in range(WARM_UP):
        step()
    own = _own()
    result["recorded"] = _grown(step, steps)
    result["own"] = _own() - own
    result.update(_explained(prior))
    use.end()
    return result


def _grown(step: Callable[[], None], steps: int) -> int:
    for _ in range(WARM_UP):
        step()
    gc.collect()
    before = resident()
    for _ in range(steps):
        step()
    gc.collect()
    return resident() - before


def _own() -> int:
    return size_of(Session.current.recorder)


def _explained(prior: torch.Tensor) -> dict[str, Any]:
    begun = time.perf_counter()
    try:
        (prior * 2).sum().backward()
    except RuntimeError as error:
        report = onegraph.diagnose(error)
    seconds = time.perf_counter() - begun
    finding = report.findings[0]
    return {
        "seconds": seconds,
        "sites": {role: site[0].code for role, site in finding.sites.items()},
    }


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], int(sys.argv[2]))))
