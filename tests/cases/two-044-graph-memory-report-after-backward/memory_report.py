"""How much a graph keeps alive."""
import torch


def tensors_of(fn):
    for name in dir(fn):
        if name.startswith("_saved_"):
            value = getattr(fn, name)
            if isinstance(value, torch.Tensor):
                yield value


def saved_bytes(root):
    todo, seen, total = [root], set(), 0
    while todo:
        fn = todo.pop()
        if fn is None or fn in seen:
            continue
        seen.add(fn)
        total += sum(t.nbytes for t in tensors_of(fn))
        todo.extend(parent for parent, _ in fn.next_functions)
    return total
