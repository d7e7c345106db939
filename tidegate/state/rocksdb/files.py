"""The files of a database in a checkpoint: their names, and a file that describes them.

SST files never change, but two databases restored from the same checkpoint give the same numbers to
different files. In a checkpoint, a file is therefore named after its number and the life of the
database that wrote it: `000012-5f0c…e1.sst`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegate.core.errors import StateMisuse
from tidegate.state.backend import NativeFile, PayloadForm, StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.selection import KeySchema
from tidegate.types.evolution import TypeStructure

NATIVE_FORM: Final = "rocksdb"
FACTS_FILE: Final = "tidegate-state.json"
_VERSION: Final = 1
_NEEDED: Final = ("MANIFEST-", "CURRENT", "OPTIONS-", "rocksdict-config.json", FACTS_FILE)

Lives = Mapping[str, str]
"""Maps the number of an SST file to the life that wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What is needed to read the entries of a database."""

    states: tuple[StateMetadata, ...]
    """By number."""
    key_groups: KeyGroupRange
    max_parallelism: int
    keys: KeySchema | None = None
    """None: any values."""
    rows: pa.Schema | None = None
    """The schema of an entry of columnar state."""

    def write(self, directory: Path) -> None:
        keys = None
        if self.keys is not None:
            kinds = pa.schema([(f"{i}", kind) for i, kind in enumerate(self.keys.kinds)])
            keys = {"columns": _encoded(kinds), "tuple": self.keys.is_tuple}
        facts = {
            "version": _VERSION,
            "states": [[s.name, s.declaration, s.form.name, _structure(s)] for s in self.states],
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "max_parallelism": self.max_parallelism,
            "keys": keys,
            "rows": None if self.rows is None else _encoded(self.rows),
        }
        (directory / FACTS_FILE).write_text(json.dumps(facts))

    @classmethod
    def read(cls, directory: Path) -> DatabaseFacts:
        facts: dict[str, Any] = json.loads((directory / FACTS_FILE).read_text())
        if facts["version"] != _VERSION:
            raise StateMisuse(
                f"the state was written in database format {facts['version']}, but this "
                f"version of Tidegate reads {_VERSION}: use the version that wrote it, or newer"
            )
        keys = None
        if facts["keys"] is not None:
            kinds = tuple(field.type for field in _decoded(facts["keys"]["columns"]))
            keys = KeySchema(kinds, facts["keys"]["tuple"])
        return cls(
            states=tuple(_state(*facts_of_state) for facts_of_state in facts["states"]),
            key_groups=KeyGroupRange(*facts["key_groups"]),
            max_parallelism=facts["max_parallelism"],
            keys=keys,
            rows=None if facts["rows"] is None else _decoded(facts["rows"]),
        )


def _structure(state: StateMetadata) -> Any:
    return None if state.structure is None else state.structure.document()


def _state(name: str, declaration: str, form: str, structure: Any = None) -> StateMetadata:
    known = None if structure is None else TypeStructure.of_document(structure)
    return StateMetadata(name, declaration, PayloadForm[form], known)


def native_files(directory: Path, inherited: Lives, life: str) -> list[NativeFile]:
    """The files of a database to store, under their names in checkpoints."""
    files = []
    for path in sorted(directory.iterdir()):
        if path.suffix == ".sst":
            name = f"{path.stem}-{inherited.get(path.stem, life)}.sst"
            files.append(NativeFile(name, path, is_immutable=True))
        elif path.name.startswith(_NEEDED):
            files.append(NativeFile(path.name, path, is_immutable=False))
    return files


def adopt(directory: Path) -> Lives:
    """Rename files fetched from a checkpoint to the names that a database expects."""
    lives = {}
    for path in list(directory.glob("*-*.sst")):
        number, life = path.stem.split("-", 1)
        path.rename(directory / f"{number}.sst")
        lives[number] = life
    return lives


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
