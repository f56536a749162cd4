"""Convert entries to the formats of evaluation collections: Every Eval Ever's JSON, and the hub's `.eval_results` YAML.

Neither format has boards, so the guarantee, the rank and the trust are stated as details of a score.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from dpbench.analysis.columns import format_epsilon
from dpbench.analysis.formats import clamp_interval, format_metric_score
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import describe_trust
from dpbench.records.metrics import METRIC_FACTS
from dpbench.records.provenance import HARNESS
from dpbench.records.result import Interval

LOG_SCHEMA = "0.3.0"  # of Every Eval Ever
COLLECTION = "dpbench"


def render_evaluation_logs(index: Index) -> Iterator[tuple[str, bytes]]:
    """Yield the path in a datastore and the content of the Every Eval Ever log of each entry that has a score.

    An unchanged entry gives the same file.
    """
    for standing in index.standings:
        for entry in standing.entries:
            if entry.metrics:
                model = f"{_portable_name(entry.plugin.distribution)}/{_portable_name(entry.learner_name)}"
                name = uuid.UUID(bytes=hashlib.sha256(entry.file.encode()).digest()[:16], version=4)
                log = json.dumps(_make_evaluation_log(standing, entry, model), indent=1, allow_nan=False)
                yield f"data/{COLLECTION}/{model}/{name}.json", log.encode() + b"\n"


def _portable_name(name: str) -> str:
    """Turn a third party's name into a path component that every system allows.

    >>> _portable_name("dp-sgd"), _portable_name("../a b")
    ('dp-sgd', 'a-b')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:100].strip(".-") or "unnamed"


def _make_evaluation_log(standing: Standing, entry: Entry, model: str) -> dict[str, object]:
    board, when = standing.board, _convert_result_day_to_seconds(entry)
    return {
        "schema_version": LOG_SCHEMA,
        "evaluation_id": f"{board.name}/{entry.id}/{when}",
        "retrieved_timestamp": when,
        "source_metadata": {
            "source_name": "dpbench leaderboard", "source_type": "documentation",
            "source_organization_name": HARNESS,
            "evaluator_relationship": "first_party" if entry.plugin.distribution == HARNESS else "other",
        },
        "eval_library": {"name": HARNESS, "version": entry.made.version or "unknown"},
        "model_info": {
            "name": entry.learner, "id": model, "developer": entry.plugin.distribution,
            "additional_details": {
                "deployment_type": "self_deployed", "model_availability": "unknown",
                "settings": json.dumps(entry.settings, ensure_ascii=False), "selection": entry.selection,
                "plugin": entry.plugin.plugin, "plugin_version": entry.plugin.version,
            },
        },
        "evaluation_results": [
            _make_metric_record(standing, entry, metric, score) for metric, score in sorted(entry.metrics.items())
        ],
    }  # fmt: skip


def _make_metric_record(standing: Standing, entry: Entry, metric: str, score: Interval) -> dict[str, object]:
    board, facts, held = standing.board, METRIC_FACTS[metric], clamp_interval(metric, score)
    ends = {"lower": held.low, "upper": held.high, "confidence_level": 0.95, "method": "Student's t over seeds"}
    return {
        "evaluation_result_id": f"{board.name}/{entry.id}/{metric}",
        "evaluation_name": f"{board.name}.{metric}",
        "source_data": {
            "dataset_name": str(board.dataset), "source_type": "other",
            "additional_details": {"extractor": str(board.extractor), "licence": standing.licence},
        },
        "metric_config": {
            "metric_id": metric, "metric_name": facts.title, "lower_is_better": not facts.higher,
            "score_type": "continuous", "min_score": 0.0,
            "max_score": "Infinity" if math.isinf(facts.most) else facts.most,
        },
        "score_details": {
            "score": score.mean, "details": _describe_entry(standing, entry),
            **({} if held.low is None else {"uncertainty": {"confidence_interval": ends, "num_samples": entry.seeds}}),
        },
        "generation_config": {"generation_args": {"execution_command": entry.command}},
    }  # fmt: skip


def _describe_entry(standing: Standing, entry: Entry) -> Mapping[str, str]:
    """Return the guarantee, the rank and the trust of an entry, as text."""
    return {
        "board": standing.board.name, "role": entry.role, "rank": str(entry.rank or ""),
        "ranked_by": standing.board.metric, "epsilon": format_epsilon(entry.epsilon),
        "delta": str(standing.board.delta),
        "unit": standing.board.unit or "image", "accountant": standing.board.accountant, "trust": describe_trust(entry),
        "public_data": entry.reads, "raw_result": entry.file,
    }  # fmt: skip


def _convert_result_day_to_seconds(entry: Entry) -> str:
    """Return the day of an entry's result, in seconds since 1970; "0" if no valid day is on record."""
    try:
        return str(int(datetime.fromisoformat(entry.made.date or "").replace(tzinfo=UTC).timestamp()))
    except ValueError:  # nothing, or a day that no calendar has
        return "0"


def render_hub_results(index: Index, repository: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of a file per ranked entry, for the folder `.eval_results` of a model on the hub.

    The file states the score by the board's metric, in percent if the metric ranges from 0 to 1, as accuracy does. It
    is JSON, which is valid YAML. `repository` is the dataset repository that holds the leaderboard, as OWNER/NAME.
    """
    for standing in index.standings:
        for entry in standing.entries:
            if entry.role == "entry":
                result = _make_hub_result(standing, entry, repository)
                text = json.dumps([result], indent=1, ensure_ascii=False)
                yield f"{standing.board.name}/{entry.id}.yaml", text.encode() + b"\n"


def _make_hub_result(standing: Standing, entry: Entry, repository: str) -> dict[str, object]:
    from huggingface_hub import hf_hub_url

    board = standing.board
    score = entry.metrics[board.metric]
    shown = f"{METRIC_FACTS[board.metric].title} {format_metric_score(board.metric, score, unit=True)}"
    guarantee = f"ε {format_epsilon(board.epsilon)}, δ {board.delta:g}, for one {board.unit or 'image'}"
    return {
        "dataset": {"id": repository, "task_id": board.name},
        "value": round(METRIC_FACTS[board.metric].scale * score.mean, 4),
        **({"date": entry.made.date} if entry.made.date else {}),
        "source": {
            "url": hf_hub_url(repository, entry.file, repo_type="dataset"),
            "name": f"dpbench board {board.name}",
        },
        "notes": f"{shown} at {guarantee}; rank {entry.rank}; {describe_trust(entry)}",
    }
