"""Verdicts on the paper's claims of runs whose outcome is known."""

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from elites import TASKS, load_archive
from elites.paper.claims import evaluate_claims
from elites.paper.presets import SUITES
from elites.paper.verdicts import Claim, ClaimComparison, Verdict
from elites.reports.study.comparisons import choose_reference, compare
from elites.reports.study.tables import align_claims
from elites.results.archive import save_archive
from elites.results.corrected import load_corrected
from tests.synthetic_runs import make_run, study_of


def verdicts(folder):
    return {claim.number: claim for claim in evaluate_claims(study_of(folder))}


def test_claims_hold_are_contradicted_or_undecided(tmp_path):
    scores = {"pga-map-elites": 1000, "map-elites": 500, "td3": 1500}
    for algorithm, score in scores.items():
        for seed in range(6):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score + seed)
    claims = verdicts(tmp_path)
    assert claims["1"].verdict is Verdict.CONTRADICTED  # TD3 is better
    assert claims["1"].scope == "2 of 20 comparisons: 1 hold, 1 contradicted"
    assert claims["2"].verdict is Verdict.UNTESTED
    assert claims["9"].verdict is Verdict.UNTESTED
    for path in list(tmp_path.glob("td3-*")):
        shutil.rmtree(path)
    claims = verdicts(tmp_path)
    assert claims["1"].verdict is Verdict.PARTLY  # on one task of four, against one algorithm of five
    assert claims["3"].verdict is Verdict.PARTLY
    lines = dict(zip(claims, align_claims(list(claims.values())), strict=True))
    assert lines["1"] == "  claim 1   QDGym: holds as far as tested (1 of 20 comparisons: 1 hold)"
    assert lines["2"] == "  claim 2   QDGym: not tested by these runs"
    for path in tmp_path.glob("*-[2-5]-*"):
        (path / "config.json").unlink()
    claims = verdicts(tmp_path)
    assert claims["1"].verdict is Verdict.UNDECIDED  # two replications of each
    assert not claims["1"].possible


def test_a_tie_holds_only_if_a_difference_could_be_significant(tmp_path):
    """Coverage of PGA-MAP-Elites like that of MAP-Elites on the walker: the twelfth claim."""
    for seed in range(6):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, qd_score=1000 + seed)
        make_run(tmp_path, "map-elites", "qd-walker", seed, qd_score=1001 + seed)
    assert verdicts(tmp_path)["12"].verdict is Verdict.PARTLY
    for path in tmp_path.glob("*-[2-5]-*"):
        (path / "config.json").unlink()
    assert verdicts(tmp_path)["12"].verdict is Verdict.UNDECIDED


def test_a_run_that_was_stopped_is_compared_at_its_end_and_at_the_common_budget(tmp_path):
    """At its own end PGA-MAP-Elites is ahead of TD3, which ran out of time; where that ended it is behind."""
    for seed in range(6):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, qd_score=1000 + seed)
        make_run(tmp_path, "td3", "qd-walker", seed, qd_score=900 + seed, evaluations=200, budget=1000)
    claim = verdicts(tmp_path)["1"]
    assert claim.verdict is Verdict.PARTLY
    assert claim.at_common_budget == "contradicted"
    assert claim.with_pooled_offset == "not known"
    assert claim.sensitivities() == [("contradicted", "not known")]
    (line,) = align_claims([claim])
    assert line.endswith("; at the common budget contradicted")


def write_fitness(own, fitness):
    """Replaces the elites of an archive by some with this fitness."""
    saved = load_archive(own / "archive.npz")
    arrays = {
        name: getattr(saved, name)[: len(fitness)]
        for name in ("parameters", "descriptor", "cell", "evaluation", "seed", "generation")
    }
    arrays |= {"operator": saved.operator[: len(fitness)], "parents": saved.parents[: len(fitness)]}
    save_archive(own / "archive.npz", replace(saved, fitness=np.array(fitness, np.float32), **arrays))


def test_the_pooled_offset_can_change_a_verdict(tmp_path):
    """Few good elites against many poor ones: the lower the offset, the more their number counts."""
    elites = {"pga-map-elites": [1000, 1000, 1000], "map-elites": [100] * 9}
    for algorithm, fitness in elites.items():
        for seed in range(6):
            score = sum(fitness) + seed
            own = make_run(
                tmp_path, algorithm, "qd-walker", seed, qd_score=score, archive=True, evaluations=100
            )
            write_fitness(own, [*fitness[:-1], fitness[-1] + seed])
    study = study_of(tmp_path)
    pooled = study.with_pooled_offset.finals("qd-walker", "pga-map-elites", "qd_score")
    assert pooled.tolist() == [3 * 900 + seed for seed in range(6)]  # above 100, the lowest fitness
    assert {claim.number: claim for claim in evaluate_claims(study)}["1"].with_pooled_offset == "the same"
    write_fitness(tmp_path / "map-elites-qd-walker-0-", [100] * 8 + [-2000])
    study = study_of(tmp_path)
    claim = {claim.number: claim for claim in evaluate_claims(study)}["1"]
    assert study.with_pooled_offset.finals("qd-walker", "map-elites", "qd_score")[0] == 8 * 2100
    assert claim.verdict is Verdict.PARTLY
    assert claim.with_pooled_offset == "contradicted"
    row = next(row for row in compare(study, pool=True) if row.metric == "qd_score")
    assert (row.outcome, row.pooled) == (-1, "significantly above")
    path = tmp_path / "map-elites-qd-walker-3-" / "archive.npz"
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "fitness": np.array(["high", "low"])})
    assert verdicts(tmp_path)["1"].with_pooled_offset == "not known"
    path.unlink()
    assert verdicts(tmp_path)["1"].with_pooled_offset == "not known"


def test_corrected_archives_are_pooled_too(tmp_path):
    """The lowest corrected fitness is below all others; scores and losses follow from the arrays."""
    runs = [
        make_run(tmp_path, "map-elites", "qd-walker", seed, loss=2.0, evaluations=100) for seed in range(2)
    ]
    study = study_of(tmp_path).with_pooled_offset
    corrected = [load_corrected(own) for own in runs]
    lowest = min(one.mean_fitness[one.kept].min() for one in corrected)
    assert lowest < 0
    before = [float((one.original_fitness.astype(float) - lowest).sum()) for one in corrected]
    after = [float((one.mean_fitness[one.kept] - lowest).sum()) for one in corrected]
    assert study.finals("qd-walker", "map-elites", "qd_score").tolist() == pytest.approx(before)
    assert study.finals("qd-walker", "map-elites", "corrected_qd_score").tolist() == pytest.approx(after)
    losses = [(one - other) / one for one, other in zip(before, after, strict=True)]
    assert study.finals("qd-walker", "map-elites", "qd_score_loss").tolist() == pytest.approx(losses)


@pytest.mark.parametrize("ends", [True, False])
def test_either_deterministic_half_cheetah_counts(ends, tmp_path):
    task = "qd-deterministic-halfcheetah"
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 500), ("td3", 990)):
        for seed in range(6):
            make_run(
                tmp_path, algorithm, task, seed, qd_score=score + seed, task_parameters={"ends_on_fall": ends}
            )
    claims = verdicts(tmp_path)
    assert claims["2"].scope == "2 of 20 comparisons: 2 hold"
    assert all(check.text.startswith(f"{task} (ends_on_fall {ends}): ") for check in claims["2"].tested)
    assert [check.alike for check in claims["3"].tested] == [False, True]  # a tie with TD3
    assert claims["3"].verdict is Verdict.PARTLY


def test_a_task_may_have_a_label_of_its_own(tmp_path):
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 10)):
        for seed in range(6):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score + seed)
    record = {"tasks": [{"name": "qd-walker", "label": "two legs"}], "algorithms": []}
    (tmp_path / "study.json").write_text(json.dumps(record))
    assert study_of(tmp_path).tasks == ["two legs"]
    assert verdicts(tmp_path)["1"].verdict is Verdict.PARTLY


def test_losses_and_limits(tmp_path):
    """The sixth claim: max-fitness loss below 10 % on the walker."""
    for seed in range(8):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, loss=0.04, evaluations=200)
    assert verdicts(tmp_path)["6"].verdict is Verdict.PARTLY
    for seed in range(8):
        make_run(tmp_path, "pga-map-elites", "qd-hopper", seed, loss=0.3, evaluations=200)
    claims = verdicts(tmp_path)
    assert claims["6"].verdict is Verdict.CONTRADICTED
    assert claims["6"].scope == "2 of 4 comparisons: 1 hold, 1 contradicted"


def test_operators_over_time(tmp_path):
    """The eleventh claim; the made-up PG adds only in the first third, the GA always."""
    for seed in range(8):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed)
    claim = verdicts(tmp_path)["11"]
    assert claim.verdict is Verdict.PARTLY
    assert len(claim.tested) == 3


def test_a_claim_holds_if_all_comparisons_were_tested():
    better = ClaimComparison("a", 0.001, 0.001, supports=True, contradicts=False)
    unknown = ClaimComparison("b", math.nan, 1.0, supports=False, contradicts=False)
    assert Claim("1", "", (better, better)).verdict is Verdict.HOLDS
    assert Claim("1", "", (better, unknown)).verdict is Verdict.PARTLY
    assert Claim("1", "", (unknown,)).verdict is Verdict.UNTESTED


def test_runs_with_changed_hyper_parameters_do_not_count(tmp_path):
    for seed in range(6):
        make_run(tmp_path, "map-elites", "qd-walker", seed, qd_score=500 + seed)
        changed = {"batch": 50}
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, hyper_parameters=changed)
    assert all(claim.verdict is Verdict.UNTESTED for claim in verdicts(tmp_path).values())
    for path in tmp_path.glob("pga-*"):
        record = json.loads((path / "config.json").read_text())
        record["hyper_parameters"] |= {"batch": 100, "keep_members": True}  # stores more, finds the same
        (path / "config.json").write_text(json.dumps(record))
    assert verdicts(tmp_path)["1"].verdict is Verdict.PARTLY


def test_variants_of_the_ablation_are_identified_by_their_shares(tmp_path):
    for share in (0.0, 0.5, 1.0):
        for seed in range(6):
            score = 1000 * (1 + (share == 0.5)) + seed
            make_run(
                tmp_path, "pga-map-elites", "qd-ant", seed, qd_score=score, hyper_parameters={"p_evo": share}
            )
    study = study_of(tmp_path)
    assert study.variants == ["p_evo 0", "p_evo 0.5", "p_evo 1"]
    assert choose_reference(study) == "p_evo 0.5"
    claims = {claim.number: claim for claim in evaluate_claims(study)}
    assert "2 hold" in claims["9"].scope
    assert claims["9"].verdict is Verdict.CONTRADICTED  # here p_evo = 0 has another max-fitness than 0.5


def test_runs_on_a_changed_task_do_not_count(tmp_path):
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 10)):
        for seed in range(6):
            make_run(
                tmp_path,
                algorithm,
                "qd-walker",
                seed,
                qd_score=score + seed,
                task_parameters={"noise": 0.01},
            )
    assert all(claim.verdict is Verdict.UNTESTED for claim in verdicts(tmp_path).values())


def by_suite(folder):
    return {(claim.number, claim.suite): claim for claim in evaluate_claims(study_of(folder))}


def test_brax_decides_the_counterpart_of_a_claim_and_not_the_claim(tmp_path):
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 500)):
        for seed in range(6):
            make_run(tmp_path, algorithm, "brax-walker2d", seed, qd_score=score + seed)
    claims = by_suite(tmp_path)
    assert len(claims) == 24
    assert list(claims)[:4] == [("1", "QDGym"), ("1", "Brax"), ("2", "QDGym"), ("2", "Brax")]
    assert {claim.verdict for (_, suite), claim in claims.items() if suite == "QDGym"} == {Verdict.UNTESTED}
    one = claims["1", "Brax"]
    assert (one.text, one.verdict) == (claims["1", "QDGym"].text, Verdict.PARTLY)
    assert one.scope == "1 of 20 comparisons: 1 hold"
    assert one.tested[0].text.startswith("brax-walker2d: QD-score of pga-map-elites above map-elites")
    (line,) = align_claims([one])
    assert line == "  claim 1   counterpart on Brax: holds as far as tested (1 of 20 comparisons: 1 hold)"
    for algorithm, score in (("pga-map-elites", 500), ("map-elites", 1000)):
        for seed in range(6):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score + seed)
    claims = by_suite(tmp_path)
    assert claims["1", "QDGym"].verdict is Verdict.CONTRADICTED
    assert claims["1", "Brax"].verdict is Verdict.PARTLY


def test_ants_are_compared_within_their_suite(tmp_path):
    """The fourth claim; a shorter run on the other suite's ant moves nothing."""
    for prefix, evaluations in (("qd-", 1000), ("brax-", 400)):
        for kind, score in (("", 1000), ("deterministic-", 500)):
            for seed in range(4):
                task, options = f"{prefix}{kind}ant", {"evaluations": evaluations, "qd_score": score + seed}
                make_run(tmp_path, "map-elites", task, seed, **options)
    study = study_of(tmp_path)
    ends = {
        curves.run.task: [reached.evaluations for reached in curves.across_tasks] for curves in study.runs
    }
    assert ends["qd-ant"] == ends["qd-deterministic-ant"] == [1000, 1000]
    assert ends["brax-ant"] == ends["brax-deterministic-ant"] == [400, 400]
    claims = by_suite(tmp_path)
    assert {claims["4", suite].verdict for suite in ("QDGym", "Brax")} == {Verdict.PARTLY}


@pytest.mark.parametrize("suite", SUITES)
def test_the_comparisons_of_a_claim_are_the_same_in_every_suite(suite, tmp_path):
    """Each is about tasks of the suite, which exist."""
    own = SUITES[suite]
    assert set(own.tasks) <= set(TASKS)
    make_run(tmp_path, "map-elites", own.tasks[0], 0)
    claims = by_suite(tmp_path)
    for number in map(str, range(1, 13)):
        texts = [comparison.text for comparison in claims[number, own.title].comparisons]
        expected = [comparison.text for comparison in claims[number, "QDGym"].comparisons]
        for ours, original in zip(own.tasks, SUITES["qdgym"].tasks, strict=True):
            expected = [re.sub(rf"\b{original}\b", ours, text) for text in expected]
        assert texts == expected
