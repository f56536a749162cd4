"""Five mutants of each learner: an edit of one file below the plugins, that changes what is computed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

SMALL = {"network": "tiny", "sample_rate": 0.2, "momentum": 0.5, "padding": 1, "ema": 0.8, "chunk_size": 150}
SETTINGS: dict[str, dict[str, Any]] = {
    "adadps": {"steps": 24, "refresh": 4},
    "class-means": {"k": 12},
    "dp-raft": {"steps": 20, "private_mean": True, "mean_share": 0.1},
    "dp-sgd": {},
    "gep": {"steps": 12, "k": 20, "learning_rate": 1.0, "refresh": 5},
    "jl": {},
    "least-squares": {"k": 16, "rounds": 3, "moment": 0.3},
    "dp-sgd-net": {**SMALL, "steps": 4, "learning_rate": 2.0, "augmult": 2},
    "dp-randp": {**SMALL, "weights": "random", "augmult": 0, "phase2_steps": 3, "phase3_steps": 4},
    "dp-finetune": {
        "parameters": "all", "steps": 4, "k": 12, "head_steps": 6, "head_learning_rate": 0.5, "learning_rate": 0.1,
        "chunk_size": 100, "head_share": 0.3,
    },
    "non-private": {},
    "pillar": {},
    "prototypes": {"k": 40, "groups": 2},
    "public-only": {},
    "public-prior": {"k": 12, "graph": 0.3},
    "scatternet": {"groups": 4, "steps": 6, "sample_rate": 0.5},
    "thrift": {"graph": 0.3},
    "whitened": {},
    "pillar-theory": {"steps": 10},
    "jl-theory": {"steps": 10},
    "sspp": {"hypotheses": "thresholds"},
    "sspp-labelled": {"hypotheses": "thresholds"},
    "component-graph": {},
    "literal-counts": {},
    "pate": {},
}  # fmt: skip


class Mutant(NamedTuple):
    """An edit of a text that stands once in a file below the plugins."""

    learner: str
    file: str
    text: str
    instead: str
    settings: Mapping[str, Any] = MappingProxyType({})  # beside those of `SETTINGS`


ADADPS, MEANS, RAFT = "learners/adadps.py", "learners/class_means.py", "learners/dp_raft.py"
SGD, GEP, JL, SQUARES = "learners/dp_sgd.py", "learners/gep.py", "learners/jl.py", "learners/least_squares.py"
CEILING, PILLAR, PROTOTYPES = "learners/non_private.py", "learners/pillar.py", "learners/prototypes.py"
PUBLIC, PRIOR, WHITENED = "learners/public_only.py", "learners/public_prior.py", "learners/whitened.py"
THRIFT, COORDINATES, SPECTRUM = "learners/thrift.py", "learners/coordinates.py", "learners/spectrum.py"
TRAINING, RANDP, TUNE = "learners/networks/training.py", "learners/networks/randp.py", "learners/networks/finetune.py"
TAIL, GRADIENTS, VIEWS = "learners/networks/tail.py", "learners/networks/gradients.py", "networks/views.py"
SCATTER, THEORY, SSPP = "extractors/scatternet.py", "theory/learners/pillar_theory.py", "theory/learners/sspp.py"
GRAPH, PATE = "theory/learners/graph.py", "theory/learners/pate.py"
UNSCALED = {"scaling": "none"}
MUTANTS = (
    Mutant("adadps", ADADPS, "moments.sqrt() + epsilon_c", "moments + epsilon_c"),
    Mutant("adadps", ADADPS, "(0, 1), value=1.0", "(0, 1), value=0.0"),
    Mutant("adadps", ADADPS, "step % self.refresh == 0", "step == 0"),
    Mutant("adadps", ADADPS, ".mul_(4).round_()", ".mul_(4).ceil_()"),
    Mutant("adadps", ADADPS, "quarters / 4", "quarters / 8"),
    Mutant(
        "class-means", MEANS, "one_hot(chunk.y, classes) - 1 / classes", "one_hot(chunk.y, classes) - 0.5 / classes"
    ),
    Mutant("class-means", MEANS, "clip, k = (1 - 1 / classes) ** 0.5", "clip, k = (1 - 1 / classes)"),
    Mutant("class-means", MEANS, "(found.leading(k) / deviations)", "(found.leading(k) * deviations)"),
    Mutant("class-means", MEANS, "(-directions @ mean)", "(directions @ mean)"),
    Mutant("class-means", MEANS, "lambda _: noise", "lambda _: 2 * noise"),
    Mutant("dp-raft", RAFT, "return unit_norm(x.flatten(1)) *", "return x.flatten(1) *"),
    Mutant("dp-raft", RAFT, "bias=False", "bias=True"),
    Mutant("dp-raft", RAFT, "(sigma * self.steps**0.5)", "(sigma * self.steps)"),
    Mutant("dp-raft", RAFT, "0.08 * task.size", "0.09 * task.size"),
    Mutant("dp-raft", RAFT, "normalise(x) - mean", "normalise(x) + mean"),
    Mutant("dp-sgd", SGD, 'if self.scaling == "norm" else 1', 'if self.scaling == "norm" else 2'),
    Mutant("dp-sgd", SGD, "standardisation(public.x)", "(lambda x: x.flatten(1))"),
    Mutant("dp-sgd", SGD, "way = travel(task, budget)", "way = 1.1 * travel(task, budget)"),
    Mutant("dp-sgd", SGD, '{"norm": unit_norm,', '{"norm": lambda x: x.flatten(1),', {"scaling": "norm"}),
    Mutant("dp-sgd", SGD, '"none": lambda x: x.flatten(1)', '"none": unit_norm', UNSCALED),
    Mutant("gep", GEP, "values > 1e-6 * values[-1]", "values > 0.9 * values[-1]"),
    Mutant("gep", GEP, "start, iterations)", "start, iterations + 1)"),
    Mutant("gep", GEP, "self.residual_ratio * self.clip)", "0.9 * self.residual_ratio * self.clip)"),
    Mutant("gep", GEP, "torch.randint(len(head)", "torch.randint(len(head) - 1"),
    Mutant("gep", GEP, "step % self.refresh == 0", "step == 0"),
    Mutant("jl", JL, "k**-0.5", "k**-0.25"),
    Mutant("jl", JL, "torch.randn(features, k", "torch.rand(features, k"),
    Mutant("jl", JL, 'if self.scaling == "norm" else 1', 'if self.scaling == "norm" else 2'),
    Mutant("jl", JL, "min(400, prod", "min(100, prod"),
    Mutant("jl", JL, "standardisation(public.x)", "unit_norm"),
    Mutant("least-squares", SQUARES, "UNEXPLAINED ** (1 / rounds)", "UNEXPLAINED ** rounds"),
    Mutant("least-squares", SQUARES, "self.ridge * task.size", "self.ridge"),
    Mutant(
        "least-squares",
        SQUARES,
        "one_hot(chunk.y, task.classes) - 1 / task.classes",
        "one_hot(chunk.y, task.classes) - 0.0",
    ),
    Mutant("least-squares", SQUARES, "(noisy + noisy.T) / 2", "noisy"),
    Mutant("least-squares", SQUARES, "((1 - moment) / (moment * rounds)) ** 0.5", "((1 - moment) / moment) ** 0.5"),
    Mutant("dp-sgd-net", TRAINING, "(1 + step) / (10 + step)", "(1 + step) / (20 + step)"),
    Mutant("dp-sgd-net", TRAINING, "alpha=-phase.learning_rate", "alpha=-0.99 * phase.learning_rate"),
    Mutant("dp-sgd-net", VIEWS, "DEVIATION = 0.5, 0.25", "DEVIATION = 0.5, 0.3"),
    Mutant("dp-sgd-net", GRADIENTS, "flat.sub_(flat.mean(2, keepdim=True))", "flat.mul_(1)"),
    Mutant("dp-sgd-net", VIEWS, "width - 1 - columns", "columns"),
    Mutant("dp-randp", RANDP, 'Phase("all", rate', 'Phase("head", rate'),
    Mutant("dp-randp", RANDP, '"norm+head"] = setting("norm+head"', '"norm+head"] = setting("head"'),
    Mutant("dp-randp", RANDP, "self.phase2_learning_rate, releases)", "2 * self.phase2_learning_rate, releases)"),
    Mutant("dp-randp", RANDP, "or TABLE[reached - 1][2]", "or 0.5 * TABLE[reached - 1][2]"),
    Mutant("dp-randp", TRAINING, "min(self.ema,", "min(0.5 * self.ema,"),
    Mutant("dp-finetune", TUNE, "clip = 0.5 *", "clip = 0.6 *"),
    Mutant("dp-finetune", TUNE, "2 * step >= self.steps - 1", "step >= self.steps - 1"),
    Mutant("dp-finetune", TAIL, "WHITENING = 0.3", "WHITENING = 0.2"),
    Mutant("dp-finetune", TUNE, "self.head_share / (1 - self.head_share)", "(1 - self.head_share) / self.head_share"),
    Mutant("dp-finetune", TAIL, "gradient.flatten(2).sum(2)", "gradient.flatten(2).mean(2)"),
    Mutant("non-private", CEILING, '"loss", factor / strength', '"loss", 2 * factor / strength'),
    Mutant("non-private", CEILING, "== 2 else 1", "== 2 else 2"),
    Mutant("non-private", CEILING, " + self._penalty * weights", ""),
    Mutant("non-private", CEILING, "weights[..., -1] = 0", "weights[..., -1] *= 1000"),
    Mutant("non-private", CEILING, "1 / deviation, 1.0", "1.0, 1.0"),
    Mutant("pillar", PILLAR, ".leading(k).T.float()", ".leading(k).T.float().flip(0)"),
    Mutant("pillar", PILLAR, 'self.scaling == "public"', 'self.scaling != "public"'),
    Mutant("pillar", PILLAR, '"k": components(task, budget)', '"k": 2 * components(task, budget)'),
    Mutant("pillar", PILLAR, "(scaled - mean)", "(scaled)", UNSCALED),
    Mutant("pillar", PILLAR, "-directions @ mean.float()", "directions @ mean.float()", UNSCALED),
    Mutant("prototypes", PROTOTYPES, "candidates) / reach", "candidates) / (2 * reach)"),
    Mutant("prototypes", PROTOTYPES, "chunk.seeds % groups", "0 * chunk.seeds"),
    Mutant("prototypes", PROTOTYPES, "groups, -1).mean(1)", "groups, -1)[:, 0]"),
    Mutant("prototypes", PROTOTYPES, "nearest[:, :size]", "nearest[:, 1 : size + 1]"),
    Mutant("prototypes", PROTOTYPES, "require_setting(self.k), WHITENING", "require_setting(self.k), 0.0"),
    Mutant("public-only", PUBLIC, "C=self.regularisation / len(public.x)", "C=self.regularisation"),
    Mutant("public-only", PUBLIC, "@ weight.T + shift", "@ weight.T"),
    Mutant("public-only", PUBLIC, "standardise(public.x).cpu()", "(0.9 * standardise(public.x)).cpu()"),
    Mutant("public-only", PUBLIC, ".log_softmax(1)", ".softmax(1)"),
    Mutant("public-only", PUBLIC, "standardisation(public.x)", "standardisation(public.x[::2])"),
    Mutant("public-prior", PRIOR, "@ rows[here].T).square() / 4", "@ rows[here].T).square() / 2"),
    Mutant("public-prior", PRIOR, "labels[here] - mean, root", "labels[here], root"),
    Mutant("public-prior", PRIOR, "+ self.strength * noise", "+ 2 * self.strength * noise"),
    Mutant("public-prior", PRIOR, "SHARE * require_setting", "2 * SHARE * require_setting"),
    Mutant("public-prior", PRIOR, "[:AXES]", "[:2]"),
    Mutant("scatternet", SCATTER, "variance + 1e-5", "variance + 1e-1"),
    Mutant("scatternet", SCATTER, "centred = runs - (", "centred = runs - 0.9 * ("),
    Mutant("scatternet", SCATTER, "budget) / 36_000", "budget) / 18_000"),
    Mutant("scatternet", SCATTER, "normalise_groups(x.flatten(1), self.groups)", "normalise_groups(x.flatten(1), 1)"),
    Mutant("scatternet", SCATTER, "folded(centred.square(), 2) / size", "folded(centred.square(), 2) / (size - 1)"),
    Mutant("thrift", COORDINATES, "(k * (1 - graph)) ** 0.5", "(k * graph) ** 0.5"),
    Mutant("thrift", SPECTRUM, ").rsqrt()", ").sqrt().rsqrt()"),
    Mutant("thrift", THRIFT, "step**2 * require_setting(self.steps)", "step**2"),
    Mutant("thrift", COORDINATES, "LONGEST = 84.0", "LONGEST = 42.0"),
    Mutant("thrift", COORDINATES, "nearest * nearest * nearest", "nearest * nearest"),
    Mutant("whitened", WHITENED, "relative.pow(-self.whitening / 2)", "relative.pow(-self.whitening)"),
    Mutant("whitened", WHITENED, "softmax(1), self.ridge", "softmax(1), 10 * self.ridge"),
    Mutant("whitened", WHITENED, "self.sharpness / spread", "1.1 * self.sharpness / spread"),
    Mutant("whitened", WHITENED, '"k": components(task, budget)', '"k": 2 * components(task, budget)'),
    Mutant("whitened", WHITENED, "rows / unit, head.T", "rows, head.T"),
    Mutant("pillar-theory", THEORY, "self.margin * (1 - self.xi - 0.1 * self.margin)", "self.margin * (1 - self.xi)"),
    Mutant("pillar-theory", THEORY, "rate = 2 * records", "rate = records"),
    Mutant("pillar-theory", THEORY, "won < zeta", "won < 2 * zeta"),
    Mutant("pillar-theory", THEORY, "return total / steps", "return head"),
    Mutant("pillar-theory", THEORY, "found.leading(k).T", "found.leading(2 * k).T[:k]"),
    Mutant("jl-theory", THEORY, "/ math.sqrt(self.k), torch.zeros", "/ self.k, torch.zeros"),
    Mutant("jl-theory", THEORY, "torch.randn(self.k", "torch.rand(self.k"),
    Mutant("jl-theory", THEORY, "head = head / head.norm().clamp(min=1)", "head = head / head.norm()"),
    Mutant("jl-theory", THEORY, "-signs * active / zeta", "-signs * active"),
    Mutant("jl-theory", THEORY, "rate = 2 * records", "rate = 3 * records"),
    Mutant("sspp", SSPP, "chunk.x.flatten(1)) + chunk.y", "chunk.x.flatten(1)) + 1 - chunk.y"),
    Mutant("sspp", SSPP, "[found.yes, ~found.yes]", "[~found.yes, found.yes]"),
    Mutant("sspp", SSPP, "points[: hypotheses.points]", "points[:3]"),
    Mutant("sspp", SSPP, "chosen).float() - 0.5", "chosen).float() - 1.5"),
    Mutant("sspp", SSPP, "found.answer(x.flatten(1), chosen)", "found.answer(x.flatten(1), 0 * chosen)"),
    Mutant("sspp-labelled", SSPP, "errors == errors.min()", "errors == errors.max()"),
    Mutant("sspp-labelled", SSPP, "says != public.y.bool()", "says == public.y.bool()"),
    Mutant("sspp-labelled", SSPP, "found.yes[found.cell(points)]", "found.yes[found.cell(-points)]"),
    Mutant("sspp-labelled", SSPP, "points[: hypotheses.points]", "points[:3]"),
    Mutant("sspp-labelled", SSPP, "chosen).float() - 0.5", "chosen).float() - 1.5"),
    Mutant("component-graph", GRAPH, "component[first] + chunk.y", "component[first] + 1 - chunk.y"),
    Mutant("component-graph", GRAPH, "coins[component].bool()", "~coins[component].bool()"),
    Mutant("component-graph", GRAPH, "x.flatten(1) > 0.5", "x.flatten(1) > 1.5"),
    Mutant("component-graph", GRAPH, "active_variables(public.x))", "active_variables(public.x[:3]))"),
    Mutant("component-graph", GRAPH, "coins[component].bool()", "coins.bool()"),
    Mutant("literal-counts", GRAPH, "counts > 0", "counts > 1e6"),
    Mutant("literal-counts", GRAPH, "(2 * chunk.y - 1).float()", "(1 - 2 * chunk.y).float()"),
    Mutant(
        "literal-counts",
        GRAPH,
        "clip=math.sqrt(_variables(curator.task))",
        "clip=100 * math.sqrt(_variables(curator.task))",
    ),
    Mutant("literal-counts", GRAPH, "x.flatten(1) > 0.5", "x.flatten(1) > 1.5"),
    Mutant("literal-counts", GRAPH, "literal = counts > 0", "literal = counts < 0"),
    Mutant("pate", PATE, "centres.square().sum(1) / 2", "centres.square().sum(1)"),
    Mutant("pate", PATE, "(found.leading(k) / deviations)", "(found.leading(k) * deviations)"),
    Mutant("pate", PATE, "counts[answered].argmax(1)", "counts[answered].argmin(1)"),
    Mutant("pate", PATE, "torch.randperm(len(public.x), generator=generator)", "torch.arange(len(public.x))"),
    Mutant("pate", PATE, "score_by_distance(whiten(x), *centres)", "score_by_distance(2 * whiten(x), *centres)"),
)
