"""Fine-tune a language model with LoRA on every card of this machine."""

import argparse
from pydoc_data.topics import topics

import torch
from lightning import LightningModule, Trainer, seed_everything
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from hpu_bucketing import BucketBatchSampler, BucketCollate, BucketDataLoader, BucketPlan
from hpu_compile import HPUCompile
from hpu_fsdp import HPUFSDPStrategy
from hpu_kernels import HPUKernels
from hpu_profiler import HPUProfiler


class LanguageModel(LightningModule):
    """Causal language model with a LoRA adapter."""

    def __init__(self, base):
        super().__init__()
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, use_cache=False)
        self.model = get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
        self.model.train()
        self.model.enable_input_require_grads()  # one graph for all blocks

    def training_step(self, batch, batch_idx):
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss

    def configure_optimizers(self):
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.AdamW(trained, lr=1e-3)


def data(base, batch_size):
    """Return a loader of paragraphs in three lengths."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    texts = [part for topic in topics.values() for part in topic.split("\n\n") if len(part) > 1][:200]
    samples = [{"input_ids": tokenizer(text, truncation=True, max_length=256).input_ids} for text in texts]
    lengths = [len(sample["input_ids"]) for sample in samples]
    plan = BucketPlan.from_lengths(lengths, batch_size=batch_size, align=64)
    sampler = BucketBatchSampler(lengths, plan, batch_size=batch_size)
    return BucketDataLoader(samples, sampler, collate_fn=BucketCollate(plan))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="base", help="folder or name of the model")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()

    seed_everything(0)
    trainer = Trainer(
        accelerator="hpu",
        devices="auto",
        strategy=HPUFSDPStrategy(auto_wrap_policy={LlamaDecoderLayer}, state_dict_type="full"),
        precision="bf16-mixed",
        callbacks=[HPUKernels(), HPUCompile()],
        profiler=HPUProfiler(dirpath="traces", filename="summary") if options.profile else None,
        max_steps=options.steps,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    model = LanguageModel(options.base)
    trainer.fit(model, data(options.base, batch_size=4))
    trainer.save_checkpoint("last.ckpt")
    if trainer.is_global_zero:
        model.model.peft_config["default"].save_pretrained("lora")
