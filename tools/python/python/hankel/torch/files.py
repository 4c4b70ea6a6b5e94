"""Adapter directories: ``adapter_config.json`` and ``adapter_model.safetensors``, as the ``train`` program reads and writes them."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from .kinds import AS_WIDE, STREAM_KINDS, Hrm, Site

CONFIG, WEIGHTS, BACKBONE = "adapter_config.json", "adapter_model.safetensors", "trained_backbone.safetensors"
#: What ``train`` and ``bt`` put beside a truncated adapter.
CERTIFICATE = "certificate.json"
#: All files of a directory. One that holds anything else is not replaced.
OWN_FILES = {CONFIG, WEIGHTS, BACKBONE, CERTIFICATE}
#: The ``peft_type`` of directories that are written here.
OWN_TYPES = ("HRM", "STREAM")
PREFIX = "base_model.model."
#: Modules in the names of tensors, by site.
MODULES = {"attention": "self_attn", "mlp": "mlp"}

HRM_DEFAULTS = {
    "paper": {"input": "residual", "discretization": "free"},
    "released": {"input": "norm", "discretization": "zoh-clamped"},
    "identity": {"input": "norm", "discretization": "free"},
}
DIAGONAL = {"b", "c", "gate", "log_a", "log_dt"}
FORMS = {
    "diagonal": DIAGONAL,
    "modal": {"b", "c", "gate", "pole_radius", "pole_angle"},
    "dense": {"b", "c", "gate", "a"},
}


class AdapterError(ValueError):
    """An adapter that cannot be read, or does not fit the model."""


#: A layer and a site in it.
Place = tuple[int, str]


@dataclass
class AdapterFiles:
    """A directory in memory."""

    config: dict[str, Any]
    kind: str
    input: str
    sites: dict[Place, Site]
    """By layer and site, ``attention`` or ``mlp``."""
    backbone: dict[str, Tensor] = field(default_factory=dict)
    """Parameters of the model that were trained with the adapter."""

    def name(self, place: Place, entry: str) -> str:
        """The name of a tensor in the file, without its prefix."""
        layer, site = place
        shared = self.kind in STREAM_KINDS and entry in STREAM_KINDS[self.kind].shared
        return f"model.{'shared' if shared else f'layers.{layer}'}.{MODULES[site]}.{self.kind}.{entry}"

    def width(self) -> int:
        """Width of the residual stream."""
        site = next(iter(self.sites.values()))
        return site.width


def read(directory: str | Path) -> AdapterFiles:
    """Reads a directory. Every tensor must be expected, and every expected one there with its shape.

    Raises:
        AdapterError: Says what is wrong, in which file.
    """
    directory = Path(directory)
    path = directory / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise AdapterError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise AdapterError(f"{path} is not a readable adapter configuration: {error}") from None
    if not isinstance(config, dict):
        raise AdapterError(f"{path} is not a readable adapter configuration: it is not an object")
    tensors = _tensors(directory / WEIGHTS)
    for name, tensor in tensors.items():
        if not name.startswith(PREFIX):
            raise AdapterError(f"{directory / WEIGHTS}: unexpected tensor {name}; names begin with {PREFIX}")
        if not tensor.is_floating_point() or not torch.isfinite(tensor).all():
            raise AdapterError(f"{directory / WEIGHTS}: {name} holds values that are not finite numbers")
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    peft_type = config.get("peft_type")
    if peft_type == "HRM":
        files = _read_hrm(path, config, tensors)
    elif peft_type == "STREAM":
        files = _read_stream(path, config, tensors)
    elif peft_type is None:
        raise AdapterError(f"{path}: there is no peft_type: this is not an adapter")
    else:
        raise AdapterError(
            f"{path}: this is a {peft_type} adapter, which acts on projections; peft.PeftModel.from_pretrained reads it"
        )
    if (directory / BACKBONE).is_file():
        files.backbone = _tensors(directory / BACKBONE)
    return files


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise AdapterError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, KeyError) as error:
        raise AdapterError(f"{path} is not a readable safetensors file: {error}") from None


def _choice(path: Path, key: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise AdapterError(f"{path}: {key} = {value!r}; expected {', '.join(choices)}")
    return value


def _read_hrm(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> AdapterFiles:
    preset = _choice(path, "preset", config.get("preset", "paper"), tuple(HRM_DEFAULTS))
    defaults = HRM_DEFAULTS[preset] | {"mode": "positive", "site": "mlp"}
    full = defaults | {key: value for key, value in config.items() if value is not None}
    _choice(path, "mode", full["mode"], ("positive", "signed", "complex"))
    _choice(path, "input", full["input"], ("residual", "norm", "sublayer"))
    _choice(path, "discretization", full["discretization"], ("free", "zoh", "zoh-clamped"))
    _choice(path, "site", full["site"], ("mlp", "attention", "both"))
    if full["mode"] != "positive" and full["discretization"] != "free":
        raise AdapterError(f"{path}: mode {full['mode']!r} goes with the discretization 'free' only, found {full['discretization']!r}")
    groups: dict[Place, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, entry = _place(path, name, "hrm")
        groups.setdefault(place, {})[entry] = tensor
    if not groups:
        raise AdapterError(f"{path.parent / WEIGHTS}: it holds no tensors")
    places = sorted(groups)
    for layer, site in places:
        if full["site"] not in ("both", site):
            raise AdapterError(f"{path.parent / WEIGHTS}: layer {layer} has tensors at {site}: the configuration's site is {full['site']}")
    layers = sorted({layer for layer, _ in places})
    if full.get("layers", layers) != layers:
        raise AdapterError(f"{path}: it lists the layers {full['layers']}, the file has {layers}")
    forms = full.get("form", "diagonal")
    forms = [forms] * len(places) if isinstance(forms, str) else forms
    states = full.get("state_dims", [full.get("state_dim")] * len(places))
    for key, values in (("form", forms), ("state_dims", states)):
        if len(values) != len(places):
            raise AdapterError(f"{path}: {key} lists {len(values)} layers, the file has {len(places)}")
    sites: dict[Place, Site] = {}
    for place, form, d in zip(places, forms, states):
        _choice(path, "form", form, tuple(FORMS))
        expected = FORMS[form] | ({"angle"} if form == "diagonal" and full["mode"] == "complex" else set())
        group = groups[place]
        where = f"{path.parent / WEIGHTS}: layers.{place[0]}.{MODULES[place[1]]}.hrm"
        if group.keys() != expected:
            odd = sorted(group.keys() ^ expected)[0]
            raise AdapterError(f"{where}.{odd} is {'missing' if odd in expected else 'unexpected'} in a layer in {form} form")
        _check_hrm(where, group, d, full["mode"])
        sites[place] = Hrm(group, full, form)
    widths = {site.b.shape[1] for site in sites.values()}
    if len(widths) > 1:
        raise AdapterError(f"{path.parent / WEIGHTS}: layers have different widths {sorted(widths)}")
    return AdapterFiles(config, "hrm", full["input"], sites)


def _check_hrm(where: str, group: dict[str, Tensor], d: Any, mode: str) -> None:
    if group["b"].ndim != 2 or group["b"].shape[0] != d:
        raise AdapterError(f"{where}.b has shape {list(group['b'].shape)}, expected [{d}, any]")
    width = group["b"].shape[1]
    poles = d // 2 if mode == "complex" else d
    shapes = {"c": [width, d], "gate": [1], "log_a": [poles], "log_dt": [poles], "angle": [poles], "a": [d, d]}
    if mode == "complex" and "log_a" in group and d % 2:
        raise AdapterError(f"{where}.b has {d} states, which are not complex pairs")
    for entry, shape in shapes.items():
        if entry in group and list(group[entry].shape) != shape:
            raise AdapterError(f"{where}.{entry} has shape {list(group[entry].shape)}, expected {shape}")
    if "pole_radius" in group:
        radius, angle = group["pole_radius"], group["pole_angle"]
        if radius.dtype != torch.float64 or angle.dtype != torch.float64 or radius.shape != angle.shape or radius.ndim != 1:
            raise AdapterError(f"{where}.pole_radius and pole_angle must be lists of one length in f64")
        if ((radius < 0) | (radius >= 1) | (angle < 0) | (angle > torch.pi)).any():
            raise AdapterError(f"{where}.pole_radius must lie in [0, 1) and pole_angle in [0, pi]")
        held = int(torch.where((angle == 0) | (angle == torch.pi), 1, 2).sum())
        if held != d:
            raise AdapterError(f"{where}.pole_angle describes {held} states, expected {d}")
    if "a" in group and d and torch.linalg.eigvals(group["a"].double()).abs().max() >= 1:
        raise AdapterError(f"{where}.a is not stable: it has an eigenvalue on or outside the unit circle")


def _place(path: Path, name: str, kind: str) -> tuple[Place, str]:
    parts = name.split(".")
    sites = {module: site for site, module in MODULES.items()}
    if len(parts) == 6 and parts[:2] == ["model", "layers"] and parts[2].isdecimal() and parts[4] == kind and parts[3] in sites:
        return (int(parts[2]), sites[parts[3]]), parts[5]
    raise AdapterError(f"{path.parent / WEIGHTS}: unexpected tensor {PREFIX}{name}; expected names like {PREFIX}model.layers.0.mlp.{kind}.b")


def _read_stream(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> AdapterFiles:
    kind = config.get("kind")
    if kind not in STREAM_KINDS:
        raise AdapterError(f"{path}: the kind {kind!r} is not known here; there are hrm, {', '.join(STREAM_KINDS)}")
    build = STREAM_KINDS[kind]
    settings = config.get("settings", {})
    _choice(path, "input", config.get("input"), ("residual", "norm", "sublayer"))
    places = sorted({(int(name.split(".")[2]), site) for name in tensors for site, module in MODULES.items()
                     if name.startswith("model.layers.") and name.endswith(f".{module}.{kind}.gate") and name.split(".")[2].isdecimal()})
    if not places:
        raise AdapterError(f"{path.parent / WEIGHTS}: it holds no gate of {kind}")
    files = AdapterFiles(config, kind, config["input"], {})
    rest = dict(tensors)
    # What layers share, they share with those at the same site.
    owners: dict[str, Site] = {}
    width = next((t.shape[-1] for name, t in tensors.items() if name.rpartition(".")[2] in AS_WIDE), 0)
    try:
        shapes = build.shapes(settings, width) | {"gate": [1]}
    except (KeyError, TypeError) as error:
        raise AdapterError(f"{path}: settings: {error} is missing") from None
    for place in places:
        own: dict[str, Tensor] = {}
        owner = owners.get(place[1]) if build.shared else None
        for entry, shape in shapes.items():
            name = files.name(place, entry)
            if owner is not None and entry in build.shared:
                continue
            if name not in rest:
                raise AdapterError(f"{path.parent / WEIGHTS}: the tensor {PREFIX}{name} is missing")
            own[entry] = rest.pop(name)
            if list(own[entry].shape) != shape:
                raise AdapterError(f"{path.parent / WEIGHTS}: {PREFIX}{name} has shape {list(own[entry].shape)}, expected {shape}")
        for entry in ("left", "right"):
            if files.name(place, entry) in rest and kind == "selective":
                own[entry] = rest.pop(files.name(place, entry))
        _check_projections(path, own)
        of_others = {"owner": owner} if build.shared else {}
        files.sites[place] = site = build(own, settings, config.get("train_gate", True), **of_others)
        owners.setdefault(place[1], site)
    if rest:
        raise AdapterError(f"{path.parent / WEIGHTS}: unexpected tensor {PREFIX}{min(rest)}")
    return files


def _check_projections(path: Path, own: dict[str, Tensor]) -> None:
    left, right = own.get("left"), own.get("right")
    if left is None and right is None:
        return
    d = own["log_a"].shape[0]
    fits = left is not None and right is not None and left.shape == right.T.shape and right.shape[0] == d and left.shape[0] <= d
    if not fits:
        raise AdapterError(f"{path.parent / WEIGHTS}: the projections left and right do not fit {d} states")


def write(files: AdapterFiles, directory: str | Path) -> None:
    """Writes the directory, replacing one that is there if all in it is such an adapter. A failure leaves that one as it was."""
    directory = Path(directory).absolute()
    tensors: dict[str, Tensor] = {}
    for place, site in files.sites.items():
        for entry, tensor in site.stored().items():
            if not torch.isfinite(tensor).all():
                raise AdapterError(f"{files.name(place, entry)} holds values that are not finite: it is not saved")
            tensors[PREFIX + files.name(place, entry)] = tensor.contiguous()
    contents = {CONFIG: (json.dumps(files.config, indent=2) + "\n").encode(), WEIGHTS: save(tensors)}
    if files.backbone:
        contents[BACKBONE] = save({name: t.detach().cpu().float().contiguous() for name, t in files.backbone.items()})
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir(mode=0o755)
        for name, content in contents.items():
            (new / name).write_bytes(content)
        replaced = directory.exists()
        if replaced:
            _check_replaceable(directory)
        try:
            if replaced:
                directory.rename(old)
            new.rename(directory)
        except BaseException:
            # An interrupt, too, which may come before, between and after the two.
            if old.exists() and not directory.exists():
                old.rename(directory)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(directory: Path) -> None:
    """Refuses a directory that holds anything but an adapter of this package."""
    path = directory / CONFIG
    if not path.is_file():
        raise AdapterError(f"{directory} exists and is not an adapter directory; choose another directory")
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterError(f"{path} cannot be read, so it is not replaced ({error}); choose another directory") from None
    peft_type = config.get("peft_type") if isinstance(config, dict) else None
    if peft_type not in OWN_TYPES:
        raise AdapterError(
            f"{directory} holds an adapter of peft_type {peft_type!r}, not one of {' or '.join(OWN_TYPES)}: it is not replaced; "
            "choose another directory"
        )
    others = sorted(entry.name for entry in directory.iterdir() if entry.name not in OWN_FILES or not entry.is_file())
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise AdapterError(
            f"{directory} holds {', '.join(others[:3])}{more} beside an adapter: it is not replaced; choose another directory"
        )
