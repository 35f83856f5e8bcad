"""Evaluates the conditions of the recipes: `if` of a GitHub workflow, `rules: if` of GitLab CI.

Both languages have strings, names, ==, !=, &&, ||, ! and parentheses, which is all that the recipes use. Everything
else is a SyntaxError, so that a condition that this module does not understand fails the tests.
"""

import re

TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^']|'')*'|"[^"]*")|(?P<operator>==|!=|&&|\|\||!|\(|\))"""
    r"""|(?P<name>\$?[A-Za-z_][\w.-]*(?:\(\))?))"""
)


def tokens(text):
    position, found = 0, []
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if not match:
            raise SyntaxError(f"cannot read {text[position:]!r}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return found


class Expression:
    """A condition. `lookup` returns the value of a name; `equal` compares two values."""

    def __init__(self, text, lookup, equal):
        self.rest, self.lookup, self.equal = tokens(text), lookup, equal
        self.value = self.either()
        if self.rest:
            raise SyntaxError(f"unexpected {self.rest[0][1]!r} in {text!r}")

    def take(self, *operators):
        if self.rest and self.rest[0][0] == "operator" and self.rest[0][1] in operators:
            return self.rest.pop(0)[1]
        return None

    def either(self):
        value = self.both()
        while self.take("||"):
            right = self.both()
            value = value or right
        return value

    def both(self):
        value = self.comparison()
        while self.take("&&"):
            right = self.comparison()
            value = value and right
        return value

    def comparison(self):
        left = self.operand()
        operator = self.take("==", "!=")
        if not operator:
            return left
        return self.equal(left, self.operand()) == (operator == "==")

    def operand(self):
        if self.take("!"):
            return not self.operand()
        if self.take("("):
            value = self.either()
            if not self.take(")"):
                raise SyntaxError("a parenthesis is not closed")
            return value
        if not self.rest or self.rest[0][0] == "operator":
            raise SyntaxError("an operand is missing")
        kind, text = self.rest.pop(0)
        if kind == "string":
            return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
        return self.lookup(text)


def github_equal(left, right):
    """Compares as GitHub does: strings without regard to case; an absent value is an empty string."""
    return str(left or "").lower() == str(right or "").lower()


def github_value(text, context):
    """Evaluates a GitHub expression without `${{ }}`. `context` has values and functions by their dotted names.

    Names are looked up strictly: a name that the test does not define is a KeyError.
    """

    def lookup(name):
        return context[name]() if name.endswith("()") else context[name]

    return Expression(text, lookup, github_equal).value


def fill_in(text, context):
    """Replaces each `${{ expression }}`; absent values become empty, as on GitHub."""
    return re.sub(
        r"\$\{\{(.*?)\}\}",
        lambda match: "" if (value := github_value(match.group(1), context)) is None else str(value),
        str(text),
    )


def gitlab_value(text, variables):
    """Evaluates a GitLab `rules: if`. Absent variables are null, which equals null only."""
    return bool(Expression(text, lambda name: variables.get(name.removeprefix("$")), lambda a, b: a == b).value)
