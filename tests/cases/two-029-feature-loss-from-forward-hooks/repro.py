import torch
from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width, classes=4):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv1d(1, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv1d(width, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU())
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.layer1(x)
        x = self.layer2(x)
        return self.fc(x.mean(-1))


class Tap:
    """Keeps what the named layers put out."""

    def __init__(self, model, names):
        self.feats = {}
        for name in names:
            model.get_submodule(name).register_forward_hook(self._hook(name))

    def _hook(self, name):
        def hook(module, inputs, output):
            self.feats[name] = output

        return hook


class Distiller:
    def __init__(self, teacher, student, names=("layer1", "layer2")):
        self.teacher, self.student, self.names = teacher.eval(), student, names
        self.teacher_tap, self.student_tap = Tap(teacher, names), Tap(student, names)
        self.opt = torch.optim.SGD(student.parameters(), lr=0.05)

    def backward(self, loss):
        loss.backward()
        return loss.item()

    def feature_loss(self):
        pairs = ((self.student_tap.feats[n], self.teacher_tap.feats[n]) for n in self.names)
        return sum(F.mse_loss(s.mean(1), t.mean(1)) for s, t in pairs)

    def train_step(self, x, y):
        with torch.no_grad():
            soft = self.teacher(x).softmax(-1)
        logits = self.student(x)
        self.opt.zero_grad()
        ce = self.backward(F.cross_entropy(logits, y) + F.kl_div(logits.log_softmax(-1), soft, reduction="batchmean"))
        fm = self.backward(10.0 * self.feature_loss())
        self.opt.step()
        return ce, fm


if __name__ == "__main__":
    torch.manual_seed(5)
    distiller = Distiller(Net(16), Net(6))
    for step in range(4):
        x, y = torch.randn(8, 1, 20), torch.randint(0, 4, (8,))
        print(step, distiller.train_step(x, y))
