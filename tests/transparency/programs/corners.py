"""Less common corners of torch give what they give alone."""

import warnings

import torch
import torch.nn.functional as F
import torch.nn.utils.prune as prune
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.ao.quantization import quantize_dynamic
from torch.nested import nested_tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

warnings.simplefilter("ignore", DeprecationWarning)
torch.manual_seed(0)


def value(tensor):
    return tensor.double().sum().item().hex()


q = torch.randn(1, 2, 128, 16)
mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 128, 128, device="cpu")
print("flex", value(flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)))
print("flex", value(flex_attention(q, q, q, block_mask=mask)))
ragged = nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged, requires_grad=True)
F.softmax(ragged * 2, dim=-1).values().square().sum().backward()
print("nested", value(ragged.grad.values()))
masked = torch.masked.masked_tensor(torch.randn(3), torch.tensor([True, False, True]))
print("masked", masked.sum(), torch.exp(masked))
sparse = torch.eye(3).to_sparse().requires_grad_()
torch.sparse.mm(sparse, torch.ones(3, 3)).sum().backward()
print("sparse", sparse.grad)
lazy = nn.LazyLinear(3)
print("lazy", lazy(torch.ones(2, 4)).shape, lazy)
with FlopCounterMode(display=False) as flops:
    nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
print("flops", flops.get_total_flops())
with FakeTensorMode():
    print("fake", F.relu(torch.empty(3)).shape, nn.Linear(3, 2)(torch.empty(1, 3)).shape)
print("functionalize", torch.func.functionalize(lambda x: x.add_(1))(torch.ones(2)))
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = nn.Linear(4, 4)(torch.ones(2, 4))
    y.sum().backward()
    print("autocast", y.dtype, F.softmax(y, dim=-1).dtype)
small = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
print("quantized", quantize_dynamic(small, {nn.Linear}, dtype=torch.qint8)(torch.ones(2, 4)).shape)
conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).eval()
prune.l1_unstructured(conv[0], "weight", 0.5)
conv(torch.ones(1, 1, 5, 5)).sum().backward()
print("pruned", value(conv(torch.ones(1, 1, 5, 5))), value(conv[0].weight_orig.grad))
complex_ = torch.randn(3, dtype=torch.cfloat, requires_grad=True)
torch.fft.ifft(torch.fft.fft(complex_) * 1j).abs().sum().backward()
print("complex", complex_.grad.abs().sum().item().hex())
for module in (nn.LSTM(3, 4, 2, dropout=0.1), nn.GRU(3, 4, bidirectional=True), nn.RNN(3, 4)):
    out, _ = module(torch.randn(5, 2, 3))
    out.sum().backward()
    print(type(module).__name__, value(out), value(module.weight_ih_l0.grad))
with torch.inference_mode():
    print("inference", (torch.ones(2) + 1).is_inference())
p = [nn.Parameter(torch.ones(2)) for _ in range(3)]
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad, torch.optim.RMSprop,
             torch.optim.Rprop, torch.optim.NAdam, torch.optim.LBFGS):
    for foreach in ((False, True) if kind is not torch.optim.LBFGS else (None,)):
        optimizer = kind(p, lr=0.1) if foreach is None else kind(p, lr=0.1, foreach=foreach)

        def closure():
            optimizer.zero_grad()
            loss = sum((q * q).sum() for q in p)
            loss.backward()
            return loss

        optimizer.step(closure)
        print(kind.__name__, foreach, [value(q) for q in p])
norm = nn.utils.clip_grad_norm_(p, 0.1)
print("clipped", norm.item().hex(), nn.utils.parameters_to_vector(p).shape)
