"""An NTM whose controller fuses two 2D attention maps; each fault breaks its backward differently.

The question it comes from: "My NTMController fuses two attention maps and emits the memory's keys
through an MLP. The script has a single loss.backward(), I clone() the residual, and yet torch says
`Trying to backward through the graph a second time` at an MLP. What is traversed twice?"
The controller is sound: each fault below stands outside it, and every time an MLP is what fails.

    memory          the written memory enters the next step with the graph that wrote it
    maps            the attention maps are made once, before the loop, with their encoders' graph
    cached          the encoder keeps what it made of the layout, with its graph, on itself
    optimizer-step  two losses of one forward, with an optimiser step between their backward calls
    none            the same program done right: it trains
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

BATCH, PLACES, FEATURES, WIDTH, SLOTS = 4, 8, 6, 128, 8
STEPS, WINDOW = 30, 4


def make_mlp(n_in, n_hidden, n_out, n_layers):
    """n_layers linear layers with a ReLU between each two."""
    layers = []
    for _ in range(n_layers - 1):
        layers += [nn.Linear(n_in, n_hidden), nn.ReLU()]
        n_in = n_hidden
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        residual = x.clone()
        x = self.conv2(F.relu(self.conv1(x)))
        x += residual
        return F.relu(x)


class NTMController(nn.Module):
    """Emits what one read head and one write head need.

    reps is (B, places, d_model), each map (B, fuse_in_channels / 2, height, width) of any size;
    both keys, erase and add are (B, mem_dim), the strength is (B, 1) and serves both heads.
    """

    make_block = ResidualBlock

    def __init__(
        self,
        d_model=128,
        mem_dim=128,
        hidden_dim=256,
        n_layers=3,
        fuse_in_channels=32,
        fuse_out_channels=32,
    ):
        super().__init__()
        self.map_channels = fuse_in_channels // 2
        self.conv = nn.Conv2d(fuse_in_channels, fuse_out_channels, 3, padding=1)
        self.block = self.make_block(fuse_out_channels)
        self.head_sizes = [mem_dim] * 4 + [1]
        n_in, n_out = fuse_out_channels + d_model, sum(self.head_sizes)
        self.mlp = make_mlp(n_in, hidden_dim, n_out, n_layers)

    def resize(self, attn, reps):
        size = (reps.shape[1], reps.shape[1])
        if attn is None:
            return reps.new_zeros(reps.shape[0], self.map_channels, *size)
        return F.interpolate(attn, size=size, mode="bilinear", align_corners=False).softmax(dim=-1)

    def forward(self, reps, attn_hier=None, attn_intra=None):
        maps = torch.cat([self.resize(attn_hier, reps), self.resize(attn_intra, reps)], dim=1)
        fused = self.block(self.conv(maps)).mean(dim=(2, 3))
        base = reps.mean(dim=1)
        heads = self.mlp(torch.cat([fused, base], dim=-1))
        read_key, write_key, erase, add, strength = heads.split(self.head_sizes, dim=-1)
        return read_key, write_key, erase.sigmoid(), add.tanh(), strength, strength


def address(memory, key, strength):
    similarity = F.cosine_similarity(memory, key.unsqueeze(1), dim=-1)
    return ((1 + F.softplus(strength)) * similarity).softmax(dim=-1)


def read(memory, weights):
    return (weights.unsqueeze(-1) * memory).sum(dim=1)


def write(memory, weights, erase, add):
    weights = weights.unsqueeze(-1)
    return memory * (1 - weights * erase.unsqueeze(1)) + weights * add.unsqueeze(1)


class MapEncoder(nn.Module):
    """Makes a 2D attention map: an MLP scores each place of a page against each coarser place."""

    def __init__(self, channels=16, coarseness=1):
        super().__init__()
        self.coarseness = coarseness
        self.mlp = make_mlp(4, 32, channels, n_layers=2)

    def forward(self, layout):
        coarse = layout.unflatten(1, (-1, self.coarseness)).mean(dim=2)
        rows = layout.unsqueeze(2).expand(-1, -1, coarse.shape[1], -1)
        columns = coarse.unsqueeze(1).expand(-1, layout.shape[1], -1, -1)
        return self.mlp(torch.cat([rows, columns], dim=-1)).permute(0, 3, 1, 2)


class Encoder(nn.Module):
    """Makes the base representation of a page: what it says, and where on the page."""

    def __init__(self):
        super().__init__()
        self.content = nn.Linear(FEATURES, WIDTH)
        self.mlp = make_mlp(2, 64, WIDTH, n_layers=2)

    def encode_layout(self, layout):
        return self.mlp(layout)

    def forward(self, page, layout):
        return torch.tanh(self.content(page) + self.encode_layout(layout))


class CachingEncoder(Encoder):
    """Makes the layout's representation once and keeps it, since the layout never changes."""

    cached_reps = None

    def encode_layout(self, layout):
        if self.cached_reps is None:
            self.cached_reps = self.mlp(layout)
        return self.cached_reps


class PageReader(nn.Module):
    """Reads a book page by page and recalls, at each page, the page before it."""

    def __init__(self, controller, encoder):
        super().__init__()
        self.controller = controller
        self.encoder = encoder
        self.hier_encoder = MapEncoder(coarseness=2)
        self.intra_encoder = MapEncoder()
        self.recall = nn.Linear(2 * WIDTH, FEATURES)

    def encode_maps(self, layout):
        return self.hier_encoder(layout), self.intra_encoder(layout)

    def forward(self, pages, targets, layout, memory, attn_hier, attn_intra):
        """Returns the recall loss, the blur (entropy) of the reading, and the memory after it."""
        recall_loss = blur = 0
        for page, target in zip(pages, targets, strict=True):
            reps = self.encoder(page, layout)
            heads = self.controller(reps, attn_hier, attn_intra)
            read_key, write_key, erase, add, read_strength, write_strength = heads
            read_weights = address(memory, read_key, read_strength)
            known = torch.cat([read(memory, read_weights), reps.mean(dim=1)], dim=-1)
            recall_loss = recall_loss + F.mse_loss(self.recall(known), target)
            blur = blur - (read_weights * read_weights.log()).sum(dim=-1).mean()
            memory = write(memory, address(memory, write_key, write_strength), erase, add)
        return recall_loss / len(pages), 0.01 * blur / len(pages), memory


def make_book():
    """Yields a window of pages and their targets for each step; four kinds of page take turns."""
    kinds = torch.randn(4, PLACES, FEATURES)
    summaries = 2 * kinds.mean(dim=1)
    for step in range(STEPS):
        turns = torch.arange(WINDOW).unsqueeze(1) + step * WINDOW + torch.arange(BATCH)
        pages = kinds[turns % 4] + 0.1 * torch.randn(WINDOW, BATCH, PLACES, FEATURES)
        yield pages, summaries[(turns - 1) % 4]


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")


def train(reader, optimizer, layout, memory):
    for pages, targets in make_book():
        attn_hier, attn_intra = reader.encode_maps(layout)
        recall, blur, memory = reader(pages, targets, layout, memory, attn_hier, attn_intra)
        update(optimizer, recall + blur)
        memory = memory.detach()


def train_carrying_memory(reader, optimizer, layout, memory):
    for pages, targets in make_book():
        attn_hier, attn_intra = reader.encode_maps(layout)
        recall, blur, memory = reader(pages, targets, layout, memory, attn_hier, attn_intra)
        update(optimizer, recall + blur)


def train_on_maps_made_once(reader, optimizer, layout, memory):
    attn_hier, attn_intra = reader.encode_maps(layout)
    for pages, targets in make_book():
        recall, blur, memory = reader(pages, targets, layout, memory, attn_hier, attn_intra)
        update(optimizer, recall + blur)
        memory = memory.detach()


def train_stepping_between_losses(reader, optimizer, layout, memory):
    for pages, targets in make_book():
        attn_hier, attn_intra = reader.encode_maps(layout)
        recall, blur, memory = reader(pages, targets, layout, memory, attn_hier, attn_intra)
        optimizer.zero_grad()
        recall.backward(retain_graph=True)
        optimizer.step()
        blur.backward()
        optimizer.step()
        memory = memory.detach()


PROGRAMS = {
    "memory": (train_carrying_memory, Encoder),
    "maps": (train_on_maps_made_once, Encoder),
    "cached": (train, CachingEncoder),
    "optimizer-step": (train_stepping_between_losses, Encoder),
    "none": (train, Encoder),
}


def run(fault, make_controller=NTMController):
    """Trains a page reader with the given fault and returns it."""
    torch.manual_seed(0)
    run_training, make_encoder = PROGRAMS[fault]
    reader = PageReader(make_controller(), make_encoder())
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-3)
    layout = torch.rand(BATCH, PLACES, 2)
    memory = 0.1 * torch.randn(BATCH, SLOTS, WIDTH)
    run_training(reader, optimizer, layout, memory)
    return reader


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fault", choices=PROGRAMS, default="memory")
    run(parser.parse_args().fault)
