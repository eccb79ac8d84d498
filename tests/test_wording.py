"""Messages that are put together from parts."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

import edgefl
from edgefl.wording import with_article

ARTICLE = re.compile(r"(^|[\s(])(a|an)\s+['\"]?$", re.IGNORECASE)


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("accuracy", "an accuracy"),
        ("smoothed accuracy", "a smoothed accuracy"),
        ("block scheduler", "a block scheduler"),
        ("Orin", "an Orin"),
    ],
)
def test_the_article_fits_its_noun(noun, expected):
    assert with_article(noun) == expected


def test_no_message_sets_an_article_before_a_word_that_it_does_not_know():
    package = Path(edgefl.__file__).parent
    found = []
    for path in sorted(set(package.rglob("*.py")) - {package / "wording.py"}):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for before, after in pairwise(parts):
                words = before.value if isinstance(before, ast.Constant) else ""
                if isinstance(after, ast.FormattedValue) and ARTICLE.search(str(words)):
                    found.append(f"{path.relative_to(package)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
