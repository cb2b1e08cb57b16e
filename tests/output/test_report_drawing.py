"""The drawing of the report page in a real browser: large trees, phones, many classes, names from right to left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, find_browser, open_browser
from support.command import run, write

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no chromium is installed; `apt-get install chromium` installs it on Debian"
)
N_CLASSES = 12
NAME = "\u0637\u0648\u0644"  # Arabic letters
VIEW = "new DOMMatrix(getComputedStyle(document.querySelector('.view')).transform)"
# Left, right, top and bottom of the frame and of each visible node.
BOXES = (
    "['.drawing svg', '.node .box'].map(s => [...document.querySelectorAll(s)].map(e => e.getBoundingClientRect())"
    ".map(r => [r.left, r.right, r.top, r.bottom]))"
)
FILLS = "[...document.querySelectorAll('#class-colors rect')].map(r => getComputedStyle(r).fill)"


def balance(start: int, end: int) -> str:
    """A tree with a leaf for each whole number."""
    if end - start == 1:
        return "LEAF " + " ".join("1" if k == start % N_CLASSES else "0" for k in range(N_CLASSES)) + "\n"
    middle = (start + end) // 2
    return f"SPLIT 0 {middle - 0.5}\n{balance(start, middle)}{balance(middle, end)}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawings")
    labels = [str((7 * k) % N_CLASSES) for k in range(N_CLASSES)]
    model = f"classifier-decision-tree 1 {N_CLASSES} {' '.join(labels)}\n{balance(0, 200)}"
    rows = "".join(f"{labels[k % N_CLASSES]},{k}\n" for k in range(40))
    run(
        "report", write(folder, "m.silva", model), write(folder, "d.csv", f"label,{NAME}\n{rows}"),
        "--epsilon", 0.6, "-o", folder / "page.html",
    )  # fmt: skip
    return folder / "page.html"


@pytest.fixture
def screen(browser: Browser, page: Path) -> Browser:
    browser.set_size(1100, 900)
    browser.set_media(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
    browser.open(page)
    return browser


def is_inside(box: list[float], frame: list[float]) -> bool:
    return frame[0] <= box[0] and box[1] <= frame[1] and frame[2] <= box[2] and box[3] <= frame[3]


def test_a_large_tree_does_not_glide_and_can_be_fitted(screen: Browser) -> None:
    glides = "document.querySelector('.view').classList.contains('glide')"
    assert screen.run(glides)
    screen.click("[data-action='unfold']")
    screen.click("[data-action='fit']")
    assert not screen.run(glides)
    screen.settle()
    (frame,), boxes = screen.run(BOXES)
    assert len(boxes) == 399
    assert all(is_inside(box, frame) for box in boxes)
    screen.click("[data-action='out']")
    screen.click("[data-action='in']")
    assert screen.run(f"{VIEW}.a") > 0.01


@pytest.mark.parametrize("move", [(9000, 0), (-9000, 0), (0, 9000), (0, -9000), (5000, 5000), (-5000, -5000)])
def test_a_part_stays_visible(screen: Browser, move: tuple[int, int]) -> None:
    screen.set_media(prefers_reduced_motion="reduce")
    screen.drag(".drawing svg", *move)
    (frame,), boxes = screen.run(BOXES)
    visible = [
        box for box in boxes if min(box[1], frame[1]) - max(box[0], frame[0]) > 20 and box[3] > frame[2] + 20
        and box[2] < frame[3] - 20
    ]  # fmt: skip
    assert visible


def test_on_a_phone_the_first_levels_can_be_read(browser: Browser, page: Path) -> None:
    browser.set_size(390, 844, is_phone=True)
    browser.set_media(prefers_reduced_motion="reduce")
    browser.open(page)
    assert browser.run(f"{VIEW}.a") >= 0.95
    (frame,), boxes = browser.run(BOXES)
    levels = browser.run("[...document.querySelectorAll('.node')].map(n => Number(n.getAttribute('aria-level')))")
    assert levels.count(3) == 4
    assert all(is_inside(box, frame) for box, level in zip(boxes, levels, strict=True) if level <= 3)
    browser.set_size(1100, 900)
    browser.settle()
    _, boxes = browser.run(BOXES)
    assert len({box[0] for box in boxes}) > 2, "from left to right again"
    assert boxes[0][2] > boxes[1][2]


def test_each_class_has_a_colour_with_a_name(screen: Browser) -> None:
    names = screen.run("[...document.querySelectorAll('#class-colors li')].map(e => e.textContent)")
    assert names[:N_CLASSES] == [str(number) for number in range(N_CLASSES)]
    assert names[N_CLASSES] == "other classes"
    assert "some colours are similar" in names[-1]
    assert len(set(screen.run(FILLS))) == N_CLASSES + 1
    screen.click("[data-action='unfold']")
    fills = dict(zip(names, screen.run(FILLS), strict=False))
    strokes = screen.run(
        "[...document.querySelectorAll('.node.leaf')].map(n => [n.querySelector('.prediction').textContent, "
        "getComputedStyle(n.querySelector('.box')).stroke])"
    )
    assert dict(strokes) == {name: fills[name] for name in names[:N_CLASSES]}
    screen.set_media(prefers_color_scheme="dark")
    assert len(set(screen.run(FILLS)) | set(fills.values())) == 2 * (N_CLASSES + 1)


def test_names_from_right_to_left_turn_nothing_around(screen: Browser) -> None:
    screen.run("document.querySelector('.node').focus()")
    screen.press("ArrowRight")
    details = screen.run("document.getElementById('node-details').textContent")
    assert f"\u2068{NAME}\u2069 ≤ 99.5" in details
    starts = screen.run(
        "(() => { const text = document.querySelector('#node-details li').firstChild, found = []; "
        "for (const sign of ['≤', '9']) { const range = document.createRange(), at = text.data.indexOf(sign); "
        "range.setStart(text, at); range.setEnd(text, at + 1); found.push(range.getBoundingClientRect().left); } "
        "return found; })()"
    )
    assert starts[0] < starts[1]
