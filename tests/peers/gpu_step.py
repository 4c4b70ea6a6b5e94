"""Training steps on a GPU in eager PyTorch with PEFT, as `cargo bench -p hankel-models --bench gpu_step` times ours.

The same sizes: TinyGPT of 4 layers, width 128, 4 heads, 32 sequences, and one layer of Mistral-7B in nf4 with a vocabulary of
1,024 and gradient checkpointing (QLoRA, bitsandbytes). LoRA r = 16 on queries and values by PEFT, HRM of 32 states as a causal
convolution by `torch.fft`; frozen backbone; forward, backward, clipping, fused AdamW; nothing is read back between steps.

    python tests/peers/gpu_step.py [names] [--precision f16] [--compile] [--batch N] [--length N ...]

Names are parts of those of the cases, as `T=512` or `mistral`. It needs torch with CUDA, peft, transformers and bitsandbytes.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import nn

WIDTH, HEADS, LAYERS, VOCABULARY, STATES = 128, 4, 4, 256, 32
WARM_UP, ENOUGH = 5, 3.0


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = (p(x).view(batch, steps, HEADS, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, steps, width))


class Hrm(nn.Module):
    """x + gate C s with s_t = exp(-rate) s_{t-1} + B x_t."""

    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.randn(STATES, WIDTH) * 0.02)
        self.c = nn.Parameter(torch.randn(WIDTH, STATES) * 0.02)
        self.log_a, self.log_dt, self.gate = (nn.Parameter(torch.zeros(n)) for n in (STATES, STATES, 1))

    def forward(self, x):
        u = F.linear(x, self.b).float()
        steps = u.shape[1]
        rate = torch.exp(self.log_a + self.log_dt)
        kernel = torch.exp(-rate[:, None] * torch.arange(steps, device=x.device))
        spectrum = torch.fft.rfft(u.transpose(1, 2), n=2 * steps) * torch.fft.rfft(kernel, n=2 * steps)
        states = torch.fft.irfft(spectrum, n=2 * steps)[..., :steps].transpose(1, 2)
        return x + F.linear(states, self.gate * self.c)


class Layer(nn.Module):
    def __init__(self, hrm):
        super().__init__()
        self.input_norm, self.self_attn, self.norm = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.up_proj, self.down_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.hrm = Hrm() if hrm else nn.Identity()

    def forward(self, x):
        x = x + self.self_attn(self.input_norm(x))
        return self.hrm(x + self.down_proj(F.gelu(self.up_proj(self.norm(x)))))


class TinyGpt(nn.Module):
    def __init__(self, length, hrm):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(length, WIDTH)
        self.layers = nn.ModuleList(Layer(hrm) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), tokens.flatten())


def model_with(kind, length):
    model = TinyGpt(length, kind == "hrm")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".hrm." in name)
    if kind == "lora":
        return get_peft_model(model, LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    return model


def qlora():
    """One layer of Mistral-7B as QLoRA has it: nf4 with double quantization, products in bf16."""
    import bitsandbytes as bnb
    from peft import prepare_model_for_kbit_training
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(vocab_size=1024, num_hidden_layers=1, use_cache=False, attn_implementation="sdpa")
    model = MistralForCausalLM(config).to(torch.bfloat16)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name != "lm_head":
            four = bnb.nn.Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4"
            )
            four.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, four)
    model.is_loaded_in_4bit = True
    model = prepare_model_for_kbit_training(model.cuda(), gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, tokens):
            return self.model(input_ids=tokens, labels=tokens).loss

    return Loss()


def measure(kind, batch, length, arguments):
    torch.manual_seed(0)
    model = (qlora() if kind == "mistral" else model_with(kind, length)).cuda().train()
    trained = [p for p in model.parameters() if p.requires_grad]
    if arguments.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(VOCABULARY, (batch, length), device="cuda")

    def step():
        with torch.autocast("cuda", torch.float16, enabled=arguments.precision == "f16" and kind != "mistral"):
            loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < ENOUGH:
        for _ in range(16):
            step()
        torch.cuda.synchronize()
        done += 16
    seconds = (time.perf_counter() - begun) / done
    peak = torch.cuda.max_memory_allocated() / 2**20
    name = name_of(kind, batch, length)
    print(f"{name:<40} {seconds:>9.4f} s/step {batch * length / seconds:>12.0f} tokens/s   peak {peak:>9.1f} MiB", flush=True)


def name_of(kind, batch, length):
    return f"mistral block nf4 lora T={length} B={batch}" if kind == "mistral" else f"tiny_gpt {kind} T={length} B={batch}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--precision", choices=["f32", "f16"], default="f32", help="f16: autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int, nargs="*")
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {arguments.precision}", flush=True)
    for kind, batch, lengths in [("hrm", 32, [512, 1024, 2048]), ("lora", 32, [512, 1024, 2048]), ("mistral", 1, [512, 4096])]:
        for length in arguments.length or lengths:
            name = name_of(kind, arguments.batch or batch, length)
            if not arguments.names or any(part in name for part in arguments.names):
                measure(kind, arguments.batch or batch, length, arguments)


if __name__ == "__main__":
    main()
