"""`batchweave.torch.LossReporter`: sums on the device, and copies into pinned memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from batchweave import _loss_reporter
from batchweave._label_groups import Plan
from batchweave._loss_reporter import Copy
from batchweave._tensors import torch_module


class LossReporter(_loss_reporter.LossReporter):
    """Reports trained steps with their losses, without waiting for the device.

        report = batchweave.torch.LossReporter(reader, every=10)
        for batch in reader:
            loss = cross_entropy(logits, labels, reduction="none")
            ...
            report(batch, loss)

    A report adds up the losses on their device, by the stream's `source_ids` where it has them.
    After `every` steps the sums are copied, and the steps reported when the copy has ended, at the
    latest before a mark and at the reader's end. `detail`: "row" or "document" for the mean loss of
    each. `part`: True where this rank has a part of the tokens of its coordinate, whose other
    ranks report theirs; `(rank, size, way)` of `context_parallel` where its losses are those of a
    part of each row. With `split_rows` of `connect` it is set.
    """

    def _sums(self, losses: Sequence[Any], weights: Sequence[Any] | None, how: Plan) -> Any:
        torch = torch_module()
        with torch.no_grad():
            loss = _flat(torch, losses)
            # Not every device has float64.
            wide = torch.float32 if loss.device.type in ("mps", "xla") else torch.float64
            loss = loss.to(wide)
            codes = _moved(torch, how.codes, loss.device)
            weight = codes[0].to(wide) if weights is None else _flat(torch, weights).to(loss)
            finite = loss.isfinite()
            good = weight * finite
            # The last column counts losses that are not finite.
            each = torch.stack([torch.where(finite, loss, 0.0) * good, good, weight > good], 1)
            found = [each.sum(0)]
            groups = [] if how.sources is None else [len(how.sources)]
            groups += [how.details + 1] if how.details else []
            for count, index in zip(groups, codes[1:], strict=True):
                added = torch.zeros((count, 3), dtype=wide, device=loss.device)
                if count:
                    added.index_add_(0, index.long(), each)
                found.append(added.reshape(-1))
            sums = torch.cat(found)
            if sums.device.type != "cuda":
                return sums, None
            computed = torch.cuda.Event()
            computed.record(torch.cuda.current_stream(sums.device))
            return sums, computed

    def _copies(self, sums: Sequence[Any]) -> Sequence[Copy]:
        torch = torch_module()
        found: list[Copy] = []
        for device, group in itertools.groupby(sums, lambda one: one[0].device):
            found += _copied(torch, device, list(group))
        return found


def _flat(torch: Any, tensors: Sequence[Any]) -> Any:
    parts = [one.detach().reshape(-1) for one in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _moved(torch: Any, codes: Any, device: Any) -> Any:
    """Returns the codes on a device; from pinned memory, since other copies may wait for it."""
    found = torch.from_numpy(codes)
    return (
        found.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else (found.to(device))
    )


def _copied(torch: Any, device: Any, sums: list[tuple[Any, Any]]) -> list[Copy]:
    lengths = [len(one) for one, _ in sums]
    ends = list(itertools.accumulate(lengths))
    with torch.no_grad():
        if device.type != "cuda":
            whole, event = torch.cat([one for one, _ in sums]).cpu(), None
        else:
            # A signal handler or another thread may have another stream.
            stream = torch.cuda.current_stream(device)
            for _, computed in sums:
                stream.wait_event(computed)
            joined = torch.cat([one for one, _ in sums])
            whole = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
            whole.copy_(joined, non_blocking=True)
            event = torch.cuda.Event()
            event.record(stream)
    return [
        _TorchCopy(whole[end - length : end], event)
        for length, end in zip(lengths, ends, strict=True)
    ]


class _TorchCopy(Copy):
    """Numbers of this process, after an event."""

    def __init__(self, numbers: Any, event: Any) -> None:
        self._numbers, self._event = numbers, event

    def is_done(self) -> bool:
        return self._event is None or bool(self._event.query())

    def numbers(self) -> Any:
        return self._numbers.numpy()
