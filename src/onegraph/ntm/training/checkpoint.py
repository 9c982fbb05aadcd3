"""Checkpoints on disk: written whole or not at all, and read only if they are whole.

A run is a folder::

    RUN/run.json                            the options, and what made the folder
    RUN/lock                                held by the process that writes, while it lives
    RUN/checkpoints/latest                  the newest checkpoint, the one before, their digests
    RUN/checkpoints/step-00000500/          one checkpoint:
        model.safetensors                       parameters and buffers
        optimizer.safetensors                   the optimiser's tensors, and torch's random state
        state.json                              step, curve, the rest; and digests of the above

A checkpoint is written into a temporary folder, forced to disk and renamed; then `latest` is
replaced in one step. A process can be killed between any two instructions of this: `latest` then
still names a whole checkpoint, and what is half-written is cleared away by the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as tensors_io
from torch import Tensor

from onegraph.ntm.training.errors import USAGE, RunError, reason
from onegraph.ntm.training.lock import Lock
from onegraph.ntm.training.options import Options, from_json

FORMAT = "onegraph-ntm"
VERSION = 1
_PARTIAL = ".partial-"
# A checkpoint's folder: its step, and a number where that step was there already, broken.
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?")


class Broken(Exception):
    """A checkpoint cannot be used; the message says why."""


@dataclass
class Checkpoint:
    """All that a run needs to go on from a step as if it had never stopped.

    Args:
        step: how many steps were taken.
        model: the model's `state_dict`.
        optimizer: the optimiser's tensors, by "index.name".
        settings: the rest of the optimiser's state, as JSON.
        random: torch's random state.
        extra: what else the loop wants back, as JSON: the curve among it.
    """

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    settings: dict[str, Any]
    random: Tensor
    extra: dict[str, Any] = field(default_factory=dict)


class Run:
    """The folder of one run.

    Args:
        folder: where it is, or will be.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.lock = Lock(self.folder / "lock")

    def __str__(self) -> str:
        return str(self.folder)

    def begun(self) -> bool:
        """Whether a run was begun here."""
        return (self.folder / "run.json").exists()

    def begin(self, options: Options) -> None:
        """Make the folder and write the options into it; a run that has these stays as it is.

        From here to `end` no other process can do so.

        Raises:
            RunError: something else is there already, another process writes the run, or the disk
                does not take it.
        """
        document = {"format": FORMAT, "version": VERSION, "options": options.to_json()}
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        with self._writing():
            if self.folder.exists() and not self.begun():
                # A process may have been killed between making the folder and writing to it.
                odd = [path for path in self.folder.iterdir() if not _is_leftover(path)]
                if odd:
                    raise RunError(
                        f"{self} is not empty and holds no run: {odd[0].name} is in it", USAGE
                    )
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            if not self.lock.take():
                raise RunError(f"{self} is being trained by another process", USAGE)
            if not (self.begun() and self.options() == options):
                _replace(self.folder / "run.json", text.encode())

    def end(self) -> None:
        """Let others write."""
        self.lock.release()

    def options(self) -> Options:
        """The options that the run was begun with.

        Raises:
            RunError: there is no run here, or its options cannot be read.
        """
        path = self.folder / "run.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise KeyError("format")
            version, options = document["version"], document.get("options")
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(
                f"{self} is no run: it has no run.json; `onegraph ntm train` makes one", USAGE
            ) from None
        except OSError as error:
            raise RunError(f"cannot read {path}: {reason(error)}", USAGE) from None
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{path} was not written by onegraph, or is damaged", USAGE) from None
        if version != VERSION:
            raise RunError(
                f"{path} has version {version} of the format; this onegraph reads {VERSION}", USAGE
            )
        if not isinstance(options, dict):
            raise RunError(f"{path} is damaged: it holds no options", USAGE)
        try:
            return from_json(options)
        except RunError as error:
            raise RunError(f"{path}: {error}", USAGE) from None

    def latest(self) -> Path | None:
        """The newest checkpoint, whole or not; None before the first."""
        entries = self._entries()
        return self.checkpoints / entries[0]["name"] if entries else None

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and make it the latest; the one before it is kept, older ones go.

        Raises:
            RunError: the disk does not take it; the latest checkpoint is what it was.
        """
        with self._writing():
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            # Where `latest` was lost nothing is cleared away before it names a new checkpoint.
            name, kept = self._free_name(checkpoint.step), self._named()[:1] or self._unnamed()
            partial = self.checkpoints / f"{_PARTIAL}{name}"
            shutil.rmtree(partial, ignore_errors=True)
            try:
                digest = _write(partial, checkpoint)
                os.rename(partial, self.checkpoints / name)
                _sync_folder(self.checkpoints)
                entries = [{"name": name, "sha256": digest}, *kept]
                self._point(entries)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        self._clear({entry["name"] for entry in entries})
        return self.checkpoints / name

    def load(self, path: Path | None = None) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint.

        Returns:
            The checkpoint, None when none was written yet; and one line for all that is broken
            before it is found.

        Raises:
            RunError: there are checkpoints, and none is whole.
        """
        try:
            entries = self._entries()
        except Broken as error:
            raise RunError(f"{self.checkpoints / 'latest'}: {error}", USAGE) from None
        complaints: list[str] = []
        if entries and not self._named():
            complaints.append(f"{self.checkpoints / 'latest'} names no checkpoint")
        for entry in entries:
            folder = self.checkpoints / entry["name"]
            try:
                return _read(folder, entry["sha256"]), complaints
            except Broken as error:
                complaints.append(f"the checkpoint {folder} is broken: {error}")
        if complaints:
            raise RunError(f"{complaints[0]}; no whole one is left", USAGE)
        return None, []

    def _entries(self) -> list[dict[str, str]]:
        """The checkpoints, newest first: those that `latest` names, or else those that are there.

        `latest` may be lost, by a copy of the run or by hand; the checkpoints are not lost by it.
        """
        return self._named() or self._unnamed()

    def _unnamed(self) -> list[dict[str, str]]:
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in self.checkpoints.iterdir():
                if name := _NAME.fullmatch(path.name):
                    found.append((int(name[1]), int(name[2] or 0), path))
        entries = []
        for _, _, path in sorted(found, reverse=True):
            digest = ""
            with contextlib.suppress(OSError):
                digest = hashlib.sha256((path / "state.json").read_bytes()).hexdigest()
            entries.append({"name": path.name, "sha256": digest})
        return entries

    def _named(self) -> list[dict[str, str]]:
        try:
            document = json.loads((self.checkpoints / "latest").read_text(encoding="utf-8"))
            found = [
                {"name": entry["name"], "sha256": entry["sha256"]}
                for entry in document["checkpoints"]
            ]
            if not all(_NAME.fullmatch(entry["name"]) for entry in found):
                raise ValueError("name")
            return found
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Broken(f"it cannot be read: {reason(error)}") from None
        except (ValueError, KeyError, TypeError):
            raise Broken("it is damaged") from None

    def _point(self, entries: list[dict[str, str]]) -> None:
        text = json.dumps({"checkpoints": entries}, indent=2) + "\n"
        _replace(self.checkpoints / "latest", text.encode())

    def _free_name(self, step: int) -> str:
        """A folder's name that is not taken: the same step may be there, broken."""
        name, count = f"step-{step:08d}", 1
        while (self.checkpoints / name).exists():
            name, count = f"step-{step:08d}-{count}", count + 1
        return name

    def _clear(self, kept: set[str]) -> None:
        """Remove what `latest` does not name; what cannot be removed does no harm."""
        with contextlib.suppress(OSError):
            for path in self.checkpoints.iterdir():
                if path.name.startswith(("step-", _PARTIAL)) and path.name not in kept:
                    shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self.folder
            raise RunError(f"cannot write {where}: {reason(error)}; {self.standing()}") from None
        except Broken as error:
            raise RunError(f"{self.checkpoints / 'latest'}: {error}", USAGE) from None

    def standing(self) -> str:
        """What is safe on disk, in words."""
        try:
            latest = self.latest()
        except Broken:
            latest = None
        return f"the last good checkpoint is {latest}" if latest else "there is no checkpoint yet"


def _is_leftover(path: Path) -> bool:
    if path.is_dir():
        return path.name == "checkpoints" and not any(path.iterdir())
    return path.name in ("lock", ".run.json.partial")


def _write(folder: Path, checkpoint: Checkpoint) -> str:
    """Write the files of a checkpoint; return the digest of the last, which holds the others'."""
    folder.mkdir()
    files = {
        "model.safetensors": checkpoint.model,
        "optimizer.safetensors": {**checkpoint.optimizer, "random": checkpoint.random},
    }
    digests = {}
    for name, found in files.items():
        ready = {key: value.detach().cpu().contiguous() for key, value in found.items()}
        data = tensors_io.save(ready, {"format": FORMAT})
        digests[name] = hashlib.sha256(data).hexdigest()
        _write_file(folder / name, data)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "step": checkpoint.step,
        "files": digests,
        "optimizer": checkpoint.settings,
        "extra": checkpoint.extra,
    }
    data = json.dumps(document).encode()
    _write_file(folder / "state.json", data)
    _sync_folder(folder)
    return hashlib.sha256(data).hexdigest()


def _read(folder: Path, digest: str) -> Checkpoint:
    """A checkpoint, if every byte of it is as it was written."""
    text = _checked(folder / "state.json", digest)
    try:
        return _decode(folder, json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        # Nothing vouches for the digest of a checkpoint that `latest` does not name.
        raise Broken("state.json is damaged") from None


def _decode(folder: Path, document: dict[str, Any]) -> Checkpoint:
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise Broken("it is of another format")
    found = {}
    for name in ("model.safetensors", "optimizer.safetensors"):
        data = _checked(folder / name, document["files"][name])
        try:
            found[name] = tensors_io.load(data)
        except SafetensorError as error:
            raise Broken(f"{name}: {error}") from None
    optimizer = found["optimizer.safetensors"]
    random = optimizer.pop("random")
    return Checkpoint(
        document["step"],
        found["model.safetensors"],
        optimizer,
        document["optimizer"],
        random,
        document["extra"],
    )


def _checked(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Broken(f"{path.name} cannot be read: {reason(error)}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise Broken(f"{path.name} is not as it was written")
    return data


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that it is the old one or the new one at every moment."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        _write_file(partial, data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _write_file(path: Path, data: bytes) -> None:
    try:
        with open(path, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        # Only opening names the file by itself.
        error.filename = error.filename or str(path)
        raise


def _sync_folder(path: Path) -> None:
    """Force a folder's list of names to disk, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
