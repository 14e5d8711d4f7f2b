"""Small classifiers of texts and images with random weights, in files as users have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ARCHITECTURE = "test_resnet"  # a small network of timm
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["good", "bad", "rent", "is", "high", "low", "the", "in", "north", "south"]
WORDS += ["w0", "w1", "w2"]


def write_text_classifier(
    folder: Path, labels: list[str], *, half: bool = True, head: bool = True, length: int = 16
) -> Path:
    """A random BERT of one layer with its tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    from localma.pretrained import import_transformers, quiet

    transformers = import_transformers()
    config = transformers.BertConfig(
        vocab_size=len(MARKS + WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=length,
        initializer_range=1.0,
        id2label=dict(enumerate(labels)),
        label2id={label: place for place, label in enumerate(labels)},
    )
    kind = transformers.BertForSequenceClassification if head else transformers.BertModel
    torch.manual_seed(0)
    vocabulary = {word: place for place, word in enumerate(MARKS + WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=length
    )
    with quiet(transformers):
        model = kind(config)
        (model.half() if half else model).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def random_image_network(outputs: int) -> Any:
    """A random network whose answers depend on its image: as it is made, they hardly do."""
    import torch

    from localma.pretrained import find_backbone

    torch.manual_seed(0)
    network = find_backbone(ARCHITECTURE).make(outputs)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=(2.0 / parameter[0].numel()) ** 0.5)
    return network.eval()


def write_image_weights(path: Path, outputs: int = 3, *, half: bool = False) -> Path:
    from safetensors.torch import save_file

    state = {k: v.contiguous() for k, v in random_image_network(outputs).state_dict().items()}
    if half:
        state = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    save_file(state, path)
    return path
