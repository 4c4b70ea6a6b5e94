"""What sides in PyTorch share."""

import torch


def begin(threads):
    torch.set_num_threads(threads)
    return {"torch": torch.__version__}


def difference(own, ours):
    """Relative difference of two tensors in the Euclidean norm."""
    own, ours = own.detach().double().flatten(), ours.double().flatten()
    return ((own - ours).norm() / ours.norm().clamp_min(1e-300)).item()


class Optimizer:
    """Clipping and AdamW with the settings of our side (`src/optimizer.rs`)."""

    def __init__(self, matrices, others):
        self.parameters = [*matrices, *others]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        groups = [group for group in groups if group["params"]]
        self.adamw = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, fused=True)

    def step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return norm
