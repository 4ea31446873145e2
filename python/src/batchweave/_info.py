"""What `reader.info` shows: the welcome of the session, and the stream's tokenizer on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from batchweave._describe import Described
from batchweave._stages import Stage
from batchweave._wire import Welcome
from batchweave.errors import NoTokenizerError


@dataclass(frozen=True)
class Info(Welcome):
    """The stream's shape, this rank's part of it, and the stream's tokenizer.

    The tokenizer's fields ask the daemon at the first use. They are None with a daemon of an older
    release, which does not answer.
    """

    _describe: Callable[[], Described] = field(repr=False, compare=False)
    _list_stages: Callable[[], tuple[Stage, ...]] = field(repr=False, compare=False)

    @property
    def tokenizer(self) -> str | None:
        """The tokenizer's name, with the form of the slices."""
        found = self._asked()
        return None if found is None else found.name

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 over the tokenizer's definition and the form of the slices."""
        found = self._asked()
        return None if found is None else found.fingerprint

    @property
    def vocabulary(self) -> int | None:
        """The number of token ids: all ids are below it. Also None where the daemon has none."""
        found = self._asked()
        return None if found is None else found.vocabulary

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the log has, those to come included; asks the daemon each time.

        Raises `NoTokenizerError` with a daemon of an older release, which describes nothing.
        """
        return self._list_stages()

    def _asked(self) -> Described | None:
        try:
            return self._describe()
        except NoTokenizerError:
            return None
