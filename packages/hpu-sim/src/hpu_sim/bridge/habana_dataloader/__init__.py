"""Data loader of the vendor's, simulated. No card is involved."""

from habana_dataloader.habana_dataset import HabanaDataLoader, fetch_habana_unet_loader

__all__ = ["HabanaDataLoader", "fetch_habana_unet_loader"]
