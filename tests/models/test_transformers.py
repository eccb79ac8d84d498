"""Models of transformers by their configuration, or from the files of a checkpoint."""

import json
import socket
import sys
import warnings

import cloudpickle
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgefl.cost.measure import measure
from edgefl.cost.method_cost import stored_parameters
from edgefl.data.dataset import check_padding
from edgefl.data.spec import data_set
from edgefl.errors import Note, UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.models.pretrained import places_of_names
from edgefl.models.random_layers import backward_of
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.models.zoo.transformers import padding_of
from edgefl.tasks.classification import Classification
from edgefl.tasks.language_model import LanguageModel

pytestmark = pytest.mark.extras
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -e '.[transformers]'"
)
cloudpickle.register_pickle_by_value(sys.modules[__name__])

GPT2 = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 32}
WIDE = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refused(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refused)


def built(kind, head="sequence_classification", shape=(12,), classes=30, **options):
    return build_model(
        MODELS["transformers"](transformers=kind, head=head, **options), shape, classes, tokens=len(shape) == 1
    )


def test_a_checkpointed_model_has_the_gradient_of_the_plain_one_and_less_memory():
    method = build_method("fedavg", LocalOptions(batch=4))
    args = {**GPT2, "attn_implementation": "sdpa", **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)}
    steps, peaks = [], []
    for checkpointing in (False, True):
        model = built("gpt2", "next_token", args=args, checkpointing=checkpointing)
        peaks.append(measure(model, method, model.depth, 4).peak_memory_bytes)
        weights = weights_of(model)
        leaves = [each.requires_grad_() for block in weights for each in block.values()]
        with model.held(), using(training=True):
            loss = model.apply_blocks(weights, torch.arange(24).view(2, 12) % 30).square().mean()
            backward_of(loss)
        steps.append(torch.cat([each.grad.flatten() for each in leaves if each.grad is not None]))
    torch.testing.assert_close(*steps)
    assert peaks[1] < 0.9 * peaks[0]


def library_model(model):
    wrapper = model.blocks["model"] if model.depth == 1 else model.blocks["embedding"]._compute.keywords["module"]
    return wrapper._model[0]


def weights_of(model):
    return model.layout.weights(*model.layout.split(initial_vector(model, 0)))


@pytest.mark.parametrize(
    ("kind", "head", "args", "shape"),
    [
        ("gpt2", "next_token", GPT2, (12,)),
        ("gpt2", "sequence_classification", GPT2 | {"vocab_size": 30}, (12,)),
        ("llama", "next_token", WIDE, (12,)),
        ("bert", "sequence_classification", WIDE | {"vocab_size": 30, "pad_token_id": None}, (12,)),
        ("opt", "next_token", {"ffn_dim": 32, "word_embed_proj_dim": 16, "pad_token_id": None, **WIDE}, (12,)),
        ("vit", "image_classification", WIDE | {"patch_size": 4}, (3, 16, 24)),
    ],
)
def test_a_configuration_becomes_a_model_that_computes_as_the_library_does(kind, head, args, shape):
    if kind == "opt":
        args = {name: value for name, value in args.items() if name != "intermediate_size"}
    model = built(kind, head, shape, args=args)
    assert measure(model, build_method("fedavg", LocalOptions()), model.depth, 2).training_flops > 0
    assert list(model.blocks) == ["embedding", "layer1", "layer2", "head"]
    reference = library_model(model).eval()
    # The library numbers roberta's positions without token 1, its padding.
    inputs = torch.randint(2, 30, (3, *shape)) if len(shape) == 1 else torch.randn(3, *shape)
    with torch.no_grad(), using(training=False):
        found = model.apply_blocks(weights_of(model), inputs)
        expected = reference(inputs).logits
    assert torch.allclose(found, expected[:, -1] if head == "next_token" else expected, atol=1e-5)
    if len(shape) == 1:
        assert model.tokens == 30
    names = {entry.name for entry in model.layout.entries}
    assert names <= set(reference.state_dict())
    assert model.layout.parameter_count == sum(each.numel() for each in reference.parameters())


@pytest.mark.parametrize(
    ("kind", "head", "table"),
    [
        ("gpt2", "sequence_classification", "wte"),
        ("roberta", "sequence_classification", "word_embeddings"),
        ("opt", "next_token", "embed_tokens"),
    ],
)
def test_every_token_is_trained(kind, head, table):
    args = {"gpt2": GPT2, "opt": WIDE | {"ffn_dim": 32, "word_embed_proj_dim": 16}}.get(kind, WIDE)
    args = {name: value for name, value in args.items() if (kind, name) != ("opt", "intermediate_size")}
    args |= {"vocab_size": 30, "max_position_embeddings": 32, "pad_token_id": None}
    model = built(kind, head, (30,), args=args)
    vector = initial_vector(model, 0).requires_grad_()
    with using(training=False):
        logits = model.apply_blocks(model.layout.weights(vector), torch.stack([torch.arange(30)] * 2))
    (gradient,) = torch.autograd.grad(logits[:, 3].square().sum(), vector)
    named = {name: each for block in model.layout.weights(gradient) for name, each in block.items()}
    rows = named[next(name for name in named if name.endswith(f"{table}.weight"))]
    assert rows.shape == (30, 16)
    assert bool((rows != 0).any(dim=1).all())
    # No token changes the positions of others.
    places = [each for name, each in named.items() if name.endswith("position_embeddings.weight")]
    assert all(int((each != 0).any(dim=1).sum()) == 30 for each in places)


@pytest.mark.parametrize("targets", [["score"], ["score", "c_attn"]], ids=str)
def test_adapters_of_the_head_are_trained(targets):
    pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[peft]'")
    model = built("gpt2", args=GPT2 | {"vocab_size": 30}, lora={"targets": targets, "rank": 2})
    vector = torch.randn(model.layout.size, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with using(training=False):
        logits = model.apply_blocks(model.layout.weights(vector), torch.randint(0, 30, (3, 12)))
    (gradient,) = torch.autograd.grad(logits.square().sum(), vector)
    named = {name: each for block in model.layout.weights(gradient) for name, each in block.items()}
    assert {name.partition(".lora")[0].rpartition(".")[2] for name in named} == set(targets)
    assert all(float(each.abs().max()) > 0 for each in named.values())


UNPADDED = WIDE | {"vocab_size": 30, "pad_token_id": None}


@pytest.mark.parametrize(("kind", "args"), [("gpt2", GPT2), ("llama", WIDE), ("bert", UNPADDED)])
def test_its_layers_are_blocks_that_cost_what_the_whole_costs(monkeypatch, kind, args):
    head = "sequence_classification" if kind == "bert" else "next_token"
    blocks = built(kind, head, args=args)
    monkeypatch.setattr("edgefl.models.zoo.transformers.layered", lambda *_: None)
    whole = built(kind, head, args=args)
    assert (blocks.depth, whole.depth) == (4, 1)
    method = build_method("fedavg", LocalOptions())
    costs = [measure(each, method, each.depth, 4) for each in (blocks, whole)]
    assert costs[0].forward_macs == costs[1].forward_macs
    assert costs[0].training_flops == pytest.approx(costs[1].training_flops, rel=0.01)
    tokens, generator = torch.randint(0, 30, (3, 12)), torch.Generator().manual_seed(1)
    values = {entry.name: torch.randn(entry.shape, generator=generator) for entry in whole.layout.entries}
    outputs, gradients = [], []
    for each in (blocks, whole):
        named = [{e.name: values[e.name] for e in each.layout.entries if e.block == k} for k in range(each.depth)]
        vector = each.layout.flatten(named).requires_grad_()
        with using(training=False):
            logits = each.apply_blocks(each.layout.weights(vector), tokens)
        (gradient,) = torch.autograd.grad(logits.square().sum(), vector)
        outputs.append(logits)
        gradients.append({n: t for block in each.layout.weights(gradient) for n, t in block.items()})
    torch.testing.assert_close(outputs[0], outputs[1])
    for name in values:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=1e-4, atol=1e-3)


def test_a_checkpoints_files_give_its_configuration_and_values(tmp_path):
    config = transformers.GPT2Config(**GPT2, vocab_size=30, num_labels=30, pad_token_id=0)
    torch.manual_seed(4)
    saved = transformers.GPT2ForSequenceClassification(config)
    saved.save_pretrained(tmp_path)
    files = {"config": str(tmp_path / "config.json"), "weights": str(tmp_path / "model.safetensors")}
    model = built("gpt2", **files)
    tokens = torch.randint(1, 30, (3, 12))
    with torch.no_grad(), using(training=False):
        assert torch.allclose(model.apply_blocks(weights_of(model), tokens), saved.eval()(tokens).logits, atol=1e-5)
    # Other classes: the head is left out.
    other = built("gpt2", classes=5, **(files | {"weights": {"file": files["weights"], "skip": ["score"]}}))
    assert other.tap_shapes[-1] == (5,)
    config.pad_token_id = None
    # A language model shares its embedding with its head, of which the file has one.
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tied, method = built("gpt2", "next_token", **files), build_method("fedavg", LocalOptions())
    places = places_of_names(tied)
    assert places["lm_head.weight"] is places["transformer.wte.weight"]
    assert stored_parameters(tied, method, tied.depth).model == tied.layout.parameter_count


SIZES = (8, 5, 1)
"""The tokens of three texts."""


def padded(texts, length, before, padding):
    free = [length - len(text) for text in texts]
    sides = [(each, 0) if before else (0, each) for each in free]
    return torch.stack([F.pad(text, side, value=padding) for text, side in zip(texts, sides, strict=True)])


@pytest.mark.parametrize(
    ("kind", "head", "args"),
    [
        ("gpt2", "sequence_classification", GPT2 | {"pad_token_id": 0, "vocab_size": 30}),
        ("gpt2", "causal_lm", GPT2 | {"pad_token_id": 29}),
        ("llama", "next_token", WIDE | {"pad_token_id": 0}),
        ("opt", "next_token", {"ffn_dim": 32, "word_embed_proj_dim": 16, **WIDE}),
        ("bert", "sequence_classification", WIDE | {"vocab_size": 30}),
        ("bert", "causal_lm", WIDE),
        ("roberta", "sequence_classification", WIDE | {"vocab_size": 30}),
        ("deberta-v2", "sequence_classification", WIDE | {"vocab_size": 30}),
        ("bloom", "next_token", {"n_layer": 2, "n_head": 2, "hidden_size": 16, "pad_token_id": 3}),
    ],
)
def test_padding_changes_neither_logits_nor_gradients(kind, head, args):
    """Next to the library, which gets each text alone, without padding, and all with its mask of padding after them."""
    if kind == "opt":
        del (args := dict(args))["intermediate_size"]
    task = LanguageModel() if head == "causal_lm" else None
    model = build_model(MODELS["transformers"](transformers=kind, head=head, args=args), (12,), 30, task, tokens=True)
    assert (model.depth, model.tokens) == (1, 30)
    assert "write args: {pad_token_id: null}" in model.whole
    assert measure(model, build_method("fedavg", LocalOptions()), 1, 2).training_flops > 0
    reference = library_model(model).eval()
    token = reference.config.pad_token_id
    texts = [torch.randint(4, 29, (size,)) for size in SIZES]
    vector = torch.randn(model.layout.size).mul(0.3).requires_grad_()
    weights = model.layout.weights(*model.layout.split(vector))
    reference.load_state_dict({name: each.detach() for name, each in weights[0].items()}, strict=False)

    def of_places(logits, before=False):
        rows = [row[-size:] if before else row[:size] for row, size in zip(logits, SIZES, strict=True)]
        return torch.cat(rows) if head == "causal_lm" else logits

    alone = [reference(torch.stack([text, text])).logits[0] for text in texts]
    expected = torch.cat([each[-1:] if head == "next_token" else each.view(-1, 30) for each in alone])
    for length, before in ((8, False), (12, False), (8, True), (12, True)):
        tokens = padded(texts, length, before, token)
        with using(training=False):
            found = of_places(model.apply_blocks(weights, tokens), before)
        assert torch.allclose(found, expected, atol=1e-5)
        if kind != "bloom":  # which has functions that cannot be stacked
            with using(training=False):
                stacked = torch.vmap(lambda each: model.apply_blocks(weights, each))(tokens[None])[0]
            assert torch.allclose(of_places(stacked, before), expected, atol=1e-5)
    tokens = padded(texts, 12, False, token)
    logits = reference(tokens, attention_mask=(tokens != token).long()).logits
    last = logits[torch.arange(3), torch.tensor(SIZES) - 1] if head == "next_token" else logits
    of_places(last).square().sum().backward()
    (gradient,) = torch.autograd.grad(found.square().sum(), vector)
    named = model.layout.weights(*model.layout.split(gradient))[0]
    for name, parameter in reference.named_parameters():
        own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(named[name], own, rtol=1e-4, atol=1e-5 * float(own.abs().max() + 1))


def test_the_padding_token_is_that_of_args_or_the_file_or_the_type(tmp_path):
    def padding(kind, **options):
        return padding_of(built(kind, **options))

    small, path = WIDE | {"vocab_size": 30}, tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "bert", "pad_token_id": 7, **small}))
    assert padding("bert", args=small) == 0
    assert padding("bert", config=str(path)) == 7
    assert padding("bert", config=str(path), args={"pad_token_id": 2}) == 2
    assert padding("bert", config=str(path), args={"pad_token_id": None}) is None
    assert padding("gpt2", args=GPT2 | {"vocab_size": 30}) is None
    assert padding("phi3", args=small) is None  # its own is 32000
    with pytest.raises(UserError, match=r"args: expected as pad_token_id null or a token .* from 0 to 29, found 30"):
        padding("bert", args=small | {"pad_token_id": 30})
    with pytest.raises(UserError, match=r"args: .*pad_token_id"):
        padding("bert", args=small | {"pad_token_id": "0"})


def test_padding_that_counts_is_refused_and_tokens_between_others_are_noted(tmp_path):
    def check(tokens, labels, task):
        np.savez(tmp_path / "texts.npz", x=tokens, y=labels)
        check_padding(data_set({"name": "arrays", "train": str(tmp_path / "texts.npz")}).for_task(task), 0)

    tokens = np.array([[3, 4, 5, 0], [3, 0, 5, 6]] * 8)
    with pytest.raises(
        UserError, match=r"data: expected .* -100, .* token 0; found others in sample \d+; if no text is"
    ):
        check(tokens, tokens, LanguageModel())
    with pytest.warns(Note, match=r"masks token 0 as padding, and 8 texts have it between other tokens"):
        check(tokens, np.where(tokens == 0, -100, tokens), LanguageModel())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(np.concatenate([tokens[::2], tokens[::2, ::-1]]), np.arange(16) % 2, Classification())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transformers": "gtp2"}, r"transformers: transformers has no model type 'gtp2'; did you mean 'gpt2'"),
        ({"args": {"n_layr": 2}}, r"args: the configuration of 'gpt2' has no 'n_layr'; did you mean 'n_layer'"),
        (
            {"args": {"n_head": 5}},
            r"the sequence_classification of 'gpt2' cannot be built for inputs of 12: .*must be divisible by num_heads",
        ),
        ({"head": "causal_lm", "args": GPT2}, r"expected .* of shape \(2, 30\) .*, found \(2, 12, 30\)"),
        ({"args": {"n_head": "two"}}, r"of 'gpt2'.*str"),
        ({"blocks": ["transformer.h.1"], "args": GPT2}, r"blocks: a model of transformers is split at its layers"),
    ],
    ids=["type", "argument", "heads", "positions", "kind", "blocks"],
)
def test_what_does_not_fit_is_refused_in_one_sentence(options, message):
    with pytest.raises(UserError, match=message) as refused:
        build_model(MODELS["transformers"](**{"transformers": "gpt2", **options}), (12,), 30, tokens=True)
    assert "\n" not in str(refused.value)


def test_wrong_configurations_are_refused(tmp_path):
    path = tmp_path / "config.json"
    for text, message in (
        ("[1]", "expected a mapping"),
        ('{"model_type": "bert"}', "found that of 'bert'"),
        ("{", "JSON"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            built("gpt2", config=str(path))


def test_code_that_a_configuration_names_is_not_executed(tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    code = {"auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}, "trust_remote_code": True}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **GPT2, **code}))
    model = built("gpt2", "next_token", config=str(tmp_path / "config.json"))
    assert type(library_model(model)) is transformers.GPT2LMHeadModel


def test_the_head_follows_from_the_task_and_the_inputs():
    spec, small = MODELS["transformers"], WIDE | {"patch_size": 4}
    assert build_model(spec(transformers="gpt2", args=GPT2 | {"vocab_size": 30}), (12,), 4).tap_shapes[-1] == (4,)
    assert build_model(spec(transformers="vit", args=small), (3, 16, 16), 4, tokens=False).tap_shapes[-1] == (4,)
    task = LanguageModel()
    model = build_model(spec(transformers="gpt2", args=GPT2), (12,), 30, task, tokens=True)
    assert model.tap_shapes[-1] == (12, 30)
    cost = measure(model, build_method("fedavg", LocalOptions()), model.depth, 2)
    assert cost.training_flops > 0
