"""Pages for developers."""

from clarion.http.docs import list_errors, render_errors, routes


def test_the_page_of_errors_has_a_place_for_every_code() -> None:
    text = render_errors()
    assert all(f'<h2 id="{kind.code}">' in text for kind in list_errors())


def test_the_list_of_errors_is_sorted_and_holds_each_once() -> None:
    kinds = [(kind.status, kind.code) for kind in list_errors()]
    assert kinds == sorted(set(kinds))


def test_every_file_a_page_loads_is_served() -> None:
    assert {route.path for route in routes()} == {
        "/docs",
        "/docs/errors",
        "/docs/docs.js",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
    }
