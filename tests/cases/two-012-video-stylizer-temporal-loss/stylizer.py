import torch
import torch.nn.functional as F


def gram(f):
    b, c, h, w = f.shape
    f = f.view(b, c, h * w)
    return f @ f.transpose(1, 2) / (c * h * w)


class VideoStylizer:
    def __init__(self, net, features, style, weights=(1.0, 50.0, 2.0)):
        self.net, self.features = net, features
        self.w_content, self.w_style, self.w_temporal = weights
        self.style_grams = [gram(f) for f in features(style)]
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)
        self.previous = None

    def losses(self, frame, out):
        got, wanted = self.features(out), self.features(frame)
        content = F.mse_loss(got[1], wanted[1])
        style = sum(F.mse_loss(gram(g), s) for g, s in zip(got, self.style_grams))
        total = self.w_content * content + self.w_style * style
        if self.previous is not None:
            total = total + self.w_temporal * F.mse_loss(out, self.previous)
        return total

    def train_frame(self, frame):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            out = self.net(frame)
            loss = self.losses(frame, out)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.previous = out
        return loss.item()
