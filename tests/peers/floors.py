"""Operations that a step cannot do without: multiply-adds counted as two.

Counted are the causal half of attention, gradients of activations down to the lowest adapter and of what is trained, and
nothing else: no gradients of frozen weights, nothing below the lowest adapter, no element-wise work. The probabilities of
attention are computed again for its gradient, since keeping them would cost more memory than everything else together.
"""

RANK = 16
STATES = 32


def tiny_gpt_step(adapter, batch, steps, layers=4, width=128, vocabulary=256):
    """Operations of a training step with LoRA on queries and values, or HRM after each layer."""
    product = 2 * width * width
    # Scores and their product with the values, over (T + 1) / 2 keys for each query.
    attention = 2 * (2 * width * (steps + 1) / 2)
    head = 2 * width * vocabulary
    forward = layers * (12 * product + attention) + head
    # Gradients of inputs through a layer; attention has five products: scores again, dV, dP, dQ, dK.
    backward = head + (layers - 1) * (12 * product + 2.5 * attention)
    if adapter == "lora":
        low_rank = 2 * 2 * (2 * width * RANK)
        forward += layers * low_rank
        # Of the lowest layer: down to queries and values, but not to keys and the layer's input.
        backward += 9 * product + 2 * attention
        # dA, dB and what lies between them; the input's gradient in all layers but the lowest.
        backward += layers * 1.5 * low_rank + (layers - 1) * 0.5 * low_rank
    else:
        recurrent = 2 * (2 * width * STATES)
        forward += layers * (recurrent + 2 * STATES)
        # dC, dB, the states' gradient; the input's in all layers but the lowest.
        backward += layers * (1.5 * recurrent + 4 * STATES) + (layers - 1) * 0.5 * recurrent
    return batch * steps * (forward + backward)


def mistral_block(steps, d_model, d_ff, heads, kv_heads):
    """Operations of a training step of a block with LoRA on queries and values, the input's gradient included."""
    narrow = d_model * kv_heads // heads
    products = 2 * (2 * d_model * d_model + 2 * d_model * narrow + 3 * d_model * d_ff)
    attention = 2 * (2 * d_model * (steps + 1) / 2)
    low_rank = 2 * RANK * ((d_model + d_model) + (d_model + narrow))
    return steps * (2 * products + 3.5 * attention + 3 * low_rank)
