"""Checks that the flags of a documented command exist."""

import importlib
import re
from pathlib import Path
from typing import Any

from bertjax.models.encoders.registry import ENCODERS


def _fields_of_model(config: Any) -> set[str]:
    """The keys of config.model that a config of pre-training may lack: the fields of the spec."""
    name = config.model.get("encoder")
    return set(ENCODERS[name].spec.__dataclass_fields__) if name else set()


def assert_flags_exist(command: str, program: Path) -> None:
    """Asserts that the program has each --flag, and its config has each --config.key."""
    source = program.read_text(encoding="utf-8")
    for name in re.findall(r"^import (\w+)$", source, re.MULTILINE):
        other = program.with_name(f"{name}.py")  # a program may take the flags of another
        source += other.read_text(encoding="utf-8") if other.is_file() else ""
    config = re.search(r"--config=configs/(\w+)\.py:?(\S*)", command)
    if config:
        module = importlib.import_module(f"configs.{config[1]}")
        whole = module.get_config(*filter(None, [config[2]]))
    for flag in re.findall(r"\s--([\w.]+)", command):
        if flag.startswith("config."):
            node = whole
            for key in flag.split(".")[1:]:
                if node is whole.get("model") and key in _fields_of_model(whole):
                    break
                assert key in node, f"{command}: no key {flag}"
                node = node[key]
        else:
            in_shell = program.suffix == ".sh"
            named = rf"--{flag}\b" if in_shell else rf"""["'](--)?{flag}["']"""
            assert re.search(named, source), f"{command}: no flag {flag}"
