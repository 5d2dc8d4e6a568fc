"""Models of transformers for images and speech, trained with Lightning."""

import sys

import torch
import transformers
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, Dataset

MODELS = {
    "vit": ("ViTForImageClassification", "ViTConfig", {}, {"pixel_values": (3, 224, 224)}, ()),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", {}, {"input_features": (80, 3000)}, (64,)),
    "clip": ("CLIPModel", "CLIPConfig", {}, {"pixel_values": (3, 224, 224)}, None),
    "segformer": (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {},
        {"pixel_values": (3, 256, 256)},
        (256, 256),
    ),
    "wav2vec2": (
        "Wav2Vec2ForSequenceClassification",
        "Wav2Vec2Config",
        {"layerdrop": 0.0},
        {"input_values": (16_000,)},
        (),
    ),
}
model_name, config_name, sizes, inputs, labels = MODELS[sys.argv[1]]


class Samples(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        sample = {name: torch.rand(shape) for name, shape in inputs.items()}
        if labels is None:
            return sample | {"input_ids": torch.randint(0, 1000, (77,))}
        return sample | {"labels": torch.randint(0, 2, labels)}


class Finetuned(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = getattr(transformers, model_name)(getattr(transformers, config_name)(**sizes))

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch, **({"return_loss": True} if labels is None else {})).loss
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-5)


trainer = Trainer(accelerator="hpu", devices=8, strategy="ddp", precision="bf16-mixed", max_epochs=1)
trainer.fit(Finetuned(), DataLoader(Samples(), batch_size=16, num_workers=2))
