"""Applies a function to documents, for batchweave-producer, which starts this program and speaks with it by frames: a
length of 8 bytes, little-endian, and then the bytes.

The first frame is the setup, in JSON; the answer is an error or null. Then each request is two frames: a header, which
names the parts of each document, and the bytes of all parts. Each document is answered by two frames, a header and its
bytes, as soon as the function has returned. An answer carries the numbers of its request and document, so that nothing else
that is written to the pipe counts as one.
"""

import importlib
import json
import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping

DETAIL_MAX = 500
DOCUMENTS_MAX = 4096
PROCESS = os.getpid()
PR_SET_PDEATHSIG = 1


def main():
    """Serves until the input ends."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What the function prints must not come between the frames.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)
    end_by_signal_with_parent()
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    setup = read_json(requests)
    if setup is None:
        return
    try:
        function = load(setup)
    except BaseException as why:
        write(answers, describe(why))
        return
    write(answers, None)
    while (header := read_json(requests)) is not None:
        body = memoryview(read(requests))
        begin = 0
        for number, parts in enumerate(header["documents"]):
            size = sum(part["bytes"] for part in parts)
            answer, parts = answered(function, setup, header, parts, body[begin : begin + size])
            begin += size
            write(answers, {"request": header["request"], "document": number, "answer": answer}, parts)


def end_by_signal_with_parent():
    """Lets the kernel end this process with its parent, and the processes that it forks with this one."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        # A Python without ctypes: end_with remains.
        return
    by_main_thread = False

    def before():
        nonlocal by_main_thread
        by_main_thread = threading.current_thread() is threading.main_thread()

    def forked():
        # The signal comes at the end of the thread that forked, so only the one that lasts counts.
        if by_main_thread and os.getppid() == PROCESS:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    os.register_at_fork(before=before, after_in_child=forked)


def end_with(parent):
    """Ends this process with its parent, also while the function runs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def load(setup):
    """Returns the function that the setup names."""
    sys.path.insert(0, setup["path"])
    module, _, name = setup["function"].partition(":")
    function = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__}, not a function")
    return function


def answered(function, setup, header, parts, body):
    """Returns the header and the bytes of the answer to one document."""
    try:
        document = decoded(parts, body)
    except Exception as why:
        return {"failed": "can't be read: " + describe(why)}, []
    try:
        result = function(document)
    except BaseException as why:
        return {"failed": "raised " + describe(why)}, []
    try:
        if result is None:
            return "dropped", []
        # A generator may use an array again for its next document.
        alone = isinstance(result, Mapping)
        made = [result] if alone else several(result)
        documents, parts, left = [], [], setup["limit"]
        for document in made:
            cells, own = encoded(document, setup, header, alone)
            left -= sum(len(part) for part in own)
            if left < 0:
                raise Unfit(
                    f"returned more than {setup['limit']} bytes, the most of source.max_document_bytes"
                )
            documents.append(cells)
            parts += own
        return ({"documents": documents} if documents else "dropped"), parts
    except Raised as why:
        return {"failed": "raised " + describe(why.__cause__)}, []
    except Unfit as why:
        return {"failed": str(why)}, []
    except Exception as why:
        return {"failed": "returned what can't be passed on: " + describe(why)}, []


def several(result):
    """Returns each of the documents that the function returned or yields."""
    if not isinstance(result, (list, tuple, Iterator)):
        raise Unfit(f"returned {kind_of(result)}, not a dict, a list of dicts or None")
    documents, number = iter(result), 0
    while True:
        try:
            document = next(documents)
        except StopIteration:
            return
        except BaseException as why:
            raise Raised from why
        number += 1
        if number > DOCUMENTS_MAX:
            raise Unfit(f"returned more than {DOCUMENTS_MAX} documents of one")
        if not isinstance(document, Mapping):
            raise Unfit(f"returned {kind_of(document)} as document {number} of its list, not a dict")
        yield document


class Unfit(Exception):
    """The function returned something that is not a document."""


class Raised(Exception):
    """The function raised while its documents were taken."""


def decoded(parts, body):
    """Returns the document in the parts."""
    document, begin = {}, 0
    for part in parts:
        data = body[begin : begin + part["bytes"]]
        begin += part["bytes"]
        kind, name = part["kind"], part["name"]
        if kind in ("object", "row"):
            hook = with_bytes if kind == "row" else None
            document = json.loads(bytes(data), object_hook=hook)
            if not isinstance(document, dict):
                raise ValueError(f"the line is {kind_of(document)}, not a JSON object")
        elif kind == "text":
            document[name] = str(data, "utf-8")
        elif kind == "json":
            document[name] = json.loads(bytes(data))
        elif kind == "number":
            document[name] = int(bytes(data))
        else:
            document[name] = bytes(data)
    return document


def with_bytes(value):
    """Returns the bytes that JSON has as base64."""
    if len(value) == 1 and "__bytes__" in value:
        import base64

        return base64.b64decode(value["__bytes__"])
    return value


def encoded(result, setup, header, alone):
    """Returns the headers of the parts of a document, and the parts: views of its arrays if it is `alone`."""
    cells, parts = [], []
    if header["wanted"]:
        wanted = {name: field(result, name) for name in header["wanted"]}
        for name in header["optional"]:
            if result.get(name) is not None:
                wanted[name] = result[name]
        line = json.dumps(wanted, default=plain, ensure_ascii=False, allow_nan=False)
        parts.append(line.encode("utf-8", "surrogatepass"))
        cells.append({"kind": "json", "bytes": len(parts[0])})
    for array in setup["arrays"]:
        kind, part = cell(field(result, array["name"]), array, alone)
        cells.append({"kind": kind, "bytes": len(part)})
        parts.append(part)
    return cells, parts


def field(result, name):
    """Returns the field of what the function returned."""
    if name in result:
        return result[name]
    names = ", ".join(f'"{name:.40}"' for name in list(map(str, result))[:6]) or "none"
    raise Unfit(f'returned no field "{name}"; its fields are {names}')


def cell(value, array, alone):
    """Returns the kind and the bytes of an array's items; of a document that is `alone`, a view where there is one."""
    if isinstance(value, str):
        return "json", json.dumps(value).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        part = memoryview(value).cast("B")
        return "bytes", part if alone else bytes(part)
    value = numpy_of(value)
    if not hasattr(value, "__array_interface__"):
        line = json.dumps(value, default=plain, allow_nan=False)
        return "json", line.encode()
    item, shape = array["shape"], list(value.shape)
    fits = shape == item or shape[1:] == item and len(shape) > len(item)
    if value.dtype.str.lstrip("<|=") != array["numpy"] or not fits:
        raise Unfit(
            f'returned "{array["name"]}" as {value.dtype} of shape {tuple(value.shape)}; '
            f"packing.arrays has {array['dtype']} with items of shape {tuple(item)}"
        )
    if alone and value.flags.c_contiguous and value.size:
        return "bytes", memoryview(value.reshape(-1).view("u1"))
    return "bytes", value.tobytes()


def numpy_of(value):
    """Returns a tensor as an array of numpy, and anything else as it is."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return value.detach().cpu().numpy()
    return value


def plain(value):
    """Returns a value that JSON has for one of numpy or torch."""
    value = numpy_of(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        raise Unfit('returned bytes in a field, which only packing.arrays takes')
    raise Unfit(f"returned {kind_of(value)} in a field, which is neither text, number, list nor array")


def kind_of(value):
    """Returns the name of the value's type, with its article."""
    name = type(value).__name__
    return ("an " if name[0] in "aeiou" else "a ") + name


def describe(why):
    """Returns an exception and its place in one line."""
    text = str(why)
    text = f"{type(why).__name__}: {text}" if text else type(why).__name__
    text = " ".join(text.split())
    if len(text) > DETAIL_MAX:
        text = text[:DETAIL_MAX] + "..."
    # Neither this program nor what imports modules.
    others = ("<string>", "<frozen", importlib.__file__)
    places = traceback.extract_tb(why.__traceback__)
    places = [place for place in places if not place.filename.startswith(others)]
    if places:
        text += f" ({places[-1].filename}:{places[-1].lineno})"
    return text


def read(stream):
    """Returns the next frame; None at the end."""
    length = stream.read(8)
    if len(length) < 8:
        return None
    return stream.read(struct.unpack("<Q", length)[0])


def read_json(stream):
    """Returns the JSON in the next frame; None at the end."""
    frame = read(stream)
    return None if frame is None else json.loads(frame)


def write(stream, header, parts=None):
    """Writes a frame of JSON, and one of the parts unless there are none."""
    if os.getpid() != PROCESS:
        end_forked()
    header = json.dumps(header).encode()
    stream.write(struct.pack("<Q", len(header)) + header)
    if parts is not None:
        stream.write(struct.pack("<Q", sum(len(part) for part in parts)))
        for part in parts:
            stream.write(part)
    stream.flush()


def end_forked():
    """Ends a process that the function forked and let return: the answer is its parent's."""
    line = f"process {os.getpid()}, which the function forked, returned from it and was ended; end it by os._exit()\n"
    os.write(2, line.encode())
    os._exit(1)


main()
