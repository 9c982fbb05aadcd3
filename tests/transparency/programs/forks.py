"""A program that forks itself: its children end, fail and print as alone, and tell nothing."""

import os
import sys

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack


def train(seed):
    torch.manual_seed(seed)
    lin = nn.Linear(4, 1)
    loss = lin(torch.randn(5, 4)).square().mean()
    loss.backward()
    return loss.item(), lin.weight.grad.sum().item()


print(train(1), flush=True)
child = os.fork()
if child == 0:
    print("child", train(5), len(_get_current_function_mode_stack()), flush=True)
    os._exit(7)
print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
child = os.fork()
if child == 0:
    print("child leaves", flush=True)
    sys.exit(9)
print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.stderr.flush()
child = os.fork()
if child == 0:
    y = torch.ones(2, requires_grad=True).exp()
    y.sum().backward()
    y.sum().backward()
print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(train(2))
