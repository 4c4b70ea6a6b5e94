"""SmolLM2-135M by transformers, with LoRA by PEFT."""

import torch
from safetensors.torch import load_file

from sides.common import Optimizer, difference
from sides.mistral import begin

__all__ = ["Program", "begin"]


class Program:
    def __init__(self, settings, inputs):
        from peft import LoraConfig, get_peft_model
        from transformers import LlamaConfig, LlamaForCausalLM

        tensors = load_file(inputs)
        self.tokens = tensors.pop("tokens").to(torch.int64)
        self.targets = tensors.pop("targets").to(torch.int64)
        self.slice = settings["slice"]
        config = LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            rms_norm_eps=1e-5,
            rope_theta=1e5,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            use_cache=False,
            attn_implementation="sdpa",
        )
        adapter = {name: tensors.pop(name) for name in list(tensors) if ".lora_" in name}
        # As `bf16=True` of transformers' Trainer: values stay f32, operands of products are rounded.
        self.bf16 = settings["precision"] == "bf16"
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        model = model.to_empty(device="cpu")
        # What is not in a file, the frequencies of the rotary embedding, is made anew.
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        model.load_state_dict(tensors, assign=True)
        model.tie_weights()
        lora = LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, bias="none")
        self.model = get_peft_model(model, lora)
        self.model.train()
        self.trained = {}
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                name = name.removeprefix("base_model.model.").replace(".default", "")
                parameter.data.copy_(adapter.pop(name))
                self.trained[name] = parameter
        if adapter:
            raise ValueError(f"not taken by PEFT: {sorted(adapter)}")
        self.optimizer = Optimizer(list(self.trained.values()), [])

    def backward(self):
        total = 0.0
        for first in range(0, len(self.tokens), self.slice):
            tokens, targets = (x[first : first + self.slice] for x in (self.tokens, self.targets))
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                logits = self.model(input_ids=tokens).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
            loss = loss / self.tokens.numel()
            loss.backward()
            total += loss.item()
        return total

    def compare(self, outputs):
        ours = load_file(outputs)
        own = {"loss": torch.tensor([self.backward()])}
        own |= {f"gradient/{name}": parameter.grad.clone() for name, parameter in self.trained.items()}
        for parameter in self.trained.values():
            parameter.grad = None
        if own.keys() != ours.keys():
            raise ValueError(f"other results: {sorted(own.keys() ^ ours.keys())}")
        return {name: difference(own[name], ours[name]) for name in ours}

    def run(self, report):
        def step():
            loss = self.backward()
            return loss, self.optimizer.step().item()

        report.values["loss"], report.values["gradient norm"] = report.time("step", step)
