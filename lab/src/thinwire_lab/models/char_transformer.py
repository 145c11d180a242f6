"""A small transformer that predicts the next character."""

from __future__ import annotations

from torch import Tensor, nn

CONTEXT = 64  # characters it looks back


class CharTransformer(nn.Module):
    """A small GPT over characters: token and place embeddings, causal pre-norm blocks, a linear read-out."""

    def __init__(self, classes: int, width: int = 128, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.place = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.read_out = nn.Linear(width, classes)

    def forward(self, symbols: Tensor) -> Tensor:
        length = symbols.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=symbols.device)
        x = self.token(symbols) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        logits: Tensor = self.read_out(self.norm(x))
        return logits
