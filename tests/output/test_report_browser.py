"""The page of the report command in a real browser: seen, moved, folded, read out and typed at."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, find_browser, open_browser
from support.command import run, write
from support.oracles import random_model

from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model, read_model
from metasilvae.verification.curve import trace_curve

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no chromium is installed; `apt-get install chromium` installs it on Debian"
)
IRIS, IRIS_SETS = "builtin:iris/tree.silva", ["builtin:iris/train", "builtin:iris/test"]
VISIBLE = "document.querySelectorAll('.node').length"
FOCUSED = "Number(document.activeElement.dataset.node ?? -1)"
# Where the drawing is, as (scale, left, top).
VIEW = "(m => [m.a, m.e, m.f])(new DOMMatrix(getComputedStyle(document.querySelector('.view')).transform))"
# The smallest contrast of texts with what is behind them, over all visible texts outside of drawings.
CONTRAST = """(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    pen.clearRect(0, 0, 1, 1);
    for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  let least = [Infinity, ""];
  for (const element of document.querySelectorAll("body *:not(svg):not(svg *):not(script):not(.skip)")) {
    const texts = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!texts.length || !element.checkVisibility()) continue;
    const behind = [];
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const [a, b] = [light(over(behind)), light(over([...behind, getComputedStyle(element).color]))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, element.outerHTML.slice(0, 80)];
  }
  return least;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    rng = random.Random(3)
    forest = random_model(rng, n_trees=3, max_splits=60)
    write(folder, "forest.silva", format_model(forest))
    rows = [f"{rng.choice(forest.labels)},{rng.random()},{rng.random()}\n" for _ in range(20)]
    write(folder, "rows.csv", "".join(rows))
    deep = folder / "a_folder_with_a_long_name" / "and_another_one_inside_of_it"
    deep.mkdir(parents=True)
    long = "very-long-" * 30
    hostile = "</script><script>hacked=1</script>"[:31]
    write(folder, "odd.silva", f"classifier-decision-tree 2 2 {hostile} <b>\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    write(folder, "odd.csv", f"label,{long},<img/src=x/onerror=hacked=1>\n{hostile},0.45,0.1\n<b>,0.9,0.1\n")
    copies = [deep / name for name in ("train-rows.csv", "test-rows.csv")]
    for copy in copies:
        write(deep, copy.name, "".join(rows))
    made = {}
    for name, arguments in {
        "iris": [IRIS, *IRIS_SETS, "--epsilon", 0.1],
        "forest": [folder / "forest.silva", folder / "rows.csv", "--epsilon", 0.05],
        "odd": [folder / "odd.silva", folder / "odd.csv", "--epsilon", 0.1],
        "paths": [folder / "forest.silva", *copies, "--epsilon", 0.05],
    }.items():
        made[name] = folder / f"{name}.html"
        run("report", *arguments, "-o", made[name])
    return made


@pytest.fixture
def iris(browser: Browser, pages: dict[str, Path]) -> Browser:
    browser.set_size(1100, 900)
    browser.set_media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    browser.open(pages["iris"])
    return browser


@pytest.mark.parametrize("name", ["iris", "forest", "odd"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_is_quiet_and_fits(browser: Browser, pages: dict[str, Path], name: str, scheme: str, width: int) -> None:
    browser.set_size(width, 740, is_phone=width < 600)
    browser.set_media(prefers_color_scheme=scheme)
    browser.open(pages[name])
    browser.settle()
    assert browser.run("[document.documentElement.scrollWidth, window.innerWidth]") == [width, width]
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.complaints() == []
    assert browser.run("typeof hacked") == "undefined"
    assert browser.run("document.images.length") == 0
    ratio, where = browser.run(CONTRAST)
    assert ratio >= 4.5, where
    dark = browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert dark == (scheme == "dark")


def test_the_policy_stops_what_does_not_belong(iris: Browser) -> None:
    iris.run("{const s = document.createElement('script'); s.textContent = 'hacked = 1'; document.body.append(s)}")
    iris.run("new Promise(done => { const i = new Image(); i.onerror = done; i.src = 'data:image/png,x'; })")
    assert iris.run("typeof hacked") == "undefined"
    assert sum("Content Security Policy" in text for text in iris.complaints()) == 2


class TestDrawing:
    def test_keys_fold_and_move(self, iris: Browser) -> None:
        assert iris.run(VISIBLE) == 7
        iris.run("document.querySelector('.node').focus()")
        order = []
        for _ in range(8):
            order.append(iris.run(FOCUSED))
            iris.press("ArrowDown")
        assert len(set(order)) == 7
        assert order[-1] == order[-2]
        iris.press("Home")
        assert iris.run(FOCUSED) == 0
        for key, visible, expanded in ((" ", 1, "false"), ("Enter", 7, "true"), ("ArrowLeft", 1, "false")):
            iris.press(key)
            assert iris.run(VISIBLE) == visible
            assert iris.run("document.activeElement.getAttribute('aria-expanded')") == expanded
        iris.press("ArrowRight")
        iris.press("ArrowRight")
        assert iris.run(VISIBLE) == 7
        assert iris.run("document.activeElement.getAttribute('aria-level')") == "2"
        assert "petal_length ≤ 2.45" in iris.run("document.getElementById('node-details').textContent")
        iris.press("End")
        assert "prediction virginica" in iris.run("document.activeElement.getAttribute('aria-label')")
        iris.press("ArrowLeft")
        iris.press("ArrowUp")
        assert iris.run(FOCUSED) in order

    def test_there_is_one_stop_for_tab(self, iris: Browser) -> None:
        iris.press("Tab")
        assert iris.run("document.activeElement.className") == "skip"
        iris.run("document.querySelector('[data-action=fold]').focus()")
        iris.press("Tab")
        assert iris.run(FOCUSED) == 0
        assert iris.run("getComputedStyle(document.activeElement.querySelector('.halo')).visibility") == "visible"
        iris.press("Tab")
        assert iris.run(FOCUSED) == -1

    def test_a_click_folds(self, iris: Browser) -> None:
        iris.click("[data-node='0'] .knob")
        assert iris.run(VISIBLE) == 1
        assert iris.run(FOCUSED) == 0
        iris.click("[data-node='0'] .box")
        assert iris.run(VISIBLE) == 7
        iris.click("[data-action='fold']")
        assert iris.run(VISIBLE) == 1
        iris.click("[data-action='unfold']")
        assert iris.run(VISIBLE) == 7

    def test_the_frame_grows_with_the_drawing(self, iris: Browser) -> None:
        height = "document.querySelector('.drawing svg').clientHeight"
        whole = iris.run(height)
        iris.click("[data-action='fold']")
        assert iris.run(height) < whole
        iris.run("document.querySelector('.node').focus()")
        iris.press("ArrowRight")
        for _ in range(3):
            iris.press("End")
            iris.press("ArrowRight")
        iris.press("ArrowUp")
        iris.press("ArrowRight")
        frame, boxes = iris.run(
            "[document.querySelector('.drawing').getBoundingClientRect(), "
            "...[...document.querySelectorAll('.node .box')].map(b => b.getBoundingClientRect())]"
            ".map(r => [r.top, r.bottom]).reduce((all, r, k) => (k ? all[1].push(r) : all[0] = r, all), [[], []])"
        )
        assert len(boxes) == 7
        assert frame[0] <= min(top for top, _ in boxes)
        assert max(bottom for _, bottom in boxes) <= frame[1]

    def test_dragging_moves(self, iris: Browser) -> None:
        scale, left, top = iris.run(VIEW)
        iris.drag("[data-node='0']", 40, -25)
        assert iris.run(VIEW) == pytest.approx([scale, left + 40, top - 25], rel=1e-4)
        assert iris.run(VISIBLE) == 7, "a drag is not a click"
        iris.click("[data-action='fit']")
        assert iris.run(VIEW) == pytest.approx([scale, left, top], rel=1e-4)

    def test_zooming(self, iris: Browser) -> None:
        scale = iris.run(VIEW)[0]
        iris.click("[data-action='in']")
        assert iris.run(VIEW)[0] == pytest.approx(1.25 * scale, rel=1e-4)
        iris.click("[data-action='out']")
        assert iris.run(VIEW)[0] == pytest.approx(scale, rel=1e-4)
        x, y = iris.middle_of(".drawing svg")
        iris.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
        iris.settle()
        assert iris.run(VIEW)[0] == pytest.approx(scale, rel=1e-4), (
            "the wheel moves the page until the drawing is in use"
        )
        iris.run("document.querySelector('.node').focus()")
        iris.press("+")
        assert iris.run(VIEW)[0] == pytest.approx(1.25 * scale, rel=1e-4)
        x, y = iris.middle_of(".drawing svg")
        iris.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
        iris.settle()
        assert iris.run(VIEW)[0] > 1.3 * scale
        iris.press("0")
        assert iris.run(VIEW)[0] == pytest.approx(scale, rel=1e-4)

    def test_fingers_move_and_zoom(self, browser: Browser, pages: dict[str, Path]) -> None:
        browser.set_size(360, 740, is_phone=True)
        browser.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
        browser.open(pages["iris"])
        x, y = browser.middle_of(".drawing svg")

        def touch(kind: str, *points: tuple[float, float]) -> None:
            named = [{"x": px, "y": py, "id": number} for number, (px, py) in enumerate(points)]
            browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=named)

        scale, left, _ = browser.run(VIEW)
        touch("touchStart", (x, y))
        touch("touchMove", (x - 30, y))
        touch("touchMove", (x - 60, y))
        touch("touchEnd")
        browser.settle()
        assert browser.run(VIEW)[:2] == pytest.approx([scale, left - 60], abs=8)
        touch("touchStart", (x - 20, y), (x + 20, y))
        touch("touchMove", (x - 40, y), (x + 40, y))
        touch("touchEnd")
        browser.settle()
        assert browser.run(VIEW)[0] == pytest.approx(2 * scale, rel=0.1)
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
        assert browser.run("document.documentElement.scrollWidth") == 360

    def test_large_trees_start_folded_and_can_be_chosen(self, browser: Browser, pages: dict[str, Path]) -> None:
        browser.set_size(1100, 900)
        browser.open(pages["forest"])
        totals = browser.run("JSON.parse(document.getElementById('tree-data').textContent).trees.map(t => t.total)")
        assert len(totals) == 3
        for place, total in enumerate(totals):
            browser.run(
                f"{{const s = document.getElementById('tree-choice'); s.value = {place}; "
                "s.dispatchEvent(new Event('change'))}"
            )
            assert browser.run(VISIBLE) == min(total, browser.run(VISIBLE)) <= 31
            assert browser.run("document.getElementById('tree-extent').textContent").startswith(f"{total} node")
            browser.click("[data-action='unfold']")
            assert browser.run(VISIBLE) == total
        assert max(totals) > 31

    def test_motion_is_reduced_on_request(self, iris: Browser) -> None:
        duration = "getComputedStyle(document.querySelector('.view')).transitionDuration"
        assert iris.run(duration) == "0s"
        iris.set_media(prefers_reduced_motion="no-preference")
        assert iris.run(duration) != "0s"


class TestCurve:
    READOUT = "[...document.querySelectorAll('#readout tbody tr')].map(r => [...r.cells].map(c => c.textContent))"

    def test_the_readout_is_the_curve(self, iris: Browser) -> None:
        model = read_model(IRIS)
        curves = [(data, trace_curve(model, read_dataset(data), jobs=1)) for data in IRIS_SETS]
        values = sorted({0.0, 0.1, 3.0, *(float(step) for _, curve in curves for step in curve.steps[0][:6])})
        for value in values:
            found = iris.run(
                f"{{const e = document.getElementById('epsilon'); e.value = {json.dumps(str(value))}; "
                f"e.dispatchEvent(new Event('input')); {self.READOUT}}}"
            )
            assert [row[0] for row in found] == IRIS_SETS
            for (_, curve), row in zip(curves, found, strict=True):
                for shown, share in ((row[1], curve.stability(value)), (row[2], curve.robust_accuracy(value))):
                    count = round(share * curve.n_samples)
                    assert shown == f"{100 * share:.2f} % ({count} of {curve.n_samples})"

    def test_keys_and_mouse(self, iris: Browser) -> None:
        iris.run("document.getElementById('epsilon-range').focus()")
        before = float(iris.run("document.getElementById('epsilon').value"))
        for _ in range(5):
            iris.press("ArrowRight")
        assert float(iris.run("document.getElementById('epsilon').value")) > before
        x, y = iris.middle_of("#chart .plot")
        iris.mouse("mouseMoved", x, y)
        end = iris.run("JSON.parse(document.getElementById('curve-data').textContent).end")
        assert float(iris.run("document.getElementById('epsilon').value")) == pytest.approx(end / 2, rel=0.02)
        assert iris.run("getComputedStyle(document.querySelector('.cursor')).visibility") == "visible"

    def test_looking_elsewhere_keeps_what_was_typed(self, iris: Browser) -> None:
        value = "document.getElementById('epsilon').value"
        iris.run(
            "{const e = document.getElementById('epsilon'); e.value = '0.123456'; e.dispatchEvent(new Event('input'))}"
        )
        typed = iris.run(self.READOUT)
        x, y = iris.middle_of("#chart .plot")
        iris.mouse("mouseMoved", x, y)
        assert iris.run(value) != "0.123456"
        iris.mouse("mouseMoved", 3, 3)
        assert iris.run(value) == "0.123456"
        assert iris.run(self.READOUT) == typed
        iris.click("#chart .plot")
        pressed = iris.run(value)
        iris.mouse("mouseMoved", 3, 3)
        assert iris.run(value) == pressed != "0.123456"

    def test_the_table_can_be_opened_by_key(self, iris: Browser) -> None:
        iris.run("document.querySelector('summary').focus()")
        iris.press("Enter")
        assert iris.run("document.querySelector('details').open")


def test_wide_tables_scroll_inside_by_key(browser: Browser, pages: dict[str, Path]) -> None:
    browser.set_size(280, 740, is_phone=True)
    browser.open(pages["iris"])
    frame = "document.querySelector('[aria-labelledby=confusion-0]')"
    assert browser.run(f"[{frame}.scrollWidth > {frame}.clientWidth, {frame}.tabIndex]") == [True, 0]
    assert "gradient" in browser.run(f"getComputedStyle({frame}).backgroundImage")
    browser.set_size(1280, 740)
    browser.open(pages["iris"])
    assert browser.run(f"{frame}.tabIndex") == -1


class TestPhone:
    @pytest.mark.parametrize("name", ["iris", "forest", "paths"])
    def test_no_number_is_hidden(self, browser: Browser, pages: dict[str, Path], name: str) -> None:
        browser.set_size(390, 844, is_phone=True)
        browser.open(pages[name])
        wide = browser.run(
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
            ".map(e => e.getAttribute('aria-labelledby'))"
        )
        assert [table for table in wide if not table.startswith("confusion")] == []

    def test_fragile_rows_are_cards(self, browser: Browser, pages: dict[str, Path]) -> None:
        frame = "document.querySelector('[aria-labelledby=fragile-0]')"
        cells = f"[...{frame}.querySelectorAll('tbody tr')[0].children].map(c => c.getBoundingClientRect().left)"
        titles = (
            f"[...{frame}.querySelectorAll('tbody tr')[0].children].map(c => getComputedStyle(c, '::before').content)"
        )
        headings = f"[...{frame}.querySelectorAll('thead th')].map(h => JSON.stringify(h.textContent))"
        browser.set_size(390, 844, is_phone=True)
        browser.open(pages["iris"])
        assert len(set(browser.run(cells))) == 1
        assert browser.run(titles) == browser.run(headings)
        browser.set_size(1280, 844)
        assert len(set(browser.run(cells))) == len(browser.run(headings)) == 7


def test_missing_values_are_marked_at_the_branch_that_they_take(browser: Browser, tmp_path: Path) -> None:
    model, page = tmp_path / "m.silva", tmp_path / "page.html"
    words = ["--label-column", "species", "--epsilon", 1]
    run("train", "builtin:penguins/train", model, *words, "--preset", "cart", "--max-depth", 2, "--no-manifest")
    run("report", model, "builtin:penguins/test", *words, "-o", page)
    browser.open(page)
    text = run("export", model, "--to", "text").stdout
    names = browser.run("[...document.querySelectorAll('.edge-name')].map(e => e.textContent)")
    assert sum(name.endswith(", missing") for name in names) == text.count(" or missing\n") > 0
    # The path to a leaf that missing values reach says so.
    browser.run("document.querySelector('.node').focus()")
    for _ in range(2):
        browser.press("ArrowRight")
        browser.settle()
    shown = browser.run("document.querySelector('#node-details').textContent")
    assert "or missing" in shown
    assert not browser.complaints()
