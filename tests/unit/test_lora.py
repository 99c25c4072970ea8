"""LoRA adapters of frozen layers."""

import pytest
import torch
from torch import nn

from eopipe.errors import UsageError
from eopipe.models import Architecture
from eopipe.models.build import add_lora_adapters, freeze, merge_lora_adapters


def unet() -> nn.Module:
    torch.manual_seed(0)
    return Architecture("unet", 3, 2, 4, 1).build()


def test_adapters_are_merged_into_the_weights_by_their_names() -> None:
    down, up, base = torch.rand(2, 3, 3, 3), torch.rand(5, 2, 1, 1), torch.rand(5, 3, 3, 3)
    adapted = {"a.base_layer.weight": base, "a.lora_A.default.weight": down, "a.lora_B.default.weight": up}
    plain = merge_lora_adapters(adapted | {"a.base_layer.bias": base[:, 0, 0, 0], "b.weight": up})
    assert sorted(plain) == ["a.bias", "a.weight", "b.weight"]
    x = torch.rand(1, 3, 6, 6)
    conv = nn.functional.conv2d
    torch.testing.assert_close(conv(x, plain["a.weight"]), conv(x, base) + conv(conv(x, down), up))


def test_rank_zero_leaves_a_model_as_it_is() -> None:
    model = unet()
    assert add_lora_adapters(model, ("down.",), 0) is model
    assert merge_lora_adapters(model.state_dict()).keys() == model.state_dict().keys()


def test_only_the_adapters_are_trained_and_the_published_model_has_them_merged() -> None:
    pytest.importorskip("peft")
    model = add_lora_adapters(freeze(unet(), ("down.",)), ("down.",), 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.1)
    x = torch.rand(2, 3, 8, 8)
    for _ in range(3):
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
    same = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    assert same == {name for name in before if name.startswith("down.") and ".lora_" not in name}
    published = unet()
    published.load_state_dict(merge_lora_adapters(model.state_dict()))
    torch.testing.assert_close(published(x), model(x))


def test_without_peft_an_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(UsageError, match="needs peft; install eopipe"):
        add_lora_adapters(unet(), ("down.",), 2)
