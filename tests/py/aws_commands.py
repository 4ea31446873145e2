"""Runs commands of the AWS CLI, each in a process forked from this one, which has imported it:
the import takes most of a command's time.

Reads a JSON list of arguments per line; answers each with its exit code, output and errors.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from awscli import clidriver  # type: ignore[import-untyped]


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Run one command."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = os.fork()
        if process == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["aws", *arguments]
            sys.exit(clidriver.main())
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return code, texts[0], texts[1]


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
