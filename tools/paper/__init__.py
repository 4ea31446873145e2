"""The paper's evaluation, run by anybody: `make paper`, or `python -m paper --help`."""
