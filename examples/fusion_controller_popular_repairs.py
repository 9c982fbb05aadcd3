"""What is usually advised for fusion_controller.py, each as a program: none of it is the repair.

The fault is that of `fusion_controller.py --fault maps` unless --fault names another one.

    no-clone        drop the clone() in the residual block            fails as before
    no-inplace-add  replace `x += residual` by `x = x + residual`     fails as before
    clone-strength  clone the strength that is returned twice         fails as before
    detach-inputs   detach all inputs in forward      runs, but the encoders of the maps never train

Nor is the strength, returned twice, at fault; it takes two backward calls to make it fail:

    strength-twice                one backward: bit-identical gradients with clone() and without
    strength-two-backwards        one backward a head: the second fails
    clone-strength-two-backwards  the same with clone(): the second fails at the same place
"""

import argparse
from functools import partial

import torch
import torch.nn.functional as F
from fusion_controller import PROGRAMS, NTMController, ResidualBlock, address, run


class ResidualBlockWithoutClone(ResidualBlock):
    def forward(self, x):
        residual = x
        x = self.conv2(F.relu(self.conv1(x)))
        x += residual
        return F.relu(x)


class ResidualBlockOutOfPlace(ResidualBlock):
    def forward(self, x):
        residual = x.clone()
        x = self.conv2(F.relu(self.conv1(x)))
        x = x + residual
        return F.relu(x)


class ControllerWithoutClone(NTMController):
    make_block = ResidualBlockWithoutClone


class ControllerOutOfPlace(NTMController):
    make_block = ResidualBlockOutOfPlace


class ControllerCloningStrength(NTMController):
    def forward(self, reps, attn_hier=None, attn_intra=None):
        *heads, read_strength, write_strength = super().forward(reps, attn_hier, attn_intra)
        return *heads, read_strength, write_strength.clone()


class ControllerDetachingInputs(NTMController):
    def forward(self, reps, attn_hier=None, attn_intra=None):
        reps = reps.detach()
        attn_hier = None if attn_hier is None else attn_hier.detach()
        attn_intra = None if attn_intra is None else attn_intra.detach()
        return super().forward(reps, attn_hier, attn_intra)


def train_repaired(make_controller, fault):
    reader = run(fault, make_controller)
    without = {name.split(".")[0] for name, p in reader.named_parameters() if p.grad is None}
    print("never got a gradient:", ", ".join(sorted(without)) or "nothing")


def make_head_losses(make_controller):
    """One loss of the read head and one of the write head: both use the one strength."""
    torch.manual_seed(0)
    controller = make_controller()
    memory, reps = torch.randn(4, 8, 128), torch.randn(4, 8, 128)
    read_key, write_key, _, _, read_strength, write_strength = controller(reps)
    read_loss = address(memory, read_key, read_strength).square().sum()
    write_loss = address(memory, write_key, write_strength).square().sum()
    return controller, read_loss, write_loss


def compare_gradients():
    gradients = []
    for make_controller in (NTMController, ControllerCloningStrength):
        controller, read_loss, write_loss = make_head_losses(make_controller)
        (read_loss + write_loss).backward()
        gradients.append([p.grad for p in controller.mlp.parameters()])
    same = all(torch.equal(plain, cloned) for plain, cloned in zip(*gradients, strict=True))
    print("gradients with clone() and without are", "bit-identical" if same else "different")


def back_propagate_each_head(make_controller):
    _, read_loss, write_loss = make_head_losses(make_controller)
    read_loss.backward()
    print("read head done")
    write_loss.backward()
    print("write head done")


REPAIRS = {
    "no-clone": ControllerWithoutClone,
    "no-inplace-add": ControllerOutOfPlace,
    "clone-strength": ControllerCloningStrength,
    "detach-inputs": ControllerDetachingInputs,
}
DEMONSTRATIONS = {
    "strength-twice": compare_gradients,
    "strength-two-backwards": partial(back_propagate_each_head, NTMController),
    "clone-strength-two-backwards": partial(back_propagate_each_head, ControllerCloningStrength),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repair", choices=[*REPAIRS, *DEMONSTRATIONS], default="no-clone")
    parser.add_argument("--fault", choices=PROGRAMS, default="maps", help="used by the repairs")
    args = parser.parse_args()
    if args.repair in REPAIRS:
        train_repaired(REPAIRS[args.repair], args.fault)
    else:
        DEMONSTRATIONS[args.repair]()
