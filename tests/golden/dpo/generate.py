"""Reference values for DPO: twenty optimizer steps of TRL on the small Mistral of ../mistral/window/hf with LoRA.

    pip install torch transformers peft trl tokenizers
    python tests/golden/dpo/generate.py

`pairs.jsonl` is trained on, all of it in every step in two micro-batches; `held-out.jsonl` is evaluated before and after. The tokenizer has a
token for every byte. `start` is the adapter before the first step.
"""

import json
import shutil
from pathlib import Path

import peft
import torch
import transformers
import trl
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

HERE = Path(__file__).parent
BASE = HERE.parent / "mistral" / "window" / "hf"
PAIRS = [
    ("Is it far?", " No, it is near.", " Far."),
    ("Say hello.", " Hello!", " Goodbye, and do not come back."),
    ("2 + 2 =", " 4", " 5, or so"),
    ("Name a colour.", " Blue.", " A table."),
    ("Who are you?", " A small model.", " I"),
    ("Why?", " Because it follows.", " No."),
]
HELD_OUT = [("Where?", " Here.", " Nowhere at all."), ("When?", " Now, I think.", " Never."), ("How?", " Slowly.", " ?")]
BETA, RATE, DECAY, STEPS = 0.5, 2e-3, 0.01, 20


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # As many as the model has; the last ones are never written.
    unused = [f"<unused{index}>" for index in range(512 - 3 - len(alphabet))]
    vocabulary = {token: index for index, token in enumerate(["<unk>", "<s>", "</s>", *alphabet, *unused])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>")


def dataset(pairs):
    return [dict(zip(["prompt", "chosen", "rejected"], pair)) for pair in pairs]


class Recorded(DPOTrainer):
    """Keeps the loss of every micro-batch, which the log rounds."""

    losses = []

    def compute_loss(self, model, inputs, *arguments, **more):
        result = super().compute_loss(model, inputs, *arguments, **more)
        if model.training:
            self.losses.append(float((result[0] if isinstance(result, tuple) else result).detach()))
        return result


def run(smoothing):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="eager")
    adapter = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    arguments = DPOConfig(
        output_dir=str(HERE / "out"), per_device_train_batch_size=3, gradient_accumulation_steps=2, max_steps=STEPS, learning_rate=RATE,
        lr_scheduler_type="constant", weight_decay=DECAY, max_grad_norm=0.0, beta=BETA, label_smoothing=smoothing,
        use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], save_strategy="no",
        logging_steps=1, per_device_eval_batch_size=3, max_length=None, seed=0, disable_tqdm=True,
    )
    trainer = Recorded(
        model=model, args=arguments, processing_class=tokenizer(), peft_config=adapter,
        train_dataset=Dataset.from_list(dataset(PAIRS)), eval_dataset=Dataset.from_list(dataset(HELD_OUT)),
    )
    trainer.losses = []
    return trainer


def figures(metrics):
    names = {"loss": "loss", "rewards/accuracies": "reward_accuracy", "rewards/margins": "reward_margin", "rewards/chosen": "reward_chosen", "rewards/rejected": "reward_rejected"}
    return {ours: metrics[f"eval_{theirs}"] for theirs, ours in names.items()}


def main():
    for name, pairs in [("pairs", PAIRS), ("held-out", HELD_OUT)]:
        (HERE / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in dataset(pairs)))
    tokenizer().save_pretrained(HERE / "tokenizer")
    trainer = run(0.0)
    trainer.model.save_pretrained(HERE / "start")
    (HERE / "start" / "README.md").unlink(missing_ok=True)
    # Nothing of one machine.
    config = json.loads((HERE / "start" / "adapter_config.json").read_text()) | {"base_model_name_or_path": "mistral/window/hf"}
    (HERE / "start" / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    before = figures(trainer.evaluate())
    trainer.train()
    # Micro-batches are the same size: the loss of a step is their mean.
    losses = torch.tensor(trainer.losses).reshape(STEPS, -1).mean(1).tolist()
    facts = {
        "beta": BETA, "lr": RATE, "weight_decay": DECAY, "steps": STEPS, "losses": losses,
        "before": before, "after": figures(trainer.evaluate()),
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, peft, trl)},
    }
    (HERE / "train.json").write_text(json.dumps(facts, indent=1) + "\n")
    shutil.rmtree(HERE / "out", ignore_errors=True)
    print(facts)


if __name__ == "__main__":
    main()
