"""Verdicts on the paper's claims of runs whose outcome is known."""

import json
import math
import shutil

from elites.paper.claims import judge
from elites.paper.verdicts import Check, Claim, Verdict
from elites.reports.study.comparisons import reference_of
from elites.reports.study.tables import aligned_claims
from tests.made_up import make_run, study_of


def verdicts(folder):
    return {claim.number: claim for claim in judge(study_of(folder))}


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
    lines = dict(zip(claims, aligned_claims(list(claims.values())), strict=True))
    assert lines["1"] == "  claim 1   holds as far as tested (1 of 20 comparisons: 1 hold)"
    assert lines["2"] == "  claim 2   not tested by these runs"
    for path in tmp_path.glob("*-[2-5]-*"):
        (path / "config.json").unlink()
    claims = verdicts(tmp_path)
    assert claims["1"].verdict is Verdict.UNDECIDED  # two replications of each
    assert not claims["1"].possible


def test_a_tie_holds_only_where_a_difference_could_have_shown(tmp_path):
    """Coverage of PGA-MAP-Elites like that of MAP-Elites on the walker: the twelfth claim."""
    for seed in range(6):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, qd_score=1000 + seed)
        make_run(tmp_path, "map-elites", "qd-walker", seed, qd_score=1001 + seed)
    assert verdicts(tmp_path)["12"].verdict is Verdict.PARTLY
    for path in tmp_path.glob("*-[2-5]-*"):
        (path / "config.json").unlink()
    assert verdicts(tmp_path)["12"].verdict is Verdict.UNDECIDED


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


def test_a_claim_holds_where_all_of_it_was_tested():
    better, unknown = Check("a", 0.001, 0.001, (True, False)), Check("b", math.nan, 1.0, (False, False))
    assert Claim("1", "", (better, better)).verdict is Verdict.HOLDS
    assert Claim("1", "", (better, unknown)).verdict is Verdict.PARTLY
    assert Claim("1", "", (unknown,)).verdict is Verdict.UNTESTED


def test_changed_hyper_parameters_are_not_the_paper_s(tmp_path):
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


def test_the_ablation_is_told_apart_by_its_shares(tmp_path):
    for share in (0.0, 0.5, 1.0):
        for seed in range(6):
            score = 1000 * (1 + (share == 0.5)) + seed
            make_run(
                tmp_path, "pga-map-elites", "qd-ant", seed, qd_score=score, hyper_parameters={"p_evo": share}
            )
    study = study_of(tmp_path)
    assert study.variants == ["p_evo 0", "p_evo 0.5", "p_evo 1"]
    assert reference_of(study) == "p_evo 0.5"
    claims = {claim.number: claim for claim in judge(study)}
    assert "2 hold" in claims["9"].scope
    assert claims["9"].verdict is Verdict.CONTRADICTED  # here p_evo = 0 has another max-fitness than 0.5


def test_a_changed_task_is_not_the_paper_s(tmp_path):
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
