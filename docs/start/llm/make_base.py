"""Make the folder `base`: a tiny Llama with random weights, in bfloat16 as those of the hub."""

from transformers import AutoModelForCausalLM, ByT5Tokenizer, LlamaConfig

tokenizer = ByT5Tokenizer()  # bytes, so that it needs no file
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=None,
    eos_token_id=tokenizer.eos_token_id,
)
AutoModelForCausalLM.from_config(config, dtype="bfloat16").save_pretrained("base")
tokenizer.save_pretrained("base")
