"""How the objects of the Python API are shown in a notebook."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup


def html_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title and a table as HTML; all texts are escaped."""
    head = Markup("").join(Markup("<th>{}</th>").format(text) for text in heads)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(text) for text in row))
        for row in rows
    )
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)
    return str(Markup("<p><b>{}</b></p>{}").format(title, table))
