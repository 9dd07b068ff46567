from elites.results import names
from elites.results.schemas import Pace, StudyRecord
from elites.results.study import StudyFolder


def test_a_kill_between_the_two_renames_keeps_the_last_report(tmp_path):
    home = StudyFolder(tmp_path)
    home.begin_report()
    home.finish_report()
    home.report.page.write_text("last")
    home.report.metrics.write_text("")
    home.report.path.rename(tmp_path / names.REPLACED_REPORT)  # and the new one was not yet in its place
    assert home.begin_report().path != home.report.path
    assert home.report.page.read_text() == "last"
    home.discard_report()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_records_of_a_study(tmp_path):
    home = StudyFolder(tmp_path)
    assert home.read_record() is None
    assert home.read_measured() == {}
    home.write_record({"name": "mine"})
    assert home.read_record() == StudyRecord(name="mine")
    pace = Pace(start_s=1.0, generation_s=0.5)
    home.write_measured({"cell": pace})
    assert home.read_measured() == {"cell": pace}


def test_the_log_of_a_job_is_one_file(tmp_path):
    assert (
        StudyFolder(tmp_path).log_path("runs/qd-ant/td3/seed-0")
        == tmp_path / "logs" / "qd-ant-td3-seed-0.log"
    )
