"""The process of the command line: `cutlayer`, or `python -m cutlayer`."""

import os


def main() -> None:
    """Set up this process, then run the command line."""
    # Before the tensor library is loaded: its waiting worker threads then sleep. Waiting busily, as they do by default,
    # two threads fell to a third of one thread's speed as soon as anything else ran on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # its lines, as of a port in use, stand before the error that says so
    from cutlayer.training.process import collect_rarely, keep_freed_memory, lighten_imports

    collect_rarely()
    keep_freed_memory()
    lighten_imports()
    from cutlayer.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
