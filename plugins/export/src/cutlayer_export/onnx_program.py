"""An exported model as ONNX, for runtimes other than PyTorch (extra `onnx`)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cutlayer.errors import ConfigError

ROWS = "rows"


def trace_model(model: str, module: nn.Module, arguments: tuple[Any, ...]) -> torch.export.ExportedProgram:
    """The program of a model by `torch.export`, for any number of rows.

    Args:
        model: `bottom` or `top`.
        module: The model.
        arguments: Example arguments, tensors or tensors by name, of a few rows.

    Raises:
        ConfigError: It cannot be traced.
    """
    rows = torch.export.Dim(ROWS, min=1)
    shapes = tuple({key: {0: rows} for key in a} if isinstance(a, dict) else {0: rows} for a in arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, arguments, dynamic_shapes=shapes)
    except Exception as failure:  # of a user's model, anything
        raise no_onnx_error(model, f"torch.export cannot trace it ({_reason(failure)})") from None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths and source lines of this machine
    return program


def _reason(failure: Exception) -> str:
    return f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:120]}"


def onnx_bytes(program: torch.export.ExportedProgram, model: str, inputs: Sequence[str], output: str) -> bytes:
    """Convert an exported program, for any number of rows.

    The file names its axes and tensors, and nothing of the machine: lines of source code, paths and module names, which
    the exporter adds to every node, are taken out.

    Args:
        program: The program.
        model: Name of the model, for messages.
        inputs: Name of each tensor that it reads, in their order.
        output: Name of what it returns. No name may be that of a weight or an inner tensor; those have no slash.

    Raises:
        ConfigError: An operation has no form in ONNX, or the weights are larger than the format allows (2 GB).
    """
    import onnx

    try:
        with _silent():
            exported = torch.onnx.export(
                program, dynamo=True, input_names=list(inputs), output_names=[output], verbose=False
            )
            if exported is None:
                raise RuntimeError("the exporter returned nothing")
            proto = exported.model_proto
            _strip(proto)
            onnx.checker.check_model(proto, full_check=True)
            return bytes(proto.SerializeToString(deterministic=True))
    except Exception as failure:  # of a user's model, anything
        raise no_onnx_error(model, _reason(failure)) from None


def no_onnx_error(model: str, why: str) -> ConfigError:
    """The error for a model that has no ONNX form."""
    return ConfigError.expected(f"a {model} model that ONNX can express", why, "leave out --onnx")


def _strip(proto: Any) -> None:
    """Remove what the exporter notes on the source code, and name the first axis."""
    graph = proto.graph
    del proto.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    for item in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        item.doc_string = ""
        del item.metadata_props[:]
    for function in proto.functions:
        del function.metadata_props[:], function.value_info[:]
        for node in function.node:
            node.doc_string = ""
            del node.metadata_props[:]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = ROWS


@contextmanager
def _silent() -> Iterator[None]:
    """Without the exporter's advice to its developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
