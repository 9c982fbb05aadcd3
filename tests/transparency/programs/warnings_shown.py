"""Warnings are shown, or not, under every kind of filter, at the place where they are alone.

The arguments say which filters to set, so that one program serves many tests.
"""

import sys
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch import nn

MODES = {
    "default": lambda: None,
    "always": lambda: warnings.simplefilter("always"),
    "each-place": lambda: warnings.simplefilter("default"),
    "once": lambda: warnings.simplefilter("once"),
    "module": lambda: warnings.simplefilter("module"),
    "ignore": lambda: warnings.simplefilter("ignore"),
    "ignore-main": lambda: (warnings.simplefilter("always"),
                            warnings.filterwarnings("ignore", module="__main__")),
    "only-main": lambda: (warnings.simplefilter("ignore"),
                          warnings.filterwarnings("always", module="__main__$")),
    "ignore-torch": lambda: (warnings.simplefilter("always"),
                             warnings.filterwarnings("ignore", module="torch")),
    "only-torch": lambda: (warnings.simplefilter("ignore"),
                           warnings.filterwarnings("default", module=r"torch\.")),
    "error-but-main": lambda: (warnings.simplefilter("error"),
                               warnings.filterwarnings("ignore", module="__main__")),
    "message": lambda: (warnings.simplefilter("always"),
                        warnings.filterwarnings("ignore", message="Implicit dimension")),
    "category": lambda: (warnings.simplefilter("ignore"),
                         warnings.filterwarnings("default", category=UserWarning)),
    "line": lambda: (warnings.simplefilter("always"),
                     warnings.filterwarnings("ignore", lineno=LINE)),
    "reset": lambda: warnings.resetwarnings(),
    "direct": lambda: warnings.filters.insert(0, ("default", None, Warning, None, 0)),
    "error": lambda: warnings.simplefilter("error"),
}
LINE = 86

MODES[sys.argv[1] if len(sys.argv) > 1 else "default"]()
torch.manual_seed(0)
x = torch.randn(2, 3, requires_grad=True)
image = torch.randn(1, 1, 4, 4)


def attempt(function):
    try:
        out = function()
        print("ok", tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__)
    except Warning as warning:
        print("raised", traceback.format_exc())
    except Exception as error:
        print("failed", type(error).__name__, str(error).splitlines()[0][:70])


def helper(level):
    warnings.warn(f"own warning of level {level}", DeprecationWarning, stacklevel=level)


class Hooked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        warnings.warn("inside forward", stacklevel=2)
        F.softmax(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        warnings.warn("inside backward", stacklevel=1)
        F.softmax(g)
        return g * 2


softmax, log_softmax, softmin = nn.Softmax(), nn.LogSoftmax(), nn.Softmin()
for turn in range(3):
    print("turn", turn)
    attempt(lambda: F.softmax(x))
    attempt(lambda: F.softmax(x)); attempt(lambda: F.softmax(x))
    attempt(lambda: F.log_softmax(x))
    attempt(lambda: softmax(x))
    attempt(lambda: log_softmax(x))
    attempt(lambda: softmin(x))
    attempt(lambda: F.softmax(x))
    attempt(lambda: nn.Sequential(nn.Linear(3, 3), nn.Softmax())(x))
    attempt(lambda: F.mse_loss(x, torch.zeros(2, 1)))
    attempt(lambda: F.l1_loss(torch.zeros(3), torch.zeros(1)))
    attempt(lambda: nn.MSELoss()(x, torch.zeros(2, 1)))
    attempt(lambda: F.upsample(image, scale_factor=2))
    attempt(lambda: F.interpolate(image, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True))
    attempt(lambda: F.sigmoid(x))
    attempt(lambda: F.tanh(x))
    attempt(lambda: F.binary_cross_entropy(torch.rand(2), torch.rand(2), size_average=True))
    attempt(lambda: F.kl_div(x.log_softmax(1), torch.rand(2, 3)))
    attempt(lambda: F.grid_sample(image, torch.zeros(1, 2, 2, 2)))
    attempt(lambda: F.dropout2d(torch.randn(2, 3)))
    attempt(lambda: F.gumbel_softmax(x, eps=1e-3))
    attempt(lambda: nn.Linear(0, 3))
    attempt(lambda: nn.init.uniform(torch.zeros(2)))
    attempt(lambda: nn.utils.clip_grad_norm([x], 1.0))
    attempt(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 3, 8), 1))
    attempt(lambda: torch.range(0, 3))
    attempt(lambda: (x * 2).grad)
    attempt(lambda: x[0].grad)
    attempt(lambda: torch.tensor(torch.ones(2)))
    attempt(lambda: x.new_tensor(x))
    attempt(lambda: torch.zeros(3).resize_(2, 2).T)
    attempt(lambda: torch.add(torch.ones(2), torch.ones(2), out=torch.ones(3)))
    attempt(lambda: torch.ones(2, 3, 4).T)
    attempt(lambda: torch.meshgrid(torch.arange(2), torch.arange(3)))
    attempt(lambda: torch.norm(x, dim=1))
    attempt(lambda: torch.stft(torch.randn(64), 16, return_complex=True))
    attempt(lambda: torch.cross(torch.ones(3, 3), torch.ones(3, 3)))
    attempt(lambda: torch.ones(2, dtype=torch.uint8).__getitem__(torch.ones(2, dtype=torch.uint8)))
    attempt(lambda: x.detach().masked_fill_(torch.zeros(2, 3, dtype=torch.uint8), 0.0))
    attempt(lambda: torch.var(torch.ones(1)))
    attempt(lambda: torch.ones(1, dtype=torch.complex64).float())
    attempt(lambda: torch.nn.utils.weight_norm(nn.Linear(2, 2)))
    attempt(lambda: torch.cuda.amp.autocast())
    attempt(lambda: torch.jit.script(nn.ReLU()))
    attempt(lambda: torch.storage.TypedStorage)
    attempt(lambda: x.storage())
    attempt(lambda: helper(1))
    attempt(lambda: helper(2))
    attempt(lambda: helper(3))
    attempt(lambda: Hooked.apply(x).sum().backward())
    attempt(lambda: x.data.register_hook)
    attempt(lambda: torch.autograd.backward((x * 2).sum(), create_graph=True))
    attempt(lambda: torch.linalg.lstsq)
    attempt(lambda: torch.chain_matmul(torch.ones(2, 2), torch.ones(2, 2)))
    attempt(lambda: torch.lstsq)
    attempt(lambda: torch.svd(torch.ones(2, 2)))
    attempt(lambda: torch.qr(torch.ones(2, 2)))
    attempt(lambda: torch.from_numpy(__import__("numpy").ones(2)).T)
    attempt(lambda: torch.utils.checkpoint.checkpoint(torch.sin, x))
    attempt(lambda: nn.RNN(2, 2, num_layers=1, dropout=0.5))
    attempt(lambda: nn.ConvTranspose1d(1, 1, 1)(torch.ones(1, 1, 2)))
    attempt(lambda: nn.Conv2d(1, 1, 2, padding="same")(image))
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    attempt(lambda: scheduler.step())
    attempt(lambda: scheduler.step(3))
    attempt(lambda: scheduler.get_lr())
    attempt(lambda: torch.nn.Module().__class__.full_backward_hook if False else None)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    attempt(lambda: F.softmax(x))
    attempt(lambda: softmax(x))
    attempt(lambda: (x * 2).grad)
    attempt(lambda: torch.range(0, 2))
    attempt(lambda: Hooked.apply(x).sum().backward())
for w in caught:
    print(w.filename, w.lineno, w.category.__name__, str(w.message).splitlines()[0][:50], w.line, w.source)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("default")
    for _ in range(2):
        attempt(lambda: F.softmax(x))
        attempt(lambda: F.softmax(x))
        attempt(lambda: (x * 2).grad)
print([w.lineno for w in caught])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("once")
    for _ in range(2):
        attempt(lambda: F.softmax(x))
        attempt(lambda: F.softmax(x))
print([w.lineno for w in caught])


def shown(message, category, filename, lineno, file=None, line=None):
    print("shown", category.__name__, filename, lineno, file, line)


warnings.showwarning = shown
warnings.simplefilter("always")
attempt(lambda: F.softmax(x))
attempt(lambda: (x * 2).grad)
warnings.warn("own")
print(sorted(k if isinstance(k, str) else k[0][:20] for k in globals().get("__warningregistry__", {})))
