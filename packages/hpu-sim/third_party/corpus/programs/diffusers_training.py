"""Training as in diffusers' examples: `unconditional` with accelerate, `text_to_image` with Lightning."""

import sys

import torch
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from lightning.pytorch import LightningModule, Trainer
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


class TextToImage(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        # The sizes of Stable Diffusion 1.5.
        self.unet = UNet2DConditionModel(cross_attention_dim=768, sample_size=64)
        self.vae = AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
        ).requires_grad_(False)
        self.schedule = DDPMScheduler()

    def training_step(self, batch, batch_idx):
        images, text = batch
        latents = self.vae.encode(images).latent_dist.sample() * self.vae.config.scaling_factor
        noise = torch.randn_like(latents)
        steps = torch.randint(0, self.schedule.config.num_train_timesteps, (len(latents),), device=self.device)
        return mse_loss(self.unet(self.schedule.add_noise(latents, noise, steps), steps, text).sample, noise)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.unet.parameters(), lr=1e-5)


if sys.argv[1] == "text_to_image":
    data = TensorDataset(torch.rand(16, 3, 512, 512), torch.rand(16, 77, 768))
    trainer = Trainer(accelerator="hpu", devices=8, strategy="ddp", precision="bf16-mixed", max_steps=100)
    trainer.fit(TextToImage(), DataLoader(data, batch_size=1))
    raise SystemExit

accelerator = Accelerator(mixed_precision="bf16")
model = UNet2DModel(sample_size=128, in_channels=3, out_channels=3, block_out_channels=(128, 128, 256, 256, 512, 512),
    down_block_types=("DownBlock2D",) * 4 + ("AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D") + ("UpBlock2D",) * 4)  # fmt: skip
schedule = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = DataLoader(TensorDataset(torch.rand(64, 3, 128, 128)), batch_size=8)
rates = get_cosine_schedule_with_warmup(optimizer, 5, 50)
model, optimizer, data, rates = accelerator.prepare(model, optimizer, data, rates)
for _ in range(2):
    for (images,) in data:
        noise = torch.randn(images.shape, device=images.device)
        steps = torch.randint(0, 1000, (images.shape[0],), device=images.device, dtype=torch.int64)
        with accelerator.accumulate(model):
            prediction = model(schedule.add_noise(images, noise, steps), steps, return_dict=False)[0]
            accelerator.backward(mse_loss(prediction, noise))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
