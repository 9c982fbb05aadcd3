"""What every report says, word for word. The messages are the product.

The reports are drawn from saved traces, without torch; `python -m tests.messages.regenerate` makes
those again. A change of wording is made here, where it is read as a whole.
"""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from onegraph.compose import compose
from onegraph.render import plain, terminal
from onegraph.render.layout import MOST_LINES
from onegraph.trace import Process, codec

TRACES = Path(__file__).parent / "traces"

EXPECTED = {
    "accumulated-graph": """\
warning: the graph that `total_loss` keeps alive grows with every step (7
  nodes a step) [accumulated-graph]
  train.py:15   total_loss += loss
                ^^^^^^^^^^^^^^^^^^ `total_loss` holds the history of every step
why: a tensor with history keeps alive all that it was computed from.
fix: Keep the number: loss.item(), or loss.detach() to stay on the device
     (the value is for reading; no backward needs its history)
more: onegraph explain accumulated-graph
""",
    "buffer-update": """\
error: `codebook.codes` was changed after the forward pass that still needs it
  [buffer-update]
  train.py:13   self.codes[nearest] = 0.9 * self.codes[nearest] + 0.1 * z.detac…
                ^^^^^^^^^^^^^^^^^^^
      wrote to `codebook.codes` in place (version 0 → 1)
  train.py:11   distance = torch.cdist(z, self.codes)
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^
      had saved `codebook.codes` for its backward
  train.py:26   loss.backward()   needs the value from before that write
                ^^^^^^^^^^^^^^^
why: the forward pass saved `codebook.codes` to compute gradients with; the
     update then changed the buffer itself, before the backward that needs its
     old values.
fix: Write to `codebook.codes` after the backward that needs its old value
     (the graph is used up by then)
or:  Use a copy in the forward pass: self.codes.clone()
     (the graph then saves the copy, which no update touches)
more: onegraph explain buffer-update
""",
    "built-outside-loop": """\
error: this backward needs a graph that an earlier backward already freed
  [built-outside-loop]
  train.py:14   loss.backward()   step 2: reaches 1 node that step 1 freed
                ^^^^^^^^^^^^^^^
  train.py:12   loss = nn.functional.mse_loss(layer(graph @ x), y)
                                                    ^^^^^
      takes `graph` in, with its history
  train.py:9   graph = mixing.softmax(dim=1)     `graph` was made here
                       ^^^^^^^^^^^^^^^^^^^^^
  train.py:14   loss.backward()                   step 1 freed those nodes here
                ^^^^^^^^^^^^^^^
behind it: mixing
why: backward frees the graph it walks, and the part that made `graph` is not
     built again in the next turn.
fix: Compute `graph` inside the loop, once for each backward (train.py:9)
     (every backward then has a graph of its own, made with the current weights)
or:  Detach `graph` if nothing behind it is to be trained:
       loss = nn.functional.mse_loss(layer(graph.detach() @ x), y)
     (what made it gets no gradient any more)
not a fix: retain_graph=True; it would train on values from before the first
           optimizer step.
more: onegraph explain built-outside-loop
""",
    "cached-on-module": """\
error: this backward needs a graph that an earlier backward already freed
  [cached-on-module]
  train.py:24   loss.backward()   step 2: reaches 3 nodes that step 1 freed
                ^^^^^^^^^^^^^^^
  train.py:14   return self.trunk(x) @ self.classes.T
                                       ^^^^^^^^^^^^
      takes `self.classes` in, with its history
  train.py:11   self.classes = self.encoder(self.names)
                               ^^^^^^^^^^^^^^^^^^^^^^^^
      `self.classes` was made here
  train.py:24   loss.backward()                   step 1 freed those nodes here
                ^^^^^^^^^^^^^^^
behind it: encoder.0.bias, encoder.0.weight, model.names
why: backward frees the graph it walks, and `self.classes` is not computed
     again: the stored tensor still points to the freed part.
fix: Compute `self.classes` where it is used, in forward, instead of keeping it
     (every forward pass builds its own graph, with the current weights)
or:  Store `self.classes` detached if nothing behind it is to be trained:
       return self.trunk(x) @ self.classes.detach().T
     (what made it gets no gradient any more)
not a fix: retain_graph=True; the stored value would stay that of the first step
           while the weights move on.
more: onegraph explain cached-on-module
""",
    "carried-state": """\
error: this backward needs a graph that an earlier backward already freed
  [carried-state]
  train.py:16   loss.backward()   step 2: reaches 16 nodes made in step 1
                ^^^^^^^^^^^^^^^
  train.py:13   h = cell(x, h)
                            ^ the bridge: `h` still carries the graph of step 1
  train.py:16   loss.backward()                   step 1 freed those nodes here
                ^^^^^^^^^^^^^^^
behind it: cell.bias_hh, cell.bias_ih, cell.weight_hh, cell.weight_ih
why: `h` is used across steps with its history attached, so each loss reaches
     all earlier steps. A value may go on to the next step; its history may not.
fix: Detach `h` when the step ends, after its backward (train.py:16):
       h = h.detach()
     (gradients then stop at the step's start (truncated backpropagation;
     onegraph.lifetime.detach cuts a whole state); a parameter that only the
     first step used gets no gradient from later ones)
or:  Start every step from a fresh `h` when the steps are independent
     (no step depends on another, so no gradient is lost)
not a fix: retain_graph=True makes every step longer and slower than the last.
more: onegraph explain carried-state
""",
    "chinese": """\
error: this backward needs a graph that an earlier backward already freed
  [carried-state]
  train.py:11   损失.backward()  # 反向传播
                ^^^^^^^^^^^^^^^ step 2: reaches 16 nodes made in step 1
  train.py:9   隐藏状态 = 单元(torch.randn(2, 3), 隐藏状态)  # 把上一步的隐藏状…
                                                  ^^^^^^^^
      the bridge: `隐藏状态` still carries the graph of step 1
  train.py:11   损失.backward()  # 反向传播       step 1 freed those nodes here
                ^^^^^^^^^^^^^^^
behind it: 单元.bias_hh, 单元.bias_ih, 单元.weight_hh, 单元.weight_ih
why: `隐藏状态` is used across steps with its history attached, so each loss
     reaches all earlier steps. A value may go on to the next step; its history
     may not.
fix: Detach `隐藏状态` when the step ends, after its backward (train.py:11):
       隐藏状态 = 隐藏状态.detach()
     (gradients then stop at the step's start (truncated backpropagation;
     onegraph.lifetime.detach cuts a whole state); a parameter that only the
     first step used gets no gradient from later ones)
or:  Start every step from a fresh `隐藏状态` when the steps are independent
     (no step depends on another, so no gradient is lost)
not a fix: retain_graph=True makes every step longer and slower than the last.
more: onegraph explain carried-state
""",
    "comparison-cut": """\
error: `loss` cannot be differentiated: nothing it was computed from requires
  a gradient [comparison-cut]
  train.py:11   wrong = (score > 0) != (spam == 1)
                         ^^^^^^^^^
      history ends here: a comparison has no derivative
  train.py:14   loss.backward()                   has nothing to differentiate
                ^^^^^^^^^^^^^^^
why: the gradients of model.0.bias, model.0.weight, model.2.bias and 1 more
     would have to pass train.py:11.
fix: Compute the loss from the scores, and keep the comparison for the metric
     (cross entropy or the like: it falls where the accuracy rises, and has a
     gradient)
or:  Use a soft comparison, such as sigmoid((a - b) / temperature)
     (the loss is another one)
not a fix: loss.requires_grad_(), which only hides it.
more: onegraph explain comparison-cut
""",
    "compile": """\
error: this backward needs a graph that an earlier backward already freed
  [compile]
  train.py:19   item_loss.backward()
                ^^^^^^^^^^^^^^^^^^^^
      backward call 2: reaches 1 node that backward call 1 freed
  train.py:16   item_loss = (items.std(dim=0) - 1).square().mean()
                             ^^^^^ takes `items` in, with its history
  train.py:14   …s, items = both(*towers, torch.randn(8, 6), torch.randn(8, 9))
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      `items` was made here
  train.py:18   user_loss.backward()   backward call 1 freed those nodes here
                ^^^^^^^^^^^^^^^^^^^^
behind it: towers.0.bias, towers.0.weight, towers.1.bias, towers.1.weight
why: a compiled region is one node of the graph with all its saved tensors, so
     one backward through any of its outputs frees the others' as well.
fix: Add the losses and call backward once:
       (user_loss + item_loss).backward()
     (the sum's gradient is the sum of the gradients)
or:  Leave the shared part out of the compiled region
     (eager code frees only the nodes that a backward walks)
more: onegraph explain compile
""",
    "data-or-numpy-cut": """\
error: `loss` cannot be differentiated: nothing it was computed from requires
  a gradient [data-or-numpy-cut]
  train.py:16   loss = (importance * torch.tensor(losses)).sum()
                                     ^^^^^^^^^^^^^^^^^^^^
      the value is taken out here, without its history
  train.py:18   loss.backward()                   has nothing to differentiate
                ^^^^^^^^^^^^^^^
why: the gradients of heads.0.bias, heads.0.weight, heads.1.bias and 5 more
     would have to pass train.py:16.
fix: Compute with the tensor itself: torch.stack keeps history
     (the gradient then reaches what lies behind)
not a fix: loss.requires_grad_(), which only hides it.
more: onegraph explain data-or-numpy-cut
""",
    "derived-tensor-optimised": """\
error: `shift` is computed, so an optimizer cannot train it
  [derived-tensor-optimised]
  train.py:10   optimizer = torch.optim.Adam([turn, shift], lr=0.1)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      gives the optimizer a computed tensor
  train.py:9   shift = 0.01 * torch.randn(3, requires_grad=True)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      it is computed here
why: an optimizer changes tensors in place between steps. A computed tensor
     follows from its leaves: those are what there is to train.
fix: Give the optimizer the leaf, and compute the tensor from it in every step
     (the gradient then passes through the computation to the leaf)
or:  Make the computed value a leaf: shift = shift.detach().requires_grad_()
     (what it was computed from is then no longer trained)
more: onegraph explain derived-tensor-optimised
""",
    "detach-cut": """\
error: probably: `loss` cannot be differentiated: nothing it was computed from
  requires a gradient [detach-cut]
  train.py:11   forecast = model(past).detach()   detach() ends the history here
                           ^^^^^^^^^^^^^^^^^^^^
  train.py:15   loss.backward()                   has nothing to differentiate
                ^^^^^^^^^^^^^^^
why: the gradients of model.0.bias, model.0.weight, model.2.bias and 1 more
     would have to pass train.py:11.
fix: Remove the detach() where the gradient is to pass
     (the gradient then reaches what lies behind)
not a fix: loss.requires_grad_(), which only hides it.
more: onegraph explain detach-cut
""",
    "grad-then-backward": """\
error: this backward needs a graph that an earlier backward already freed
  [grad-then-backward]
  train.py:14   (score + 10 * penalty).backward()
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      backward call 2: reaches 6 nodes that grad call 1 freed
  train.py:14   (score + 10 * penalty).backward()
                 ^^^^^ takes `score` in, with its history
  train.py:10   score = critic(x).mean()          `score` was made here
                        ^^^^^^^^^^^^^^^^
  train.py:11   (slope,) = torch.autograd.grad(score, x)
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      grad call 1 freed those nodes here
behind it: critic.0.bias, critic.0.weight, critic.2.bias and 2 more
why: autograd.grad frees the graph it walks, just as backward does, unless it is
     told to keep it or to build a graph of the derivative.
fix: Pass create_graph=True to autograd.grad when its result is part of the
     loss:    torch.autograd.grad(score, x, create_graph=True)
     (the derivative term then trains too, which it did not before; the graph
     stays until the loss is back-propagated)
or:  Pass retain_graph=True to autograd.grad when its result is only used as a
     number:    torch.autograd.grad(score, x, retain_graph=True)
     (several true derivatives of one graph: it stays in memory until backward)
more: onegraph explain grad-then-backward
""",
    "inplace-activation": """\
error: `h` was changed after the forward pass that still needs it
  [inplace-activation]
  train.py:15   return x + gate * self.act(h)
                                  ^^^^^^^^^^^
      wrote to `h` in place (version 0 → 1)
  train.py:14   gate = torch.sigmoid(self.gate(h))
                                     ^^^^^^^^^^^^ had saved `h` for its backward
  train.py:25   loss.backward()   needs the value from before that write
                ^^^^^^^^^^^^^^^
why: the forward pass saved `h` to compute gradients with; inplace=True then
     wrote the activation over it.
fix: Use the activation without inplace=True
     (it then makes a new tensor, at the cost of its memory)
more: onegraph explain inplace-activation
""",
    "inplace-op": """\
error: `gain` was changed after the forward pass that still needs it
  [inplace-op]
  train.py:12   gain += 1   wrote to `gain` in place (version 0 → 1)
                ^^^^^^^^^
  train.py:11   gain = torch.sigmoid(equaliser(sound))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      had saved `gain` for its backward
  train.py:15   loss.backward()   needs the value from before that write
                ^^^^^^^^^^^^^^^
why: the forward pass saved `gain` to compute gradients with; the write then
     changed that very memory, and a gradient from the new values would be
     wrong.
fix: Make a new tensor instead of writing over `gain`:    gain = gain + 1
     (the old value stays for backward, at the cost of its memory)
more: onegraph explain inplace-op
""",
    "needless-retain": """\
warning: retain_graph=True keeps a graph that nothing uses     [needless-retain]
  train.py:12   loss.backward(retain_graph=True)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      keeps 6 nodes in each of 8 turns
why: no later call walked what it kept or made, in 2 turns that were watched of
     8; until the graph goes, its saved tensors stay in memory.
fix: Leave retain_graph=True out
     (the gradients are the same, and backward frees the graph as it goes)
more: onegraph explain needless-retain
""",
    "no-grad-inplace-write": """\
error: `items` was changed after the forward pass that still needs it
  [no-grad-inplace-write]
  train.py:15   items.clamp_(min=0)   wrote to `items` in place (version 0 → 1)
                ^^^^^^^^^^^^^^^^^^^
  train.py:11   loss = nn.functional.mse_loss(users @ items, ratings)
                                              ^^^^^^^^^^^^^
      had saved `items` for its backward
  train.py:16   loss.backward()   needs the value from before that write
                ^^^^^^^^^^^^^^^
why: the forward pass saved `items` to compute gradients with; no_grad and
     detach keep a write out of the graph, but it still changes the memory that
     the graph had saved.
fix: Write to `items` after the backward that needs its old value
     (the graph is used up by then)
or:  Compute with a copy: items.clone() in the forward pass
     (the graph then saves the copy, which the write does not touch)
not a fix: .data instead of no_grad: it hides the write, and the gradient is
           wrong.
more: onegraph explain no-grad-inplace-write
""",
    "no-grad-scope": """\
error: probably: `loss` cannot be differentiated: nothing it was computed from
  requires a gradient [no-grad-scope]
  train.py:6   torch.set_grad_enabled(False)     gradients are switched off here
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  train.py:17   loss.backward()                   has nothing to differentiate
                ^^^^^^^^^^^^^^^
why: train.py:15 computed it while gradients were off.
fix: Use `with torch.no_grad():` around what needs no gradient: it ends by
     itself
     (set_grad_enabled(False) as a call stays in force)
not a fix: loss.requires_grad_(), which only hides it.
more: onegraph explain no-grad-scope
""",
    "non-differentiable-op": """\
error: `loss` cannot be differentiated: nothing it was computed from requires
  a gradient [non-differentiable-op]
  train.py:11   chosen = scores.argmax(dim=1)
                         ^^^^^^^^^^^^^^^^^^^^
      history ends here: argmax has no derivative
  train.py:14   loss.backward()                   has nothing to differentiate
                ^^^^^^^^^^^^^^^
why: the gradients of model.0.bias, model.0.weight, model.2.bias and 1 more
     would have to pass train.py:11.
fix: Compute the loss from the scores before argmax
     (the loss is another one)
not a fix: loss.requires_grad_(), which only hides it.
more: onegraph explain non-differentiable-op
""",
    "nonleaf-grad-read": """\
error: `image` has no .grad: it is computed, and only leaves keep theirs
  [nonleaf-grad-read]
  train.py:13   attack = image.detach() + 0.1 * image.grad.sign()
                                                ^^^^^^^^^^^^^^^
      the gradient of `image` is None
  train.py:11   image = pixels.requires_grad_() / 0.3 - 1.5
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      computes `image`: it is no leaf
why: backward passes the gradient of a computed tensor on and drops it, unless
     it was asked to retain it.
fix: Make it a leaf before its use: image = image.detach().requires_grad_()
     (gradients then stop there, as an iteration over inputs wants)
or:  Call retain_grad() on `image` before backward
     (its gradient is then kept beside those of the leaves)
more: onegraph explain nonleaf-grad-read
""",
    "optimizer-step-between": """\
error: `encoder.2.weight` was changed after the forward pass that still needs
  it [optimizer-step-between]
  train.py:19   optimizer.step()   wrote 6 tensors in place (version 1 → 2)
                ^^^^^^^^^^^^^^^^
  train.py:14   features = encoder(x)
                           ^^^^^^^^^^
      had saved `encoder.2.weight` for its backward
  train.py:21   label_loss.backward()   needs the value from before that write
                ^^^^^^^^^^^^^^^^^^^^^
  train.py:18   depth_loss.backward(retain_graph=True)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      retain_graph kept the graph alive, not the values
why: the forward pass saved `encoder.2.weight` to compute gradients with; new
     values were then written into the same memory, and a gradient from those
     would be wrong. retain_graph=True kept the graph, so this came to light
     instead of a second backward.
fix: Finish every backward of this forward before the write:
       (depth_loss + label_loss).backward()
     (both losses then use the same weights, and one step follows both)
or:  Run the forward pass again after the write
     (the second loss then uses the new weights; costs a forward pass)
not a fix: retain_graph=True, which keeps the graph but not the old values.
more: onegraph explain optimizer-step-between
""",
    "rebinding-does-nothing": """\
error: probably: `adapted["0.weight"]` is not part of what is differentiated
  [rebinding-does-nothing]
  train.py:13   weight = adapted[name].requires_grad_()
      gives another name to the tensor; the module keeps its own
  train.py:16   slopes = torch.autograd.grad(loss, list(adapted.values()))
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      asks for the gradient of what was not used
why: an assignment to a variable changes what the name means, not what the
     module holds.
fix: Run the module with those tensors: torch.func.functional_call(model,
     params, x)
     (the loss is then computed from them)
more: onegraph explain rebinding-does-nothing
""",
    "reentrant-checkpoint": """\
error: this backward needs a graph that an earlier backward already freed
  [reentrant-checkpoint]
  train.py:27   loss.backward()
                ^^^^^^^^^^^^^^^
      one call, but every checkpoint calls backward inside it
  train.py:16   return torch.tanh(layer(x) * context)
                                             ^^^^^^^
      uses `context` inside the checkpointed function
  train.py:23   context = encoder(torch.randn(4, 6))   `context` was made here
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^
behind it: encoder.0.bias, encoder.0.weight
why: a reentrant checkpoint re-runs its function and calls backward inside
     backward; that inner call runs on into the graph behind `context` and frees
     it, and the next checkpoint meets it again.
fix: Pass `context` to checkpoint(...) as an argument
     (the checkpoint then cuts it off for the inner backward and hands its
     gradient on)
or:  Use the non-reentrant checkpoint:    use_reentrant=False
     (it calls no backward inside backward)
not a fix: retain_graph=True on the outer call: the inner calls free the graph.
more: onegraph explain reentrant-checkpoint
""",
    "running-sum-loss": """\
error: this backward needs a graph that an earlier backward already freed
  [running-sum-loss]
  train.py:13   total.backward()   step 2: reaches 7 nodes that step 1 freed
                ^^^^^^^^^^^^^^^^
  train.py:11   total = total + nn.functional.mse_loss(model(x), y)
                        ^^^^^ `total` takes the earlier losses along
  train.py:13   total.backward()                  step 1 freed those nodes here
                ^^^^^^^^^^^^^^^^
behind it: model.0.bias, model.0.weight, model.2.bias, model.2.weight
why: gradients add up in .grad by themselves, so the sum's earlier terms are
     walked again, through graphs that are gone.
fix: Back-propagate only this step's own loss; gradients add up in .grad
     (the accumulated gradient is that of the sum)
or:  Keep `total` as a number: add loss.item() or loss.detach()
     (the running value is for reading, not for backward)
not a fix: retain_graph=True; it would count the earlier terms again at every
           step.
more: onegraph explain running-sum-loss
""",
    "same-loss-twice": """\
error: this backward needs a graph that an earlier backward already freed
  [same-loss-twice]
  train.py:13   loss.backward()                   the second time
                ^^^^^^^^^^^^^^^
  train.py:10   loss = nn.functional.mse_loss(model(x), y)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `loss` was made here
  train.py:13   loss.backward()                   the first time freed its graph
                ^^^^^^^^^^^^^^^
behind it: model.0.bias, model.0.weight, model.2.bias, model.2.weight
why: one forward pass builds one graph, and one backward frees it. A second
     update needs a second forward pass.
fix: Compute the loss again before the second backward
     (the second update uses the weights as they are by then)
or:  Call backward once if a single update is meant
     (the gradient counts once)
not a fix: retain_graph=True; the second update would use the first one's
           forward values.
more: onegraph explain same-loss-twice
""",
    "saved-tensor-access": """\
error: this reads a saved tensor that a backward has already freed
  [saved-tensor-access]
  train.py:15   saturated = (out.grad_fn._saved_result > 0.9).float().mean()
                             ^^^^^^^^^^^^^^^^^^^^^^^^^
      reads what the node had saved
  train.py:10   out = layer(x).sigmoid()          `out` was made here
                      ^^^^^^^^^^^^^^^^^^
  train.py:13   loss.backward()                   backward freed it here
                ^^^^^^^^^^^^^^^
behind it: layer.bias, layer.weight
why: backward frees what a node had saved as soon as it has used it.
fix: Read the saved tensor before backward
     (it is there until backward has used it)
or:  Keep the value itself, detached, instead of the node
     (x.detach() outlives the graph)
not a fix: retain_graph=True: it keeps every saved tensor to read one.
more: onegraph explain saved-tensor-access
""",
    "several-losses-one-graph": """\
error: this backward needs a graph that an earlier backward already freed
  [several-losses-one-graph]
  train.py:19   label_loss.backward()
                ^^^^^^^^^^^^^^^^^^^^^
      backward call 2: reaches 3 nodes that backward call 1 freed
  train.py:16   label_loss = nn.functional.cross_entropy(label_head(features), …
                                                                    ^^^^^^^^
      takes `features` in, with its history
  train.py:14   features = encoder(x)             `features` was made here
                           ^^^^^^^^^^
  train.py:18   depth_loss.backward()   backward call 1 freed those nodes here
                ^^^^^^^^^^^^^^^^^^^^^
behind it: encoder.0.bias, encoder.0.weight
why: each backward frees all it reaches, so the part that made `features` can be
     walked only once.
fix: Add the losses and call backward once:
       (depth_loss + label_loss).backward()
     (the sum's gradient is the sum of the gradients; any optimizer step then
     comes after it (onegraph.lifetime.backward_sum also gives each loss as a
     number))
or:  Detach `features` in the loss that is not meant to train what made it
     (that loss no longer reaches what made it)
not a fix: clone(), which copies the value and keeps the history.
more: onegraph explain several-losses-one-graph
""",
    "sliced-or-blocked": """\
error: this backward needs a graph that an earlier backward already freed
  [sliced-or-blocked]
  train.py:15   loss.backward()   turn 2: reaches 3 nodes that turn 1 freed
                ^^^^^^^^^^^^^^^
  train.py:13   difference = features[i : i + 2] - target[i : i + 2]
                             ^^^^^^^^ takes `features` in, with its history
  train.py:10   features = encoder(frames)        `features` was made here
                           ^^^^^^^^^^^^^^^
  train.py:15   loss.backward()   turn 1 found them whole and freed them here
                ^^^^^^^^^^^^^^^
behind it: encoder.0.bias, encoder.0.weight
why: a slice is no copy of the graph: every part leads to the computation of
     `features`, and the first backward freed it for all.
fix: Add the parts' losses up and call backward once
     (the sum's gradient is the sum of the gradients)
or:  Cut `features` off as a leaf, back-propagate part by part into it, then
     once through what made it
     (only one part's graph is alive at a time: onegraph.lifetime.split_at, with
     blocks or pairwise_blocks)
not a fix: clone() of each part, which keeps the history.
more: onegraph explain sliced-or-blocked
""",
    "undetached-target": """\
error: this backward needs a graph that an earlier backward already freed
  [undetached-target]
  train.py:14   loss.backward()   step 2: reaches 5 nodes that step 1 freed
                ^^^^^^^^^^^^^^^
  train.py:12   loss = nn.functional.mse_loss(student(x), wanted)
                                                          ^^^^^^
      the loss compares with `wanted`, its history attached
  train.py:10   wanted = teacher(x)               `wanted` was made here
                         ^^^^^^^^^^
  train.py:14   loss.backward()                   step 1 freed those nodes here
                ^^^^^^^^^^^^^^^
behind it: teacher.0.bias, teacher.0.weight, teacher.2.bias, teacher.2.weight
why: the loss compares with `wanted`, so backward runs through the target as
     well; a target is a constant and should have no history.
fix: Detach `wanted`: a target is a constant:
       loss = nn.functional.mse_loss(student(x), wanted.detach())
     (the loss trains the prediction only, not what made the target)
or:  Make the target under torch.no_grad()
     (as above, and its graph is never built)
not a fix: retain_graph=True; the target would still be trained.
more: onegraph explain undetached-target
""",
    "unused-module": """\
error: `mix.weight` is not part of what is differentiated        [unused-module]
  cut is unknown: no line was seen that uses it
  train.py:23   slopes = torch.autograd.grad(loss, weights)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      asks for the gradient of what was not used
why: the loss was not computed from it, so there is no gradient to give.
fix: Use `mix.weight` in what is differentiated, or do not ask for its gradient
     (a tensor that was not used has no gradient)
or:  Pass allow_unused=True where it is meant to be unused
     (its gradient is then None)
more: onegraph explain unused-module
""",
    "zero-gradient-op": """\
warning: probably: `model.0.bias`, `model.0.weight` and 2 more got only zeros
  for gradients in 8 steps [zero-gradient-op]
  train.py:10   parcels = torch.round(model(shops))
                          ^^^^^^^^^^^^^^^^^^^^^^^^^
      round has a derivative that is zero everywhere
behind it: model.0.bias, model.0.weight, model.2.bias, model.2.weight
why: round is flat, so the gradient of everything before it is exactly zero;
     nothing raises, and nothing is learned.
fix: Keep round out of the loss, or estimate its gradient
     (the loss is another one)
more: onegraph explain zero-gradient-op
""",
}


def report_of(name, **process):
    """The report of a saved trace."""
    traces, document = codec.traces_from_json((TRACES / f"{name}.json").read_text())
    return compose(
        traces,
        document["outcome"],
        document["exit_status"],
        document["exception"],
        process=Process(1, **process),
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_text(name):
    """The report of each cause reads exactly so at 80 columns."""
    assert plain.render(report_of(name)) == EXPECTED[name]


def test_every_saved_trace_is_expected():
    """No trace is left without its text."""
    assert {path.stem for path in TRACES.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("name", EXPECTED)
def test_width(name, width):
    """No line is wider than the terminal, wide characters counted as two columns."""
    from rich.cells import cell_len

    lines = plain.render(report_of(name), width=width).splitlines()
    # The command to type stays whole.
    assert max(cell_len(line) for line in lines if not line.startswith("more: ")) <= width


@pytest.mark.parametrize("name", EXPECTED)
def test_length(name):
    """A finding takes 25 lines at most at 80 columns."""
    assert len(plain.render(report_of(name)).splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", EXPECTED)
def test_why_is_short(name):
    """The why is one or two sentences."""
    (finding,) = report_of(name).findings
    assert 1 <= len(re.findall(r"\.(?= [A-Z]|$)", finding.why)) <= 2


@pytest.mark.parametrize("name", EXPECTED)
def test_retain_graph_is_a_remedy_only_where_it_is_right(name):
    """retain_graph is offered for several true derivatives of one graph and nowhere else."""
    (finding,) = report_of(name).findings
    texts = {r: f"{r.title}{r.effect_note}{r.edit}" for r in finding.remedies}
    offered = [
        r
        for r, text in texts.items()
        if "retain_graph" in text and "Leave retain_graph" not in text
    ]
    assert bool(offered) == (finding.cause == "grad-then-backward")
    for remedy in offered:
        assert "memory" in remedy.effect_note


@pytest.mark.parametrize("name", EXPECTED)
def test_carets_stand_under_the_code(name):
    """Every mark lies under the line of code above it, by display width."""
    from rich.cells import cell_len

    lines = plain.render(report_of(name)).splitlines()
    for above, line in pairwise(lines):
        marks = re.match(r" *(\^+)", line)
        if marks:
            assert marks.end() <= cell_len(above)


def test_rank_is_named():
    """A distributed rank's report says which rank it is."""
    text = plain.render(report_of("carried-state", rank=3))
    assert text.startswith("error (rank 3): ")


def test_colours_only_where_wanted(monkeypatch):
    """A file gets no escape codes; FORCE_COLOR brings them, NO_COLOR takes colours away."""
    report = report_of("carried-state")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    assert terminal.render(report, io.StringIO()) == EXPECTED["carried-state"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = terminal.render(report, io.StringIO())
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == EXPECTED["carried-state"]


def test_columns_are_honoured(monkeypatch):
    """COLUMNS sets the width of a report that goes to a file."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    text = terminal.render(report_of("carried-state"), io.StringIO())
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("name", EXPECTED)
def test_without_source(name):
    """--no-source shows places and words but no line of the program."""
    text = terminal.render(report_of(name), io.StringIO(), source=False)
    assert "^" not in text
    assert "train.py:" in text


def test_changed_and_missing_sources_are_told():
    """A file that changed or went away since it ran is said to have, and no wrong line is shown."""
    document = json.loads((TRACES / "carried-state.json").read_text())
    for state, words in (("changed", "has changed since"), ("gone", "cannot be read")):
        for trace in document["traces"]:
            trace["sources"] = {"train.py": {"text": "", "state": state}}
        traces, _ = codec.traces_from_json(json.dumps(document))
        text = plain.render(compose(traces, "raised", 1, None))
        assert words in text
        assert "train.py:" in text
