"""Configuration: dataclasses in dataclasses, whose fields a YAML file overrides."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, Dict, Optional, Type, TypeVar

import popxl
import yaml

C = TypeVar("C", bound="Config")

PRECISIONS = {16: popxl.float16, 32: popxl.float32}


@dataclasses.dataclass
class Config:
    """A node of a tree of options."""

    def update(self, values: Dict[str, Any], path: str = "") -> None:
        """Set fields from a (nested) mapping."""
        known = {field.name for field in dataclasses.fields(self)}
        for key, value in values.items():
            if key not in known:
                raise ValueError(
                    "unknown option {}{}, the known ones are {}".format(path, key, sorted(known))
                )
            current = getattr(self, key)
            if isinstance(current, Config):
                current.update(value, "{}{}.".format(path, key))
            else:
                setattr(self, key, value)

    def validate(self) -> None:
        """Check this node and all below it."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Config):
                value.validate()

    def dict(self) -> Dict[str, Any]:
        """All options."""
        return dataclasses.asdict(self)

    @classmethod
    def load(cls: Type[C], file: Path, name: str, overrides: Optional[Dict[str, Any]] = None) -> C:
        """The configuration ``name`` of a YAML file."""
        with open(str(file)) as stream:
            entries = yaml.safe_load(stream)
        if name not in entries:
            raise ValueError("no configuration {!r} in {}: {}".format(name, file, sorted(entries)))
        config = cls()
        config.update(entries["common"])
        config.update(entries[name])
        config.update(overrides or {})
        config.validate()
        return config


def arguments(description: str, default: str, **integers: int) -> argparse.Namespace:
    """Command line of a program: a configuration, and some numbers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=str, default=default, help="name of an entry of the YAML file")
    for name, value in integers.items():
        parser.add_argument("--{}".format(name.replace("_", "-")), type=int, default=value)
    return parser.parse_args()
