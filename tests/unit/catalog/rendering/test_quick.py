"""The quick compiler renders what Liquid renders, or leaves it to Liquid."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from liquid.exceptions import LiquidError

from clarion.catalog import built_in
from clarion.catalog.model import Template
from clarion.catalog.rendering import liquid
from clarion.catalog.rendering.quick import Unsupported, compile_quickly


@pytest.fixture(autouse=True, scope="module")
def _unhurried() -> Iterator[None]:
    """These compare texts: a pause of the test process must not count as a slow template."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liquid, "TIME_LIMIT_S", 60)
        yield


NAMES = st.sampled_from(["a", "b", "a.b", "a.b.c", "count", "size", "a.first", "nil", "now", "é"])
BLANKS = st.sampled_from(["", " ", "  ", "\n", "\t"])
PLAIN = st.text(st.sampled_from("ab{}%- \r\n\"'<&é🚀"), max_size=6)
NUMBERS = st.integers(-1, 12).map(str)


@st.composite
def tags(draw: st.DrawFn) -> str:
    """Return a tag, right or wrong, with blanks here and there."""
    name, blank, number = draw(NAMES), draw(BLANKS), draw(NUMBERS)
    compare = draw(st.sampled_from(["", ">", ">=", "<", "<=", "==", "!=", "<>", "and"]))
    condition = f"{name}{blank}{compare}{blank}{number}" if compare else name
    return draw(
        st.sampled_from(
            [
                f"{{{{{blank}{name}{blank}}}}}",
                f"{{{{ {name}{blank}|{blank}minus:{blank}{number}{blank}}}}}",
                f"{{{{ {name} | upcase }}}}",
                f"{{{{- {name} -}}}}",
                f"{{% if {condition} %}}",
                f"{{%if {condition}%}}",
                f"{{%- if {condition} -%}}",
                f"{{% unless {name} %}}",
                f"{{%{blank}else{blank}%}}",
                f"{{% elsif {condition} %}}",
                f"{{%{blank}endif{blank}%}}",
                "{% raw %}",
                "{% endraw %}",
            ]
        )
    )


def blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return ifs around something, so that most of them end."""
    head = st.builds("{{% if {} %}}".format, st.sampled_from(["a", "a.b", "count > 1", "b == 0"]))
    return st.builds("{}{}{{% else %}}{}{{% endif %}}".format, head, inner, inner) | st.builds(
        "{}{}{{% endif %}}".format, head, inner
    )


PIECES = st.recursive(PLAIN | tags() | st.just("{{ a }}"), blocks, max_leaves=5)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.sampled_from("ab<&> \ré🚀"), max_size=4)
    | st.lists(st.integers(), max_size=2)
)
STRINGS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=5)
KEYS = st.sampled_from(["a", "b", "c", "count", "first", "size"])
VALUES = st.dictionaries(
    KEYS,
    ATOMS | st.dictionaries(KEYS, ATOMS | st.dictionaries(KEYS, ATOMS, max_size=2), max_size=3),
    max_size=4,
)


SIMPLE = st.recursive(
    st.sampled_from(["word", " ", "<b>", "\n", "{{ a }}", "{{ a.b }}", "{{ count | minus: 1 }}"]),
    blocks,
    max_leaves=8,
)
SIMPLE_VALUES = st.fixed_dictionaries(
    {"count": st.integers(0, 3), "a": st.dictionaries(st.just("b"), STRINGS) | STRINGS},
    optional={"b": st.integers(0, 2)},
)


@given(text=st.lists(SIMPLE, max_size=4).map("".join), values=SIMPLE_VALUES, is_html=st.booleans())
def test_a_simple_template_renders_as_with_liquid(
    text: str, values: dict[str, object], *, is_html: bool
) -> None:
    quick = compile_quickly(text, is_html=is_html)
    if quick is None:
        # Only blocks with nothing but blanks, or other blocks, in them.
        assert "{% if" in text
        return
    try:
        rendered = quick(values)
    except Unsupported:
        return
    assert rendered == liquid.render(text, values, is_html=is_html)


@given(text=TEXTS, values=VALUES, is_html=st.booleans())
@example(text="{% if a %} {% endif %}", values={"a": 1}, is_html=False)
@example(text="{% if a %}{{ a }}{% else %}x{% endif %}", values={"a": 0}, is_html=False)
@example(text="{% if a %}x{% endif %}", values={"a": ""}, is_html=False)
@example(text="{{ a | minus: 1 }}", values={"a": 10**15}, is_html=False)
@example(text="{% if now %}x{% endif %}", values={}, is_html=False)
def test_any_template_renders_as_with_liquid_or_not_at_all(
    text: str, values: dict[str, object], *, is_html: bool
) -> None:
    quick = compile_quickly(text, is_html=is_html)
    if quick is None:
        return
    try:
        rendered = quick(values)
    except Unsupported:
        return
    assert rendered == liquid.render(text, values, is_html=is_html)


@given(text=TEXTS)
def test_what_liquid_cannot_parse_is_not_compiled(text: str) -> None:
    try:
        liquid.parse(text, is_html=False)
    except LiquidError:
        assert compile_quickly(text, is_html=False) is None


@pytest.mark.parametrize(
    "template",
    [each for of_type in built_in.TEMPLATES.values() for each in of_type],
    ids=lambda each: f"{each.type}-{each.channel}",
)
@given(
    actor=st.dictionaries(st.just("name"), STRINGS),
    snippet=st.none() | STRINGS,
    count=st.integers(0, 5),
)
def test_built_in_templates_are_compiled(
    template: Template, actor: dict[str, str], snippet: str | None, count: int
) -> None:
    values = {"actor": actor, "snippet": snippet, "count": count}
    quick = compile_quickly(template.body, is_html=True)
    assert quick is not None
    assert quick(values) == liquid.render(template.body, values, is_html=True)


@pytest.mark.parametrize(
    "text",
    ["{{ a", "{% if a %}x", "x{% endif %}", "{% else %}", "{{ a | upcase }}", "{{ a.size }}"],
)
def test_what_is_not_simple_is_left_to_liquid(text: str) -> None:
    assert compile_quickly(text, is_html=False) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{{ a }}", {}),
        ("{{ a }}", {"a": 1.5}),
        ("{{ a }}", {"a": None}),
        ("{{ a.b }}", {"a": "text"}),
        ("{{ a | minus: 1 }}", {"a": "7"}),
        ("{% if a > 1 %}x{% endif %}", {"a": "7"}),
        ("{% if a > 1 %}x{% endif %}", {}),
        ("{{ a }}", {"a": "x" * 20_000}),
    ],
)
def test_values_that_are_not_simple_are_left_to_liquid(
    text: str, values: dict[str, object]
) -> None:
    quick = compile_quickly(text, is_html=False)
    assert quick is not None
    with pytest.raises(Unsupported):
        quick(values)
