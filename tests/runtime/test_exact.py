"""Operations that give the same bits on every device. What a GPU makes of them is for tools/device_check.py to say; here is the rest."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from splitter_runtime.errors import ConfigError
from splitter_runtime.exact import Exact

TOOL = Path(__file__).resolve().parents[2] / "tools" / "device_check.py"
META = torch.device("meta")  # a device that isn't the CPU, on any machine


class Seen(TorchDispatchMode):
    """The operations that come through, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((str(function), args))
        return function(*args, **(kwargs or {}))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [args for called, args in self.calls if called.startswith(f"aten.{name}.")]


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("device_check", TOOL)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_changes_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Every operation of the table, under the mode and without it: divisions and limits are done in another way there."""
    assert tool().main(["--device", "cpu", "--rounds", "2"]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.endswith("2 rounds: 0 differences\n")


def test_no_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert tool().main([]) == 2
    assert capsys.readouterr().out == "no CUDA device here\n"


def test_the_command_line() -> None:
    ended = subprocess.run([sys.executable, str(TOOL), "--rounds", "many"], capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].endswith("invalid int value: 'many'")


X = torch.randn(3, 4)
REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "power": (lambda x: x**0.45, "pow is not known"),
    "square": (lambda x: x**2, "pow is not known"),
    "root": (lambda x: x.sqrt(), "sqrt is not known"),
    "exponential": (lambda x: x.exp(), "exp is not known"),
    "sum": (lambda x: x - x.sum(), "sum is not known"),
    "mean": (lambda x: x.mean(0), "mean is not known"),
    "maximum of two": (lambda x: torch.maximum(x, -x), "maximum of float32 is not known"),
    "largest": (lambda x: x.amax(), "amax is not known"),
    "product": (lambda x: x @ x.t(), "mm is not known"),
    "to a whole number": (lambda x: x.int(), "from float32 to int32 is not known"),
    "into a whole number": (lambda x: torch.zeros(3, 4, dtype=torch.uint8).copy_(x), "from float32 to uint8"),
    "half a sum": (lambda x: x.half() + 1, "add of float16 is not known"),
    "half a double": (lambda x: x.double().half(), "from float64 to float16"),
    "two roundings": (lambda x: torch.add(x, x, alpha=0.3), "add with alpha=0.3"),
    "a subtraction with alpha": (lambda x: torch.sub(x, 3, alpha=2), "sub with alpha=2"),
    "rounded division": (lambda x: torch.div(x, 3, rounding_mode="floor"), "div in this form"),
    "floor division": (lambda x: x // 3, "floor_divide is not known"),
    "decimals": (lambda x: x.round(decimals=2), "round in this form"),
    "limits of tensors": (lambda x: x.clamp(torch.zeros(4), None), "clamp with tensors as limits"),
    "limits of no number": (lambda x: x.clamp(min=float("nan")), "clamp with such a number"),
    "a complex number": (lambda x: x * 1j, "mul with such a number"),
    "a large number": (lambda x: x.double() + (2**60 + 1), "add with such a number"),
    "random": (lambda x: x + torch.rand(4), "rand is not known"),
    "drawn in place": (lambda x: x.clone().normal_(), "normal is not known"),
    "given a place": (lambda x: torch.add(x, 1, out=torch.empty(3, 4)), "add is not known"),
    "steps": (lambda x: x + torch.arange(4), "arange is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("inference", [False, True])
def test_refused(case: str, inference: bool) -> None:
    run, said = REFUSED[case]
    with pytest.raises(ConfigError, match="R605") as caught, torch.inference_mode(inference), Exact(X.device):
        run(X)
    assert said in str(caught.value), caught.value


def test_it_divides_by_tensors() -> None:
    seen = Seen()
    with seen, Exact(META):
        x = torch.empty(2, 3, device="meta")
        x.div(255)
        x.clone().div_(3.5)
        torch.empty(3, dtype=torch.uint8, device="meta") / 7
        x / torch.tensor(3.0)
        x / torch.tensor([1.0, 2.0, 3.0])
    divisors = [args[1] for args in (*seen.of("div"), *seen.of("div_"))]
    assert [(type(one), one.device, one.dtype) for one in divisors] == [(torch.Tensor, META, torch.float32)] * 5


def test_constants_are_brought_and_kept() -> None:
    mean, seen = torch.tensor([1.0, 2.0]), Seen()
    with seen, Exact(META):
        x = torch.empty(5, 2, device="meta")
        for _ in range(3):
            x = x - mean
        assert len(seen.of("to")) == 1
        mean += 1  # of the CPU alone
        x - mean
        assert len(seen.of("to")) == 2
        (mean * 2).exp().sum()  # as the script does it, too
    assert x.device == META


def test_nothing_leaves_the_device() -> None:
    x = torch.empty(2, device="meta")
    with pytest.raises(ConfigError, match="_to_copy takes what it is given to cpu"), Exact(META):
        x.to("cpu")
    with pytest.raises(ConfigError, match="add changes a tensor on cpu"), Exact(META):
        torch.zeros(2).add_(x)
    with pytest.raises(ConfigError, match="rand is not known"), Exact(META):
        x + torch.rand(2)


def test_inference_mode() -> None:
    """Operations come undivided then."""
    x = torch.arange(256, dtype=torch.uint8).view(4, 64)
    expected = x.float().div(255).reshape(-1, 8).flip(0)
    with torch.inference_mode(), Exact(x.device):
        made = x.float().div(255).reshape(-1, 8).flip(0)
        assert bool((made >= 0).all())
    assert torch.equal(made, expected)
