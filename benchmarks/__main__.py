"""`python -m benchmarks NAME --json` runs one benchmark; without a name it lists them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks import dcor_loss, distance_statistics, kept_memory, marvell_search
from benchmarks.audit_price import AuditPrices, audit_prices
from benchmarks.averaged_noise import AveragedNoise, averaged_noise
from benchmarks.collusion import Collusion, collusion
from benchmarks.dimip_step import StepCosts, dimip_step
from benchmarks.embedding_defences import EmbeddingOverheads, embedding_defences
from benchmarks.embedding_history import EmbeddingHistory, embedding_history
from benchmarks.embedding_table import embedding_table
from benchmarks.feature_attacks import FeatureAttacksResult, feature_attacks
from benchmarks.grade_attacks import main as grade_attacks
from benchmarks.grade_excluded import main as grade_excluded
from benchmarks.grades import main as grades
from benchmarks.gradient_defences import Overheads, gradient_defences
from benchmarks.label_defences import LabelDefences, label_defences
from benchmarks.label_embeddings import LabelEmbeddings, label_embeddings
from benchmarks.local_training import (
    EPOCHS,
    audited_side,
    centralised_side,
    make_table,
    quickly_audited_side,
    split_side,
    whole_side,
    wholly_audited_side,
)
from benchmarks.max_norm_repairs import MaxNormRepairs, max_norm_repairs
from benchmarks.noise import NoiseSpeeds, noise_speeds
from benchmarks.other_defences import OtherDefences, other_defences
from benchmarks.pairs import Comparison, Timed, compare
from benchmarks.pilot import main as pilot
from benchmarks.pilot_parts import main as pilot_parts
from benchmarks.predict import PredictSpeeds, predict_speeds
from benchmarks.psi import Intersections, intersections
from benchmarks.rare_positives import RarePositives, rare_positives
from benchmarks.row_memory import RowMemories, row_memory
from benchmarks.scale import Scaling, scale_rows
from benchmarks.scale_alignment import Intersections as Alignments
from benchmarks.scale_alignment import scale_alignment
from benchmarks.serving import ServingSpeeds, serving
from benchmarks.serving_kills import Kills, serving_kills
from benchmarks.serving_plain import PlainLatency, serving_plain
from benchmarks.single_methods import SingleMethods, single_methods
from benchmarks.start import StartTimes, start_times
from benchmarks.tables import Tables, tables
from benchmarks.tasks import main as tasks
from benchmarks.two_processes import TwoProcesses, two_processes
from benchmarks.utility.__main__ import main as utility
from benchmarks.wire import RoundTrips, wire
from cutlayer.consent import allowed


def _local_training(batch_size: int) -> Callable[[str, int, int], Comparison]:
    def run(table: str, rows: int, repeats: int) -> Comparison:
        ours = (f"cutlayer, two parties in one process, batch {batch_size}", split_side)
        plain = ("centralised PyTorch loop, fused embedding and fused Adam", centralised_side)
        return compare(f"local_training_{batch_size}", ours, plain, (table, batch_size), rows, repeats, threads=1)

    return run


def _audit_overhead(name: str, batch_size: int) -> Callable[[str, int, int], Comparison]:
    def run(table: str, rows: int, repeats: int) -> Comparison:
        audited = ("cutlayer with the audit of every epoch (norm, direction, spectral; layers)", audited_side)
        bare = ("cutlayer without audit", split_side)
        return compare(name, audited, bare, (table, batch_size), rows, repeats, threads=1)

    return run


def _whole_job(name: str, about: str, audited: Callable[..., Timed]) -> Callable[[str, int, int], Comparison]:
    def run(table: str, rows: int, repeats: int) -> Comparison:
        ours, bare = (f"a job of {EPOCHS} epochs with {about}", audited), ("the same job without audit", whole_side)
        return compare(name, ours, bare, (table, 8192), EPOCHS * rows, repeats, threads=1)

    return run


def _marvell_search(_table: str, _rows: int, repeats: int) -> Comparison:
    ours = ("exact root finding, 200 searches at sumKL 0.16", marvell_search.ours_side)
    published = ("published: power by 1.5, alternating bisections", marvell_search.geometric_side)
    return compare("marvell_search", ours, published, (0.16,), marvell_search.CASES, repeats, threads=1)


def _dcor_loss(_table: str, rows: int, repeats: int) -> Comparison:
    rows = min(rows, 8192)
    ours = (f"tiles with their own backward, {rows} x 128 float32", dcor_loss.tiles_side)
    naive = ("autograd through the whole matrices", dcor_loss.naive_side)
    return compare("dcor_loss", ours, naive, (rows, 128), rows, repeats, threads=1)


def _distance_statistics(_table: str, rows: int, repeats: int) -> Comparison:
    rows = min(rows, 8192)
    ours = (f"mean and variance, {rows} x 128 float32", distance_statistics.statistics_side)
    product = ("the product X X^T alone, in tiles", distance_statistics.product_side)
    return compare("distance_statistics", ours, product, (rows, 128), rows, repeats, threads=1)


def _distance_loss(_table: str, rows: int, repeats: int) -> Comparison:
    rows = min(rows, 8192)
    ours = (f"mean and variance with their gradient, {rows} x 128 float32", distance_statistics.loss_side)
    product = ("the product X X^T alone, in tiles", distance_statistics.product_side)
    return compare("distance_loss", ours, product, (rows, 128), rows, repeats, threads=1)


def _embedding_table(_table: str, rows: int, repeats: int) -> Comparison:
    return embedding_table(min(rows, 8192), repeats)


def _kept_memory(_table: str, rows: int, repeats: int) -> Comparison:
    rows = min(rows, 5_000)
    ours = ("small convolutional network, batch 128, freed memory kept", kept_memory.kept_side)
    plain = ("the same with the C library as it comes", kept_memory.given_back_side)
    return compare("kept_memory", ours, plain, (rows,), rows, repeats, threads=1)


def _noise(_table: str, _rows: int, repeats: int) -> NoiseSpeeds:
    return noise_speeds(repeats)


def _gradient_defences(_table: str, rows: int, repeats: int) -> Overheads:
    return gradient_defences(min(rows, 8192), repeats)


def _embedding_defences(_table: str, rows: int, repeats: int) -> EmbeddingOverheads:
    return embedding_defences(rows, repeats)


def _label_defences(_table: str, _rows: int, repeats: int) -> LabelDefences:
    return label_defences(repeats)


def _averaged_noise(_table: str, _rows: int, repeats: int) -> AveragedNoise:
    return averaged_noise(repeats)


def _collusion(_table: str, _rows: int, repeats: int) -> Collusion:
    return collusion(repeats)


def _max_norm_repairs(_table: str, _rows: int, repeats: int) -> MaxNormRepairs:
    return max_norm_repairs(repeats)


def _rare_positives(_table: str, _rows: int, repeats: int) -> RarePositives:
    return rare_positives(repeats)


def _other_defences(_table: str, _rows: int, repeats: int) -> OtherDefences:
    return other_defences(repeats)


def _embedding_history(_table: str, _rows: int, repeats: int) -> EmbeddingHistory:
    return embedding_history(repeats)


def _label_embeddings(_table: str, _rows: int, repeats: int) -> LabelEmbeddings:
    return label_embeddings(repeats)


def _feature_attacks(_table: str, _rows: int, repeats: int) -> FeatureAttacksResult:
    return feature_attacks(repeats)


def _single_methods(_table: str, _rows: int, repeats: int) -> SingleMethods:
    return single_methods(repeats)


def _psi(_table: str, rows: int, repeats: int) -> Intersections:
    return intersections(rows, repeats)


def _predict(_table: str, rows: int, repeats: int) -> PredictSpeeds:
    return predict_speeds(rows, repeats)


def _dimip(_table: str, _rows: int, repeats: int) -> StepCosts:
    return dimip_step(repeats)


def _wire(_table: str, _rows: int, repeats: int) -> RoundTrips:
    return wire(repeats)


def _two_processes(batch_size: int) -> Callable[[str, int, int], TwoProcesses]:
    def run(table: str, rows: int, repeats: int) -> TwoProcesses:
        return two_processes(table, batch_size, rows, repeats)

    return run


def _serving(_table: str, _rows: int, repeats: int) -> ServingSpeeds:
    return serving(repeats)


def _serving_kills(_table: str, _rows: int, repeats: int) -> Kills:
    return serving_kills(repeats)


def _scale_rows(_table: str, rows: int, _repeats: int) -> Scaling:
    return scale_rows(rows)


def _scale_alignment(_table: str, rows: int, _repeats: int) -> Alignments:
    return scale_alignment(rows)


def _audit_price(_table: str, rows: int, repeats: int) -> AuditPrices:
    return audit_prices(rows, repeats)


def _start(_table: str, _rows: int, repeats: int) -> StartTimes:
    return start_times(repeats)


def _serving_plain(_table: str, _rows: int, repeats: int) -> PlainLatency:
    return serving_plain(repeats)


def _row_memory(_table: str, rows: int, _repeats: int) -> RowMemories:
    return row_memory(rows)


def _tables(_table: str, rows: int, _repeats: int) -> Tables:
    return tables(rows)


Result = (
    Alignments
    | Comparison
    | EmbeddingHistory
    | EmbeddingOverheads
    | Intersections
    | Kills
    | LabelDefences
    | LabelEmbeddings
    | FeatureAttacksResult
    | AuditPrices
    | AveragedNoise
    | Collusion
    | MaxNormRepairs
    | OtherDefences
    | RarePositives
    | NoiseSpeeds
    | Overheads
    | PlainLatency
    | PredictSpeeds
    | RoundTrips
    | RowMemories
    | Scaling
    | ServingSpeeds
    | SingleMethods
    | StartTimes
    | StepCosts
    | Tables
    | TwoProcesses
)
TABLE = {
    *(
        "local_training_8192",
        "local_training_256",
        "audit_overhead",
        "audit_overhead_256",
        "audit_total",
        "audit_quick",
    ),
    *("two_process_8192", "two_process_256"),
}
"""Those that read a table of `--rows` rows, which is made in memory."""
BENCHMARKS: dict[str, tuple[str, Callable[[str, int, int], Result]]] = {
    "local_training_8192": ("rows/s against a centralised loop, batch 8192; goal 0.95", _local_training(8192)),
    "local_training_256": ("rows/s against a centralised loop, batch 256; goal 0.85", _local_training(256)),
    "audit_overhead": (
        "an audited epoch against a bare one; goal 0.95",
        _audit_overhead("audit_overhead", 8192),
    ),
    "audit_overhead_256": ("the same at batch 256; goal 0.95", _audit_overhead("audit_overhead_256", 256)),
    "audit_total": (
        "a job of 12 epochs with all of its audit against the same without; goal 0.91",
        _whole_job("audit_total", "the default audit, during and after the training", wholly_audited_side),
    ),
    "audit_quick": (
        "the same with `depth: quick`; goal 0.91",
        _whole_job("audit_quick", "the audit of depth quick, all of it", quickly_audited_side),
    ),
    "audit_price": (
        "jobs of 200 rows to --rows with their audit against without; goal 1.10 from 20,000 rows on, 2 s below",
        _audit_price,
    ),
    "marvell_search": ("searches/s against the published search", _marvell_search),
    "dcor_loss": ("rows/s against naive autograd, n = 8192; goal 3, memory 1/20", _dcor_loss),
    "dimip": ("times an undefended step, image halves and Adult columns; goal 1.5 with single_pass", _dimip),
    "distance_statistics": ("rows/s against the tiled product X X^T, n = 8192; goal 0.67", _distance_statistics),
    "distance_loss": ("mean and variance with gradient against the same product", _distance_loss),
    "embedding_table": (
        "lookups with their gradient, of 8,192 rows or --rows, against nn.Embedding",
        _embedding_table,
    ),
    "kept_memory": ("steps of a small convolutional network against the C library's defaults", _kept_memory),
    "wire": ("a round trip between processes against a bare gRPC stream with mutual TLS; goal 1.3", _wire),
    "two_process_8192": (
        "rows/s of two processes over mutual TLS against a centralised loop with two threads; goal 0.8",
        _two_processes(8192),
    ),
    "two_process_256": ("the same at batch 256; goal 0.5", _two_processes(256)),
    "noise": ("normals/s against torch.randn, goal 0.8; releases on a lattice against float32", _noise),
    "embedding_defences": (
        "noise, rescaling and adjusting over the undefended step, CIFAR halves; goals 0.0865, 0.4, 0.117",
        _embedding_defences,
    ),
    "psi": (
        "private set intersection against openmined-psi in one process; --rows of each table; goal 0.45 on two cores",
        _psi,
    ),
    "label_defences": ("utility and leak over all epochs on Adult, --repeats seeds", _label_defences),
    "collusion": ("leak of labels to each passive party and to all together, --repeats seeds", _collusion),
    "averaged_noise": ("leak of gradients to attacks on the mean of all epochs, --repeats seeds", _averaged_noise),
    "max_norm_repairs": ("leak and utility of repairs of max_norm that were not taken", _max_norm_repairs),
    "rare_positives": ("leak of gradients to attacks on sizes of messages, --repeats seeds", _rare_positives),
    "other_defences": ("leak under max_norm, ppdl, dimip and others, by task, --repeats seeds", _other_defences),
    "embedding_history": ("labels and columns from the embeddings of all epochs, --repeats seeds", _embedding_history),
    "label_embeddings": ("utility and label leak of the forms of dcor on Adult", _label_embeddings),
    "feature_attacks": (
        "columns that attacks recover on Adult and Criteo, --repeats seeds",
        _feature_attacks,
    ),
    "single_methods": (
        "nopeek, dp_bottom, exploit, lira and laser on Adult, --repeats seeds",
        _single_methods,
    ),
    "serving": ("answers/s of three processes, against a forward pass; kill -9 under load; goal 0.5", _serving),
    "serving_plain": ("p99 of an answer beside that of a plain FastAPI forward pass, in turn", _serving_plain),
    "serving_kills": (
        "kill -9 of a party under load, --repeats times; goal: 50, and no failure",
        _serving_kills,
    ),
    "predict": ("rows/s from files against a forward in memory; peak memory by --rows", _predict),
    "scale_rows": ("time and memory of each stage from 100,000 rows to --rows; goal 0.95 to 1.1", _scale_rows),
    "scale_alignment": (
        "time and memory of aligning from 100,000 rows to --rows; goal 0.95 to 1.1",
        _scale_alignment,
    ),
    "start": ("each verb's time as a multiple of `import torch`; goal 1.5 for a check of a small job", _start),
    "row_memory": ("memory of the parts of a run that have an entry for each of --rows rows", _row_memory),
    "tables": (
        "reading, joining and encoding against DuckDB and Polars, which are to be installed, to --rows",
        _tables,
    ),
    "gradient_defences": ("share of the reference step, batch 8192; goal under 0.10", _gradient_defences),
}


OWN = {
    "utility": ("jobs of `init --yes` against scikit-learn; --data DIR, see --help", utility),
    "grade_excluded": ("what grades tell of a column that is no feature, see --help", grade_excluded),
    "grade_attacks": ("what a label owner reads from grades; --data DIR, see --help", grade_attacks),
    "pilot": ("whether a pilot tells what a full run adds; --data DIR, see --help", pilot),
    "pilot-parts": ("what makes the interval of a pilot wide; --data DIR", pilot_parts),
    "tasks": ("counts and survival beside other libraries' models; --other PYTHON", tasks),
    "grades": ("what drawn grades keep and reveal; --data DIR, see --help", grades),
}
"""Those with options, and a table, of their own."""


def main() -> None:
    """Parse the command line and print one JSON line, or run one of `OWN`."""
    with allowed("cutlayer_published"):
        _main()


def _main() -> None:
    if sys.argv[1:2] and sys.argv[1] in OWN:
        OWN[sys.argv[1]][1](sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="print one JSON line (the default prints it indented)")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.name is None:
        for name, (what, _) in BENCHMARKS.items():
            sys.stdout.write(f"{name:<22} {what}\n")
        for name, (what, _) in OWN.items():
            sys.stdout.write(f"{name:<22} {what}\n")
        sys.stdout.write("benchmarks.gpu_training, a program of its own: the same on a GPU, in parts; see --help\n")
        return
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        table = Path(scratch) / "table.parquet"
        if given.name in TABLE:
            make_table(table, given.rows)
        result = BENCHMARKS[given.name][1](str(table), given.rows, given.repeats)
    sys.stdout.write(json.dumps(asdict(result), indent=None if given.json else 1) + "\n")


if __name__ == "__main__":
    main()
