"""The page in a real browser: what a person sees and does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import elites
from elites.reports.maps import compute_voronoi_polygons
from elites.reports.scales import choose_robust_limits
from tests.browser import Browser, on_map
from tests.explorer.archives import logged, replicated, synthetic_archive
from tests.explorer.conftest import earlier

BASELINES = Path(__file__).parent / "baselines"
SMALL = (512, 320)  # of a baseline


@pytest.fixture(scope="module")
def page(walker, tmp_path_factory):
    return elites.explore(walker, out=tmp_path_factory.mktemp("pages") / "walker.html", gaits="none")


@pytest.fixture
def opened(browser, page):
    browser.resize(1280, 800)
    browser.prefer()
    browser.problems.clear()
    browser.open(page)
    yield browser
    assert browser.problems == []


def test_the_lineage_goes_back_to_an_ancestor_without_parents(browser, make_folder, tmp_path):
    folder = make_folder(synthetic_archive(cells=64))
    logged(folder, 1000)
    archive, log = elites.load_archive(folder), elites.load_lineage(folder)
    browser.open(elites.explore(folder, out=tmp_path / "page.html", gaits="none"))
    lines = browser.run(
        "Array.from(document.querySelectorAll('#facts .lineage li'), (one) => one.textContent)"
    )
    line = log.trace_first_parents(archive[0].evaluation)
    assert len(lines) == len(line) > 3
    for text, operator, cell, parents in zip(lines, line.operator, line.cell, line.parents, strict=True):
        assert text.startswith(f"{operator} generation")
        assert f"cell {cell}, fitness" in text
        assert ("other parent" in text) == (parents[0] != parents[1])
    assert lines[-1].startswith("random")
    assert browser.problems == []


def make_page(make_folder, tmp_path_factory, *archives, corrected=True):
    folders = [make_folder(archive, replicated(archive, 8) if corrected else None) for archive in archives]
    out = tmp_path_factory.mktemp("pages") / "page.html"
    return elites.explore(*folders, out=out, gaits="none")


def assert_looks_like(browser, name, tmp_path):
    """Compares a small screenshot with its baseline; fonts may differ a little. Paths are left out."""
    browser.settle()
    browser.run("document.querySelectorAll('#facts code').forEach((code) => { code.textContent = ''; })")
    browser.settle()
    with Image.open(browser.screenshot(tmp_path / f"{name}.png")) as shot:
        seen = shot.convert("RGB").resize(SMALL, Image.Resampling.BOX)
    path = BASELINES / f"{name}.png"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        seen.quantize(96).save(path, optimize=True)
        pytest.fail(f"{path} did not exist and was made: look at it, then run again")
    with Image.open(path) as expected:
        apart = np.abs(np.asarray(seen, int) - np.asarray(expected.convert("RGB"), int)).max(-1)
    if (apart > 48).mean() >= 0.02:
        seen.save(tmp_path / f"{name}-small.png")
        pytest.fail(f"{(apart > 48).mean():.1%} of {name} differ; the picture is {tmp_path / name}-small.png")


def test_the_page_opens_with_the_best_elite(opened, walker, tmp_path):
    archive = elites.load_archive(walker)
    assert opened.run("byId('about').textContent").startswith(
        f"{len(archive.fitness)} elites of qd-walker, found by"
    )
    assert opened.run("state.chosen.elite") == 0
    assert opened.run("document.querySelectorAll('#facts code').length") == 2
    assert f"--cell {archive.cell[0]}" in opened.run("document.querySelector('#facts code').textContent")
    assert opened.run("location.hash") == ""
    assert_looks_like(opened, "recorded", tmp_path)


def test_the_pointer_shows_numbers_and_a_click_chooses(opened, walker):
    archive = elites.load_archive(walker)
    x, y = on_map(opened, 40)
    opened.move(x, y)
    tip = opened.run("byId('tip').innerText")
    assert f"cell {archive.cell[40]}" in tip
    assert opened.run("state.hover.elite") == 40
    opened.click(x, y)
    assert opened.run("state.chosen.elite") == 40
    assert f"cell=0.{archive.cell[40]}" in opened.run("location.hash")
    opened.move(5, 5)
    assert opened.run("byId('tip').hidden")


def test_the_cell_under_the_pointer_is_the_drawn_one(opened, walker):
    archive = elites.load_archive(walker)
    for elite in (0, 17, 90, 150):
        picked = opened.run(
            "(() => { const view = views[0]; "
            f"const place = view.layout.place(runs[0].elites.descriptor, {2 * elite}); "
            "return view.pick(...view.toScreen(...place)).elite; })()"
        )
        assert archive.cell[picked] == archive.cell[elite]


def test_the_view_switches_between_the_recorded_and_the_corrected_archive(opened, walker, tmp_path):
    corrected = elites.load_corrected(walker)
    opened.press_button("#views [data-key=corrected]")
    assert opened.run("views[0].now.rows.filter((row) => row >= 0).length") == corrected.kept.sum()
    shown = opened.run("Array.from(views[0].now.rows)")
    for cell in np.flatnonzero(np.array(shown) >= 0):
        assert corrected.mean_cell[shown[cell]] == cell
        assert corrected.kept[shown[cell]]
    assert_looks_like(opened, "corrected", tmp_path)
    opened.press("1")
    assert opened.run("state.view") == "recorded"
    assert opened.run("views[0].now.rows.filter((row) => row >= 0).length") == len(corrected.cell)


def test_cells_move_smoothly_unless_reduced_motion_is_set(opened, page):
    begin = (
        "(() => { change({view: 'corrected'}); notifyListeners(); "
        "return views[0].moving && views[0].now !== views[0].target; })()"
    )
    opened.prefer(prefers_reduced_motion="no-preference")
    assert opened.run(begin)
    opened.settle()
    opened.prefer()
    opened.open(page)
    assert not opened.run(begin)
    assert not opened.run("clock.playing")


def test_the_difference_has_arrows(opened, tmp_path):
    opened.press("3")
    assert opened.run("views[0].arrows[1]") == 1
    assert opened.run("byId('legend').textContent").startswith("change of fitness")
    assert_looks_like(opened, "difference", tmp_path)


@pytest.mark.parametrize(
    "colour", ["mean", "certain", "loss", "spread", "stays", "operator", "generation", "age"]
)
def test_every_colour_is_drawn(opened, colour):
    before = opened.run("Array.from(views[0].now.colour).join()")
    opened.run(f"byId('colours').value = '{colour}', byId('colours').dispatchEvent(new Event('change'))")
    opened.settle()
    assert opened.run("state.colour") == colour
    assert opened.run("Array.from(views[0].now.colour).join()") != before
    assert opened.run("byId('legend').childNodes.length") > 0


def test_outliers_do_not_flatten_the_scale(browser, make_folder, tmp_path_factory):
    """The ends of a scale are those of figures."""
    archive = synthetic_archive(cells=128)
    fitness = archive.fitness.copy()
    fitness[0], fitness[-1] = 1e6, -1e5
    browser.problems.clear()
    page = make_page(make_folder, tmp_path_factory, replace(archive, fitness=fitness), corrected=False)
    browser.open(page)
    ends = browser.run("[currentScale().low, currentScale().high]")
    assert ends == pytest.approx(choose_robust_limits(fitness))
    assert ends[1] < 3000
    legend = browser.run("byId('legend').textContent").replace("\u202f", "")
    assert "lowest value \N{MINUS SIGN}100000, highest value 1000000" in legend
    usual = browser.run("robustEnds([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])")
    assert usual == [1, 10]
    assert browser.problems == []


def test_cells_of_the_map_are_voronoi_cells_and_cover_it(opened, walker):
    archive = elites.load_archive(walker)
    starts, corners = (
        np.array(opened.run(f"Array.from(views[0].layout.{name})")) for name in ("starts", "corners")
    )
    outlines = np.split(corners.reshape(-1, 2), starts[1:-1])
    expected = compute_voronoi_polygons(archive.centroids, archive.bounds)
    for mine, theirs in zip(outlines, expected, strict=True):
        assert area(mine) == pytest.approx(area(theirs), abs=2e-5)
    assert sum(map(area, outlines)) == pytest.approx(1, abs=1e-5)


def area(outline):
    x, y = outline.T
    return abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2


def test_less_certain_values_have_fewer_colours(opened):
    """A value-suppressing palette: eight colours of certain values, one of the least certain."""
    colours = opened.run(
        "(() => { const scale = new Scale(runs, 'certain'); return [0.1, 0.35, 0.6, 0.9].map((doubt) => "
        "Array.from({length: 64}, (_, at) => scale.suppressed(at / 63, doubt).join())); })()"
    )
    assert [len(set(level)) for level in colours] == [8, 4, 2, 1]


def test_the_slider_shows_the_growth_of_the_archive(opened, walker):
    for moment, count in ((480, 0), (720, None), (1200, None)):
        opened.run(f"byId('moment').value = {moment}, byId('moment').dispatchEvent(new Event('input'))")
        opened.settle()
        snapshot = {0: None, 720: 500, 1200: 1000}.get(0 if count == 0 else moment)
        expected = 0 if snapshot is None else len(earlier(elites.load_archive(walker), snapshot).fitness)
        assert opened.run("views[0].now.rows.filter((row) => row >= 0).length") == expected
    opened.run("byId('moment').value = 27000, byId('moment').dispatchEvent(new Event('input'))")
    opened.settle()
    opened.press_button("#play")
    opened.wait("state.moment === null", 20)
    opened.settle()
    assert opened.run("views[0].frame === runs[0].end")


def test_the_page_can_be_used_with_the_keyboard(opened):
    opened.run("document.querySelector('.map').focus()")
    chosen = opened.run("state.chosen.elite")
    for key in ("ArrowUp", "ArrowRight"):
        opened.press(key)
    assert opened.run("state.chosen.elite") != chosen
    opened.press("p")
    assert opened.run("state.pins.length") == 1
    assert opened.run("state.tab") == "pins"
    opened.press("+")
    assert opened.run("state.zoom[0]") > 1
    opened.press("0")
    assert opened.run("state.zoom") == [1, 0.5, 0.5]
    opened.press("c")
    assert opened.run("state.colour") == "mean"
    opened.press("?")
    assert opened.run("byId('dialog').open")
    opened.press("Escape")


def test_search_finds_cells_and_descriptors(opened, walker):
    archive = elites.load_archive(walker)

    def search(text):
        opened.run("byId('search').value = '', byId('search').focus()")
        opened.type(text)
        opened.press("Enter", "\r")
        return opened.run("state.chosen.elite")

    assert search(str(archive.cell[33])) == 33
    nearest = int(((archive.descriptor - [0.3, 0.7]) ** 2).sum(1).argmin())
    assert search("0.3 0.7") == search("0.3, 0.7") == nearest
    search("99999")
    assert "99999 was given; give a cell from 0 to 255" in opened.run("byId('note').textContent")
    search("0.1 0.2 0.3")
    assert "3 numbers were given" in opened.run("byId('note').textContent")
    search("<b>")
    assert opened.run("byId('note').querySelector('b')") is None


def test_zoom_and_pan(opened):
    box = opened.run("(() => { const box = views[0].box.getBoundingClientRect(); return [box.x, box.y]; })()")
    x, y = box[0] + 300, box[1] + 200
    under = opened.run("views[0].toUnit(300, 200)")
    opened.scroll(x, y, -400)
    assert opened.run("state.zoom[0]") > 1.5
    np.testing.assert_allclose(opened.run("views[0].toUnit(300, 200)"), under, atol=0.003)
    opened.drag((x, y), (x + 60, y + 30))
    np.testing.assert_allclose(opened.run("views[0].toUnit(360, 230)"), under, atol=0.01)
    assert "zoom=" in opened.run("location.hash")


def test_the_address_holds_the_view(opened, page, walker):
    archive = elites.load_archive(walker)
    opened.run(
        "change({view: 'corrected', colour: 'spread', chosen: {run: 0, elite: 12}, tab: 'table', "
        "theme: 'dark', "
        "pins: [{run: 0, elite: 3}, {run: 0, elite: 9}], zoom: [2, 0.4, 0.6], filters: {d0: [0.1, 0.8]}})"
    )
    opened.settle()
    fragment = opened.run("location.hash.slice(1)")
    before = opened.run("JSON.stringify(state)")
    opened.open(page, fragment)
    assert opened.run("JSON.stringify(state)") == before
    assert f"0.{archive.cell[3]}" in fragment
    opened.open(
        page, "view=nothing&cell=0.x&zoom=-1_a_b&only=constructor_1_2&pins=9.9&axes=7.7&tab=%3Cscript%3E"
    )
    assert opened.run("state.view") == "recorded"
    assert opened.run("JSON.stringify(state.filters)") == "{}"
    for wrong in ("zoom=1e9_0.5_0.5", "zoom=2_5_5", "at=1e99"):
        opened.open(page, wrong)
        assert opened.run("state.zoom") == [1, 0.5, 0.5]
        assert opened.run("state.moment") is None


def test_filters_dim_and_the_table_sorts(opened, walker):
    archive = elites.load_archive(walker)
    opened.run("change({tab: 'table', filters: {d0: [0.2, 0.5]}})")
    opened.settle()
    inside = (archive.descriptor[:, 0] >= 0.2) & (archive.descriptor[:, 0] <= 0.5)
    bright = opened.run("views[0].now.colour.filter((value, at) => at % 4 === 3 && value === 1).length")
    assert bright == inside.sum()
    first = "document.querySelector('.line span').textContent"
    assert int(opened.run(first)) == archive.cell[np.flatnonzero(inside)[0]]
    opened.press_button(".grid button:nth-child(2)")
    worst = np.flatnonzero(inside)[archive.fitness[inside].argmin()]
    assert int(opened.run(first)) == archive.cell[worst]
    opened.press_button(".line")
    assert opened.run("state.chosen.elite") == worst
    opened.press("Escape")
    assert opened.run("JSON.stringify(state.filters)") == "{}"


def test_a_range_is_typed_beside_the_map(opened, walker):
    archive = elites.load_archive(walker)
    assert opened.run("byId('filters').hidden")
    opened.run("byId('filter-by').value = 'fitness', byId('filter-by').dispatchEvent(new Event('change'))")
    opened.settle()
    assert f"{len(archive.fitness)} of {len(archive.fitness)} elites" in opened.run(
        "byId('filters').innerText"
    )
    assert opened.run("document.activeElement.ariaLabel") == "fitness from"
    opened.type("300")
    opened.press("Tab", "")
    assert opened.run("state.filters.fitness[0]") == 300
    inside = (archive.fitness >= 300).sum()
    assert f"{inside} of {len(archive.fitness)} elites" in opened.run("byId('filters').innerText")
    bright = opened.run("views[0].now.colour.filter((value, at) => at % 4 === 3 && value === 1).length")
    assert bright == inside
    assert "only=fitness_300_" in opened.run("location.hash")
    opened.run("change({filters: {...state.filters, d1: [0.25, 0.5]}, tab: 'axes'})")
    opened.settle()
    fields = "Array.from(document.querySelectorAll('.chip input'), (field) => Number(field.value))"
    assert opened.run(fields)[2:] == [0.25, 0.5]
    opened.press_button(".chip button")
    assert list(opened.run("state.filters")) == ["d1"]


def test_parallel_axes_filter_by_drawing(opened, tmp_path):
    opened.press_button("#tabs [data-key=axes]")
    x, y, height = opened.run(
        "(() => { const box = document.querySelector('#detail canvas').getBoundingClientRect(); "
        "return [box.x, box.y, box.height]; })()"
    )
    opened.drag((x + 60, y + 30), (x + 60, y + height / 2))
    assert list(opened.run("state.filters")) == ["fitness"]
    assert opened.run("document.querySelector('.chip').textContent").startswith("fitness")
    assert_looks_like(opened, "axes", tmp_path)
    opened.click(x + 60, y + 60)
    assert opened.run("JSON.stringify(state.filters)") == "{}"


def test_pictures_are_exported(opened):
    svg = opened.run("makeSvg()")
    assert svg.startswith("<svg")
    assert svg.count("<path") >= opened.run("views[0].now.rows.filter((row) => row >= 0).length")
    assert opened.run(
        "new DOMParser().parseFromString(makeSvg(), 'image/svg+xml').querySelector('parsererror') === null"
    )
    assert opened.run("makePng().then((blob) => blob.size)") > 5000
    opened.run("change({colour: 'operator'})")
    opened.settle()
    assert opened.run("HEADER.operators.every(({name}) => makeSvg().includes(`>${name}</text>`))")
    opened.press_button("#save")
    assert opened.run("byId('dialog').open")
    opened.press("Escape")


@pytest.mark.parametrize(
    ("dims", "cells", "kind"),
    [(1, 64, "cvt"), (2, 0, (8, 12)), (3, 125, "cvt"), (4, 256, "cvt"), (6, 200, "cvt")],
)
def test_any_number_of_dimensions(dims, cells, kind, browser, make_folder, tmp_path_factory, tmp_path):
    browser.resize(1280, 800)
    archive = synthetic_archive(dims, cells, kind=kind)
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, archive))
    shown = browser.run("views[0].now.rows.filter((row) => row >= 0).length")
    assert 0 < shown <= len(archive.fitness)
    if dims <= 2:
        assert shown == len(archive.fitness)
    for layout in browser.run(f"listLayouts({dims})"):
        browser.run(f"change({{layout: '{layout}'}})")
        browser.settle()
        for key in "123":
            browser.press(key)
        x, y = on_map(browser, 0)
        browser.move(x, y)
        assert "fitness" in browser.run("byId('tip').innerText")
    if dims == 4:
        browser.run("change({layout: '', view: 'recorded', hover: null})")
        assert_looks_like(browser, "four", tmp_path)
    if dims == 1:
        browser.run("change({view: 'recorded', hover: null})")
        assert_looks_like(browser, "one", tmp_path)
    assert browser.problems == []


def test_axes_of_many_dimensions_are_chosen(browser, make_folder, tmp_path_factory):
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, synthetic_archive(6, 200)))
    browser.run(
        "(() => { const select = document.querySelector('#axes-choice select'); select.value = '5'; "
        "select.dispatchEvent(new Event('change')); })()"
    )
    browser.settle()
    assert browser.run("state.axes") == [5, 1, 2, 3]
    assert browser.problems == []


def test_two_runs_share_one_scale_and_the_selection(browser, make_folder, tmp_path_factory, tmp_path):
    one, other = synthetic_archive(), synthetic_archive(seed=5, cells=128, shift=-500)
    browser.resize(1280, 800)
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, one, other))
    low, high = browser.run("[currentScale().low, currentScale().high]")
    assert high == pytest.approx(max(one.fitness.max(), other.fitness.max()))
    assert low <= min(one.fitness.min(), other.fitness.min())
    nearest = browser.run("views[1].counterpart({run: 0, elite: 7})")
    assert nearest == ((other.descriptor - one.descriptor[7]) ** 2).sum(1).argmin()
    browser.click(*on_map(browser, 3, view=1))
    assert browser.run("state.chosen") == {"run": 1, "elite": 3}
    assert_looks_like(browser, "two", tmp_path)
    assert browser.problems == []


def test_heights_and_arrows_of_a_profile_are_those_of_its_axis(browser, make_folder, tmp_path_factory):
    archive = synthetic_archive(cells=64, dims=1)
    fitness = archive.fitness.copy()
    fitness[0] = 40 * fitness.max()  # far beyond the scale of colours
    browser.resize(1280, 800)
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, replace(archive, fitness=fitness)))
    assert browser.run("currentScale().high < currentScale().most")
    tops = browser.run("[0, 1].map((elite) => views[0].now.place[2 * views[0].now.rows.indexOf(elite) + 1])")
    bottom = min(0, fitness.min())
    np.testing.assert_allclose(tops[1] / tops[0], (fitness[1] - bottom) / (fitness[0] - bottom), rtol=1e-4)
    browser.press("3")
    browser.settle()
    ends = browser.run(
        "(() => { const lines = []; const context = new Proxy({}, {get: (_, name) => (...at) => "
        "{ if (name === 'moveTo' || name === 'lineTo') lines.push(at[1]); }, set: () => true}); "
        "for (const elite of selectArrows(views[0])) { lines.push('arrow'); "
        "drawArrow(views[0], context, elite, 1); } return lines; })()"
    )
    arrows = [at for at, end in enumerate(ends) if end == "arrow" and at + 2 < len(ends)]
    drawn = [at for at in arrows if ends[at + 1] != "arrow"]
    assert drawn
    assert all(ends[at + 1] == pytest.approx(ends[at + 2]) for at in drawn)  # along the axis
    assert browser.problems == []


def test_the_slider_ends_with_the_longest_run(browser, make_folder, tmp_path_factory):
    archive = synthetic_archive(cells=64)
    later = replace(archive, about={**archive.about, "evaluations": 90_000})
    browser.open(make_page(make_folder, tmp_path_factory, archive, later))
    lengths = browser.run("runs.map((run) => run.header.evaluations)")
    assert lengths[1] > lengths[0]
    assert browser.run("Number(byId('moment').max)") == lengths[1]


def test_an_uncorrected_run_is_grey_next_to_a_corrected_one(browser, make_folder, tmp_path_factory):
    one, other = synthetic_archive(cells=64), synthetic_archive(cells=64, seed=2)
    folders = [make_folder(one, replicated(one, 5)), make_folder(other)]
    out = tmp_path_factory.mktemp("pages") / "page.html"
    browser.resize(1280, 800)
    browser.problems.clear()
    browser.open(elites.explore(*folders, out=out, gaits="none"), "view=difference")
    assert f"elites correct {folders[1]}" in browser.run("byId('note').textContent")
    grey = browser.run("currentScale().grey")
    colours = np.array(browser.run("Array.from(views[1].now.colour)")).reshape(-1, 4)
    assert (colours[colours[:, 3] > 0, :3] == grey).all()
    assert browser.problems == []


def test_without_a_correction_it_says_how_to_get_one(browser, make_folder, tmp_path_factory):
    browser.resize(1280, 800)
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, synthetic_archive(cells=64), corrected=False))
    browser.press_button("#views [data-key=corrected]")
    assert browser.run("state.view") == "recorded"
    assert "elites correct" in browser.run("byId('note').textContent")
    assert browser.run("byId('colours').options.length") == 4
    assert browser.problems == []


@pytest.mark.parametrize("case", ["one", "flat", "negative"])
def test_unusual_archives(case, browser, make_folder, tmp_path_factory):
    archive = {
        "one": lambda: synthetic_archive(cells=64, filled=0.001),
        "flat": lambda: synthetic_archive(cells=64, flat=True),
        "negative": lambda: synthetic_archive(1, 32, shift=-5000),
    }[case]()
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, archive))
    for key in ("2", "3", "1", "c", "c", "ArrowLeft", "ArrowDown"):
        browser.press(key)
    for tab in ("table", "axes", "pins", "progress"):
        browser.run(f"change({{tab: '{tab}'}})")
        browser.settle()
    assert "NaN" not in browser.run("document.body.innerText")
    assert browser.problems == []


def test_names_with_markup_are_text(browser, make_folder, tmp_path_factory):
    name = "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
    archive = synthetic_archive(cells=64, task=name, phrase=f"{name} of {{}}")
    browser.problems.clear()
    browser.open(make_page(make_folder, tmp_path_factory, archive))
    assert name in browser.run("byId('about').textContent")
    assert browser.run("typeof window.broken") == "undefined"
    assert browser.run("document.querySelectorAll('img[onerror], img[src=x]').length") == 0
    assert browser.problems == []


def test_dark_mode_follows_the_system_or_the_setting(opened, page, tmp_path):
    opened.prefer(prefers_color_scheme="dark")
    opened.open(page)
    assert opened.run("document.documentElement.dataset.theme") == "dark"
    assert_looks_like(opened, "dark", tmp_path)
    opened.press_button("#theme")
    assert opened.run("document.documentElement.dataset.theme") == "light"


def test_a_narrow_screen_has_one_column(opened, page, tmp_path):
    opened.resize(390, 844, scale=2, mobile=True)
    opened.open(page)
    assert opened.run("document.documentElement.scrollWidth") <= 390
    tops = opened.run("['atlas', 'elite', 'lower'].map((id) => byId(id).getBoundingClientRect().top)")
    assert tops == sorted(tops)
    assert opened.run("views[0].box.clientHeight") >= 300
    opened.tap(*on_map(opened, 25))
    assert opened.run("state.chosen.elite") == 25
    assert opened.run("views[0].box.style.touchAction") == "pan-y"  # the page can be scrolled from the map
    opened.run("setZoom(2, 0.5, 0.5)")
    opened.settle()
    assert opened.run("views[0].box.style.touchAction") == "none"


def test_the_robot_is_drawn_with_and_without_webgl(tmp_path):
    """A robot of two limbs that is moved by hand, in browsers with and without WebGL."""
    from tests.explorer.walkers import moving_page

    page = moving_page(tmp_path)
    for webgl in (True, False):
        with Browser((900, 700), webgl=webgl) as browser:
            browser.open(page)
            assert browser.run("Boolean(document.createElement('canvas').getContext('webgl2'))") == webgl
            browser.run("clock.playing = false, clock.time = 0.5, stages.forEach((stage) => stage.draw())")
            browser.settle()
            x, y = browser.middle(".stage")
            with Image.open(browser.screenshot(tmp_path / "stage.png")) as shot:
                area = np.asarray(shot.convert("RGB"), int)[
                    int(y) - 125 : int(y) + 125, int(x) - 180 : int(x) + 180
                ]
            red, green, blue = np.moveaxis(area, -1, 0)
            orange, yellow = (
                (red > 1.5 * green) & (green > blue),
                (red > 170) & (green > 0.7 * red) & (blue < 0.6 * red),
            )
            assert orange.sum() > 500
            assert yellow.sum() > 50  # the foot that touches the floor
            before = browser.run("mainStage.orbit.join()")
            browser.drag((x, y), (x + 50, y))
            assert browser.run("mainStage.orbit.join()") != before
            assert browser.problems == []
