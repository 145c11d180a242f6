"""Models: sizes as published or planned, forward and backward, the same weights from the same seed."""

import pytest
import torch
from torch.nn import functional

from thinwire.errors import LabError
from thinwire_lab.data.task import SHIFT, shift_and_flip
from thinwire_lab.models import MODELS, fit_check, model_card

PARAMETERS = {
    "digits-cnn": 151_306,
    "lenet": 431_080,  # Caffe's LeNet, as published
    "cifarnet": 1_756_426,
    "alexnet": 5_811_946,
    "alexnet-dropout": 5_811_946,
    "vgg": 3_917_386,
    "resnet8": 75_290,
    "resnet8-wide": 657_154,
    "resnet20": 269_722,  # 0.27 M in He et al., table 6
    "char-transformer": 619_969,
    "mlp": 1_863_690,
    "lstm": 876_929,
    "gpt": 809_856,
    "word-gpt": 5_273_088,
}


@pytest.mark.parametrize("name", MODELS)
def test_size_forward_and_backward(name: str) -> None:
    card = model_card(name)
    net = card.build(seed=0)
    assert sum(parameter.numel() for parameter in net.parameters()) == PARAMETERS[name]
    x, y = card.example(batch=2)
    logits = net(x)
    assert logits.shape == (*y.shape, card.classes)
    functional.cross_entropy(logits.flatten(0, -2), y.flatten()).backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


def test_weights_follow_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, same, other = (model_card("lenet").build(seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    pairs = zip(first.parameters(), same.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_alexnet_is_mostly_fully_connected() -> None:
    net = model_card("alexnet").build(seed=0)
    sizes = [parameter.numel() for parameter in net.parameters() if parameter.dim() == 2]
    assert sum(sizes) > 0.9 * PARAMETERS["alexnet"]


def test_transformer_does_not_look_ahead() -> None:
    card = model_card("char-transformer")
    net = card.build(seed=0).eval()
    x, _ = card.example(batch=1)
    changed = x.clone()
    changed[0, 40:] = (changed[0, 40:] + 1) % card.classes
    with torch.no_grad():
        assert torch.allclose(net(x)[:, :40], net(changed)[:, :40], atol=1e-5)
        assert not torch.allclose(net(x)[:, 40:], net(changed)[:, 40:], atol=1e-5)


def test_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(LabError, match="unknown model 'nets': choose one of digits-cnn, lenet"):
        model_card("nets")


def test_model_that_does_not_fit_the_task_is_refused() -> None:
    with pytest.raises(LabError, match=r"'resnet20' takes examples .* task 'mnist' .*: choose one of lenet"):
        fit_check("resnet20", "mnist", (1, 28, 28))


def test_augmentation_shifts_and_mirrors() -> None:
    """Every result is a window of the padded picture or its mirror image, and both kinds occur."""
    torch.manual_seed(0)
    images = torch.randn(64, 3, 8, 8)
    padded = functional.pad(images, (SHIFT,) * 4)
    kinds = set()
    for image, result in zip(padded, shift_and_flip(images), strict=True):
        windows = image.unfold(1, 8, 1).unfold(2, 8, 1).permute(1, 2, 0, 3, 4).reshape(-1, 3, 8, 8)
        plain = (windows == result).flatten(1).all(1).any().item()
        mirrored = (windows.flip(-1) == result).flatten(1).all(1).any().item()
        assert plain or mirrored
        kinds.add((plain, mirrored))
    assert kinds == {(True, False), (False, True)}
