"""Attention in eval mode takes its fast path, or not, for the reasons it has alone."""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Watching(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def show(name, *tensors):
    for tensor in tensors:
        if tensor is not None:
            flat = tensor.double()
            print(name, tuple(tensor.shape), flat.sum().item().hex(), flat.abs().max().item().hex())


torch.manual_seed(0)
x = torch.randn(4, 6, 16)
padding = torch.tensor([[False] * n + [True] * (6 - n) for n in (6, 4, 3, 1)])
causal = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)

attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), 2).eval()
bert = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu"), 2
).eval()

for name, guard in [("grad", torch.enable_grad), ("no_grad", torch.no_grad),
                    ("inference", torch.inference_mode)]:
    with guard():
        show(f"{name} mha", *attention(x, x, x))
        show(f"{name} mha padded", *attention(x, x, x, key_padding_mask=padding))
        show(f"{name} mha causal", *attention(x, x, x, attn_mask=causal, need_weights=False))
        show(f"{name} layer", layer(x, src_key_padding_mask=padding))
        show(f"{name} encoder", encoder(x, src_key_padding_mask=padding))
        show(f"{name} encoder causal", encoder(x, mask=causal, is_causal=True))
        show(f"{name} bert", bert(x, src_key_padding_mask=padding))
        show(f"{name} decoder", decoder(x, x, memory_key_padding_mask=padding))

for parameter in encoder.parameters():
    parameter.requires_grad_(False)
head = nn.Linear(16, 2)
features = encoder(x, src_key_padding_mask=padding)
loss = head(features[:, 0]).square().mean()
loss.backward()
show("frozen", features, loss, head.weight.grad)

with Watching(), torch.no_grad():
    show("watched", encoder(x, src_key_padding_mask=padding), *attention(x, x, x))
with torch.device("cpu"), torch.no_grad():
    show("device", encoder(x, src_key_padding_mask=padding), *attention(x, x, x))

encoder.train()
torch.manual_seed(1)
show("train", encoder(x, src_key_padding_mask=padding))
out, weights = attention.train()(x, x, x, key_padding_mask=padding)
show("train mha", out, weights)
out.sum().backward()
show("gradient", attention.in_proj_weight.grad)
