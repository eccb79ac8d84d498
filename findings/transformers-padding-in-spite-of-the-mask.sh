#!/usr/bin/env bash
# transformers 5.24.0: the logits of convbert, nystromformer and yoso depend on how far a text is padded, although the
# padding is masked (attention_mask) and its embedding is zero; those of bert do not. Convolutions, and Nystromformer's
# means of neighbouring places, read masked places too.
# Prints the largest difference between the logits of two texts of 5 tokens, padded to 5 and to 16 places, of random
# weights. Exit code 1: this has changed.
set -eu
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.14.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers

small = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
expected = {"bert": False, "convbert": True, "nystromformer": True, "yoso": True}
found = {}
for kind in expected:
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING[kind](**small, **({"embedding_size": 16} if kind == "convbert" else {}))
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
        model.get_input_embeddings().weight[config.pad_token_id] = 0
        texts, logits = torch.randint(4, 30, (2, 5)), []
        for length in (5, 16):
            padded = torch.nn.functional.pad(texts, (0, length - 5), value=config.pad_token_id)
            logits.append(model(padded, attention_mask=(padded != config.pad_token_id).long()).logits)
    difference = float((logits[0] - logits[1]).abs().max())
    found[kind] = difference > 1e-2
    print(f"{kind:14} {difference:.1e}")
sys.exit(found != expected)
PYTHON
