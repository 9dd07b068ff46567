"""The page opened in headless Chromium, as a person would."""

from elites.reports.study.report import report_study
from tests.browser import Browser
from tests.synthetic_runs import make_run

LOOK = """({
  title: document.title,
  pictures: [...document.images].map(image => image.naturalWidth),
  sections: [...document.querySelectorAll('h2')].map(heading => heading.textContent),
  verdicts: [...document.querySelectorAll('td.verdict')].map(cell => cell.textContent),
  links: [...document.querySelectorAll('nav a')].every(link => document.querySelector(link.hash)),
  wide: document.documentElement.scrollWidth, window: innerWidth,
})"""


def test_the_page_opens_without_errors(tmp_path):
    study = tmp_path / "study"
    for algorithm in ("pga-map-elites", "map-elites"):
        for seed in range(2):
            make_run(study, algorithm, "qd-hopper", seed, evaluations=200, loss=0.1)
    report_study(study)
    with Browser((1000, 900), webgl=False) as browser:
        browser.load(study / "report" / "index.html")
        page = browser.run(LOOK)
        assert browser.problems == []
    assert page["title"] == "Study study"
    assert len(page["pictures"]) == 6
    assert all(width > 300 for width in page["pictures"])
    assert page["sections"][0] == "Runs"
    assert page["sections"][-1] == "The paper's claims"
    assert len(page["verdicts"]) == 12
    assert page["links"]
    assert page["wide"] <= page["window"], "the page is wider than its window"
