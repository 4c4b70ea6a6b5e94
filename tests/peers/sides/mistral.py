"""A block of Mistral by transformers, with LoRA by PEFT."""

import torch
from safetensors.torch import load_file

from sides import common
from sides.common import Optimizer, difference

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def begin(threads):
    import peft
    import transformers

    return common.begin(threads) | {"transformers": transformers.__version__, "peft": peft.__version__}


class Program:
    def __init__(self, settings, inputs):
        from peft import LoraConfig, get_peft_model
        from transformers import MistralConfig, MistralModel

        tensors = load_file(inputs)
        dtype = TYPES[settings["type"]]
        self.x = tensors.pop("x").to(dtype).requires_grad_(True)
        self.g = tensors.pop("g").to(dtype)
        config = MistralConfig(
            vocab_size=2,
            hidden_size=settings["d_model"],
            intermediate_size=settings["d_ff"],
            num_hidden_layers=1,
            num_attention_heads=settings["heads"],
            num_key_value_heads=settings["kv_heads"],
            rms_norm_eps=1e-5,
            rope_theta=1e4,
            sliding_window=4096,
            use_cache=False,
            attn_implementation="sdpa",
            pad_token_id=None,
            bos_token_id=0,
            eos_token_id=1,
        )
        with torch.device("meta"):
            model = MistralModel(config)
        # What is not in a file, the frequencies of the rotary embedding, is made anew.
        model = model.to_empty(device="cpu")
        model.rotary_emb = type(model.rotary_emb)(config)
        adapter = {name: tensors.pop(name) for name in list(tensors) if ".lora_" in name}
        tensors.pop("lm_head.weight", None)
        tensors = {name.removeprefix("model."): tensor.to(dtype) for name, tensor in tensors.items()}
        model.load_state_dict(tensors, assign=True)
        lora = LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, bias="none")
        self.model = get_peft_model(model, lora)
        self.model.train()
        self.trained = {}
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                name = name.removeprefix("base_model.").replace(".default", "")
                parameter.data.copy_(adapter.pop(name))
                self.trained[name] = parameter
        if adapter:
            raise ValueError(f"not taken by PEFT: {sorted(adapter)}")
        self.optimizer = Optimizer(list(self.trained.values()), [])

    def forward(self):
        return self.model(inputs_embeds=self.x).last_hidden_state

    def compare(self, outputs):
        ours = load_file(outputs)
        y = self.forward()
        leaves = {"x": self.x} | self.trained
        gradients = torch.autograd.grad(y, list(leaves.values()), self.g)
        own = {"y": y} | {f"gradient/{name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        if own.keys() != ours.keys():
            raise ValueError(f"other results: {sorted(own.keys() ^ ours.keys())}")
        return {name: difference(own[name], ours[name]) for name in ours}

    def run(self, report):
        def step():
            self.forward().backward(self.g)
            self.x.grad = None
            return self.optimizer.step().item()

        report.values["gradient norm"] = report.time("step", step)
