import numpy as np
import pytest

from elites import ArchiveMetrics, ElitesError, Losses, RunConfig
from elites.metrics.metric import METRICS, Metric, find_metric
from elites.results.corrected import make_corrected_archive
from elites.results.tables import metric_names
from tests.synthetic_runs import synthetic_archive

MINE = Metric("mine", "my metric", ".2f", lambda elites: 1.0)
NOT_A_METRIC = 3


def test_the_typed_results_have_the_metrics_of_the_table():
    names = tuple(metric.name for metric in METRICS)
    assert ArchiveMetrics._fields == names
    assert Losses._fields == names
    assert [find_metric(name) for name in names] == list(METRICS)


def test_losses_and_corrected_values_are_derived():
    qd_score, *_ = METRICS
    assert (qd_score.loss.name, qd_score.loss.label) == ("qd_score_loss", "QD-score loss")
    assert qd_score.loss.format_value(0.123) == "12.3%"
    assert (qd_score.corrected.name, qd_score.corrected.label) == ("corrected_qd_score", "corrected QD-score")
    assert qd_score.corrected.format_value(1234.5) == qd_score.format_value(1234.5) == "1,234"


def test_a_metric_by_its_import_path_or_by_its_name_alone():
    assert find_metric("mine", [f"{__name__}:MINE"]) is MINE
    for path in ("nowhere:MINE", f"{__name__}:THEIRS", f"{__name__}:NOT_A_METRIC", "nonsense"):
        metric = find_metric("mine", [path])
        assert (metric.label, metric.format_value(0.123456)) == ("mine", "0.1235")


def test_columns_of_counts_are_not_metrics():
    columns = ["generation", "evaluations", "qd_score", "mine", "invalid", "made_ga", "new_ga", "improved_ga"]
    assert metric_names(columns) == ["qd_score", "mine"]


def test_a_custom_metric_that_fails_in_a_correction_gets_one_line():
    archive = synthetic_archive(RunConfig(algorithm="map-elites", task="qd-hopper"), top=10.0)
    samples = np.stack([archive.fitness] * 2, 1), np.stack([archive.descriptor] * 2, 1)
    corrected = make_corrected_archive(archive, *samples)
    broken = Metric("broken", "broken", ".2f", lambda elites: 1 / 0)
    with pytest.raises(ElitesError, match=r"^metric broken failed: .*division by zero[^\n]*$"):
        corrected.compare_metric(broken)
