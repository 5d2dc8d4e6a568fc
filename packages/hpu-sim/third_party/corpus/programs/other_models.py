"""Small examples of libraries with a model of their own, in a loop without a mark."""

import sys

import torch
import torchvision_operators  # noqa: F401 - see there
from torch import nn

name = sys.argv[1]
device = torch.device("hpu")


def x_transformers():
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    decoder = Decoder(dim=512, depth=6, heads=8, rotary_pos_emb=True)
    return AutoregressiveWrapper(TransformerWrapper(num_tokens=20_000, max_seq_len=512, attn_layers=decoder)), (
        torch.randint(0, 20_000, (4, 512)),
    )


def vit_pytorch():
    from vit_pytorch import ViT

    return ViT(image_size=256, patch_size=32, num_classes=1000, dim=1024, depth=6, heads=16, mlp_dim=2048), (
        torch.randn(4, 3, 256, 256),
    )


def denoising_diffusion_pytorch():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    return GaussianDiffusion(Unet(dim=64, dim_mults=(1, 2, 4, 8)), image_size=128), (torch.rand(4, 3, 128, 128),)


def open_clip():
    import open_clip

    model = open_clip.create_model("ViT-B-32", pretrained=None)
    return model, (torch.rand(4, 3, 224, 224), torch.randint(0, 49_000, (4, 77)))


def torch_geometric():
    from torch_geometric.nn.models import GCN

    edges = torch.randint(0, 1000, (2, 5000))
    return GCN(128, 256, num_layers=3, out_channels=10), (torch.rand(1000, 128), edges)


def ema_pytorch():
    from ema_pytorch import EMA

    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
            self.ema = [EMA(self.net.to(device), beta=0.999, update_every=1, update_after_step=0)]

        def forward(self, inputs):
            self.ema[0].update()
            return self.net(inputs)

    return Averaged(), (torch.rand(64, 512),)


model, inputs = {each.__name__: each for each in (
    x_transformers, vit_pytorch, denoising_diffusion_pytorch, open_clip, torch_geometric, ema_pytorch
)}[name]()  # fmt: skip
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(10):
    output = model(*(each.to(device) for each in inputs))
    output = output[0] @ output[1].T if isinstance(output, tuple) else output
    loss = output.float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
