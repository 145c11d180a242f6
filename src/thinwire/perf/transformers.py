"""Tables of transformers: shapes as in public checkpoints, uses for a usual length of a sequence."""

from __future__ import annotations

from thinwire.perf.network import EMBEDDING, LAST, Layer, Network, joined, norm, weighted


def _table(name: str, rows: int, width: int) -> list[Layer]:
    return [Layer(f"{name}.weight", (rows, width), 0, EMBEDDING)]


def bert_large() -> Network:
    """BERT-large, uncased, with both heads of pre-training: 336,226,108 parameters; 128 tokens an example.

    The read-out is tied to the word embedding: one tensor, used once for every token.
    """
    width, tokens = 1024, 128
    layers = joined(
        [Layer("word.weight", (30522, width), tokens, EMBEDDING)],
        _table("position", 512, width),
        _table("type", 2, width),
        norm("embedding_norm", width),
        *(_bert_block(f"block{k}", width, tokens) for k in range(24)),
        weighted("pooler", (width, width), 1),
        weighted("transform", (width, width), tokens),
        norm("transform_norm", width),
        [Layer("read_out.bias", (30522,))],
        weighted("next_sentence", (2, width), 1, LAST),
    )
    return Network("bert-large", layers, 32, "sequence of 128 tokens", 0.4, "bert-large-uncased")


def _bert_block(name: str, width: int, tokens: int) -> tuple[Layer, ...]:
    return joined(
        *(
            weighted(f"{name}.{what}", (width, width), tokens)
            for what in ("query", "key", "value", "attention")
        ),
        norm(f"{name}.norm1", width),
        weighted(f"{name}.up", (4 * width, width), tokens),
        weighted(f"{name}.down", (width, 4 * width), tokens),
        norm(f"{name}.norm2", width),
    )


def gpt2_medium() -> Network:
    """GPT-2 medium, read-out tied to the embedding: 354,823,168 parameters; 1024 tokens an example."""
    width, tokens = 1024, 1024
    layers = joined(
        [Layer("wte.weight", (50257, width), tokens, EMBEDDING)],
        _table("wpe", 1024, width),
        *(_gpt2_block(f"block{k}", width, tokens) for k in range(24)),
        norm("norm", width),
    )
    return Network("gpt2-medium", layers, 8, "sequence of 1024 tokens", 0.4, "gpt2-medium")


def _gpt2_block(name: str, width: int, tokens: int) -> tuple[Layer, ...]:
    return joined(
        norm(f"{name}.norm1", width),
        weighted(f"{name}.qkv", (3 * width, width), tokens),
        weighted(f"{name}.attention", (width, width), tokens),
        norm(f"{name}.norm2", width),
        weighted(f"{name}.up", (4 * width, width), tokens),
        weighted(f"{name}.down", (width, 4 * width), tokens),
    )


def llama7b() -> Network:
    """A transformer with the shapes of Llama 2 7B: 6,738,415,616 parameters; 4096 tokens an example."""
    width, hidden, tokens = 4096, 11008, 4096
    layers = joined(
        _table("embedding", 32000, width),
        *(_llama_block(f"block{k}", width, hidden, tokens) for k in range(32)),
        norm("norm", width, bias=False),
        weighted("read_out", (32000, width), tokens, LAST, bias=False),
    )
    return Network("llama-7b", layers, 1, "sequence of 4096 tokens", 0.4, "Llama 2 7B")


def _llama_block(name: str, width: int, hidden: int, tokens: int) -> tuple[Layer, ...]:
    square = [
        layer
        for what in ("query", "key", "value", "attention")
        for layer in weighted(f"{name}.{what}", (width, width), tokens, bias=False)
    ]
    return joined(
        norm(f"{name}.norm1", width, bias=False),
        square,
        norm(f"{name}.norm2", width, bias=False),
        weighted(f"{name}.gate", (hidden, width), tokens, bias=False),
        weighted(f"{name}.up", (hidden, width), tokens, bias=False),
        weighted(f"{name}.down", (width, hidden), tokens, bias=False),
    )
