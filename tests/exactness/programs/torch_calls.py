"""Modules and functions of torch whose nodes are made deep inside it."""

from __future__ import annotations

# fmt: off
# Where a line is broken is what these programs are about.
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, rnn

from tests.exactness.programs import program
from tests.exactness.programs.functions import leaf, script


@program()
def recurrent() -> Any:
    """The recurrent modules and cells belong to the lines that call them, packed input included."""
    x = leaf(5, 2, 3)
    made = []
    for module in (nn.LSTM(3, 4, 2), nn.GRU(3, 4, bidirectional=True), nn.RNN(3, 4)):
        out, state = module(x * 1)
        made.append((out.exp(), state))
    packed = rnn.pack_padded_sequence(x * 2, torch.tensor([5, 3]))
    out, state = nn.LSTM(3, 4)(packed)
    padded, _ = rnn.pad_packed_sequence(out)
    h = torch.zeros(2, 4)
    c = torch.zeros(2, 4)
    cell, gru = nn.LSTMCell(3, 4), nn.GRUCell(3, 4)
    for step in x:
        h, c = cell(step, (h, c))
        h = gru(step, h)
    return made, padded, state, h, c


@program()
def attention() -> Any:
    """Attention belongs to its line, as a module, a layer and a function."""
    x = leaf(4, 2, 8)
    out, weights = nn.MultiheadAttention(8, 2)(x * 1, x, x)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    y = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)(x)
    z = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)(x, x)
    q = x.unflatten(-1, (2, 4)).transpose(1, 2)
    s = F.scaled_dot_product_attention(
        q,
        q * 2,
        q,
        is_causal=True,
    )
    mask = torch.zeros(2, 2)
    t = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    return out, weights, y, z, s, t


@program()
def views_in_place() -> Any:
    """A write through a view makes the base's node, and new ones for views that are used later."""
    x = leaf(4, 4)
    base = x * 1
    row = base[0]
    square = base.view(2, 8)
    row.mul_(2)
    base[1] = x[1].exp()
    base[:, 2] += 1
    base[2:, 1:3].copy_(x[:2, :2])
    flat = base.flatten()
    flat.add_(1)
    diagonal = base.diagonal()
    diagonal.fill_(0.0)
    total = (
        square.sum()
        + row.sum()
    )
    parts = torch.unbind(base * 1)
    return base, row, square, flat, diagonal, total, parts, base.t().sin_()


@program()
def views_regenerated() -> Any:
    """A view's node made again after a write belongs to where it is first asked for."""
    x = leaf(4)
    base = x * 1
    left, right = base[:2], base[2:]
    other = base[1:3]
    base.mul_(2)
    left_node = left.grad_fn
    y = right.exp()
    with torch.no_grad():
        hidden = base[3:]
    return left_node, y, other.cos(), hidden, base


@program()
def indexing() -> Any:
    """Reading and writing by index, with tensors, masks and functions, has its own lines."""
    x = leaf(5, 3)
    y = x * 1
    y[torch.tensor([0, 2])] = leaf(2, 3)
    y[y > 0.5] = 0.0
    y[0, 1] = x[1, 1]
    y = y.index_put((torch.tensor([1]),), x[0])
    y.index_put_((torch.tensor([1]),), x[0], accumulate=True)
    y.index_add_(0, torch.tensor([0]), x[:1])
    y = y.index_copy(0, torch.tensor([0]), x[:1]).scatter(1, torch.tensor([[0]]), x)
    y = y.masked_fill(y > 2, 0.0).masked_scatter(y > 3, x)
    y = torch.where(y > 0, y, x).gather(1, torch.tensor([[0], [1]]))
    y.put_(torch.tensor([1]), leaf(1))
    a, *rest = y
    return y, a, rest, y[None, ..., 0], y[0][0], x[[0, 1]][:, [1]]


@program()
def functional() -> Any:
    """Losses and layers that torch writes in Python belong to the user's line."""
    x = leaf(6, 4)
    target = torch.tensor([0, 1, 2, 3, 0, 1])
    made = [
        F.cross_entropy(x, target),
        F.binary_cross_entropy_with_logits(x, torch.ones(6, 4)),
        F.mse_loss(x, leaf(6, 4)),
        F.smooth_l1_loss(x, torch.ones(6, 4)),
        F.kl_div(F.log_softmax(x, -1), F.softmax(x, -1), reduction="batchmean"),
        F.triplet_margin_loss(x[:2], x[2:4], x[4:]),
        F.cosine_embedding_loss(x[:3], x[3:], torch.ones(3)),
        F.gumbel_softmax(x, hard=True),
        F.normalize(x),
        F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
        F.grid_sample(x[None, None], leaf(1, 2, 2, 2)),
        F.pad(x, (1, 1), mode="reflect"),
        F.layer_norm(x, (4,), leaf(4)),
        F.batch_norm(x, None, None, leaf(4), training=True),
        F.group_norm(x, 2),
        F.dropout(x, 0.5),
        F.embedding(target, x),
        F.embedding_bag(target[None], x),
        F.unfold(x[None, None], 2),
        F.max_pool2d(x[None, None], 2),
        F.adaptive_avg_pool2d(x[None, None], 2),
        F.multi_margin_loss(x, target),
        F.huber_loss(x, leaf(6, 4)),
        F.gaussian_nll_loss(x, torch.ones(6, 4), F.softplus(x)),
        F.glu(x),
        F.ctc_loss(
            F.log_softmax(leaf(5, 1, 4), -1),
            torch.tensor([[1, 2]]),
            torch.tensor([5]),
            torch.tensor([2]),
        ),
    ]
    y = F.relu(x * 2, inplace=True)
    z = F.threshold(x * 2, 0.1, 20.0)
    return made, y, z


@program()
def mathematics() -> Any:
    """einsum, linalg, fft and the functions torch writes in Python belong to the user's line."""
    x = leaf(4, 4)
    made = [
        torch.einsum("ij,jk,kl->il", x, x, x),
        torch.linalg.svd(x),
        torch.linalg.eigvalsh(x + x.t()),
        torch.linalg.solve(x + 4 * torch.eye(4), x),
        torch.linalg.multi_dot([x, x, x]),
        torch.linalg.norm(x),
        torch.linalg.cond(x),
        torch.fft.rfft(x).abs(),
        torch.fft.irfft2(torch.fft.rfft2(x)),
        torch.stft(x.flatten(), 4, return_complex=True, window=torch.ones(4)).abs(),
        torch.norm(x),
        torch.cdist(x, x),
        torch.meshgrid(x[0], x[1], indexing="ij"),
        torch.tensordot(x, x, dims=1),
        torch.cartesian_prod(x[0], x[1]),
        torch.block_diag(x, x),
        torch.split(x, 2),
        torch.chain_matmul(x, x) if False else x.matrix_exp(),
        torch.broadcast_tensors(x, x[0]),
        torch.atleast_3d(x),
        torch.logsumexp(x, 0),
        torch.cov(x),
        torch.quantile(x, 0.5),
        torch.special.expit(x),
        torch.unique(x),
        torch.lu(x) if False else torch.linalg.lu(x),
        x.norm(dim=1),
        x.split(1),
        x.unflatten(0, (2, 2)),
        1 - x,
        2 / x,
        2**x,
        x.__rpow__(2.0),
        -x,
        abs(x),
        sum([x, x, x]),
        max(x[0]),
        [*x],
        list(map(torch.exp, x)),
        torch.stack(tuple(x)),
    ]
    y = torch.empty(4)
    torch.exp(x[0].detach(), out=y)
    z = x * 1
    z += x
    z -= 1
    z **= 2
    z @= x
    return made, y, z


@program()
def distributions() -> Any:
    """Sampling, densities and divergences of distributions belong to the user's line."""
    from torch import distributions as D

    mean, scale = leaf(3), leaf(3).exp()
    normal = D.Normal(mean, scale)
    sample = normal.rsample()
    density = (
        normal.log_prob(sample)
        + D.Independent(normal, 1).log_prob(sample)
    )
    mixed = D.MixtureSameFamily(D.Categorical(logits=mean), normal)
    turned = D.TransformedDistribution(normal, [D.TanhTransform()])
    return (
        density,
        normal.entropy(),
        D.kl_divergence(normal, D.Normal(torch.zeros(3), torch.ones(3))),
        D.MultivariateNormal(mean, torch.diag(scale)).rsample(),
        mixed.log_prob(torch.zeros(2)),
        turned.rsample(),
        D.Dirichlet(scale).rsample(),
        D.Gamma(scale, scale).rsample(),
        D.Categorical(logits=mean).log_prob(torch.tensor(1)),
        D.RelaxedBernoulli(torch.tensor(0.5), logits=mean).rsample(),
    )


class Symmetric(nn.Module):
    """Makes a weight symmetric."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        upper = x.triu()
        return (
            upper
            + x.triu(1).transpose(-1, -2)
        )


@program()
def parametrized() -> Any:
    """A weight computed on access belongs to the parametrization's line, torch's to the access."""
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    other = parametrizations.weight_norm(nn.Linear(3, 3))
    spectral = parametrizations.spectral_norm(nn.Linear(3, 3))
    orthogonal = parametrizations.orthogonal(nn.Linear(3, 3))
    x = leaf(2, 3)
    with parametrize.cached():
        y = layer(x) + layer(x)
    weight = layer.weight
    return y, weight, other(x), spectral(x), orthogonal(x)


@program()
def networks() -> Any:
    """Layers of every kind, in containers and on their own, belong to the calling line."""
    image = leaf(2, 3, 8, 8)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(4, 2, 2, 2),
        nn.PixelShuffle(1),
        nn.Upsample(scale_factor=2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(8),
        nn.PReLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 5),
    )
    bag = nn.EmbeddingBag(4, 3)(torch.tensor([[0, 1]]))
    sparse = nn.Embedding(4, 3, sparse=True)(torch.tensor([1]))
    bilinear = nn.Bilinear(3, 3, 2)(leaf(2, 3), leaf(2, 3))
    loss = nn.CrossEntropyLoss()(net(image), torch.tensor([0, 1]))
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(5, 4, [2])
    out = adaptive(leaf(2, 5), torch.tensor([0, 3]))
    return net(image), bag, sparse, bilinear, loss, out.loss


@program()
def subclass() -> Any:
    """A tensor subclass's own dispatch has its lines, in order with what it calls."""

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            before = made() if func is torch.Tensor.mul else None
            result = super().__torch_function__(
                func,
                types,
                args,
                kwargs or {},
            )
            return result if before is None else result + before

    def made() -> torch.Tensor:
        return leaf().exp()

    x = torch.rand(3).as_subclass(Logged).requires_grad_()
    y = x * 2
    return y.sin(), y.sum(), torch.nn.functional.softmax(y, 0)


@program()
def function_mode() -> Any:
    """What the user's own function mode computes has its lines."""

    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if func is torch.exp:
                return result * 2
            return result

    x = leaf()
    with Doubling():
        y = torch.exp(x)
        z = F.layer_norm(y, (3,))
        with torch._C.DisableTorchFunctionSubclass():
            w = x.sin()
    with torch.device("cpu"):
        v = leaf() * x
    return y, z, w, v


@program()
def mixed_precision() -> Any:
    """The casts that autocast adds belong to the line whose operation needed them."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    x = leaf(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x * 1)
        z = y @ x.t()
    return z.float().sum()


@program()
def nested_and_sparse() -> Any:
    """Nested, sparse and complex tensors belong to the lines that make them."""
    x = leaf(3, 4)
    sparse = (x * 1).to_sparse()
    product = torch.sparse.mm(sparse, x.t())
    wave = torch.complex(x, x * 2)
    jagged = torch.nested.as_nested_tensor([x[:1] * 2, x[1:]], layout=torch.jagged)
    return product, torch.view_as_real(wave), wave.conj().abs(), jagged.values() * 2


@script
def scripted(x: torch.Tensor) -> torch.Tensor:
    """Compiled before recording began."""
    return x.exp() * x.sin()


@program()
def compiled_to_script() -> Any:
    """Nodes that TorchScript makes belong to the line that calls it."""
    x = leaf()
    y = x * 1
    z = scripted(y)
    return z.cos()


@torch.library.custom_op("onegraph_tests::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    """An operator with a derivative of its own."""
    return x * 2


custom.register_autograd(lambda ctx, grad: grad * 2 + grad.exp() - grad.exp())


@program()
def operators() -> Any:
    """A custom operator's node has its line."""
    x = leaf()
    y = custom(x * 1)
    z = y * 3
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y, z.cos(), grad
