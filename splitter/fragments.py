"""Statements as stretches of lines, with the comments that belong to them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from splitter.carry import Refused
from splitter.flow import blocks
from splitter.ir import Diagnostic, Fragment
from splitter.read import Module


def fragments(module: Module, statements: Iterable[ast.stmt]) -> tuple[Fragment, ...]:
    """The lines of some statements in order, comment lines right above included; statements inside others are not repeated."""
    found: list[Fragment] = []
    for fragment in sorted(_with_comments(module, module.fragment(stmt)) for stmt in statements):
        if found and fragment.first <= found[-1].last:
            found[-1] = Fragment(fragment.path, found[-1].first, max(found[-1].last, fragment.last))
        else:
            found.append(fragment)
    return tuple(found)


def _with_comments(module: Module, fragment: Fragment) -> Fragment:
    first = fragment.first
    lines = module.line_starts
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    while first > 1:
        above = lines[first - 2]
        if not above.strip().startswith("#") or len(above) - len(above.lstrip()) != indent or first == 2 or above.startswith("#!"):
            break
        first -= 1
    return Fragment(fragment.path, first, fragment.last)


def shared_line(module: Module, statements: Iterable[ast.stmt]) -> None:
    """Refuse when a statement to copy shares a line with one that stays: lines are carried whole."""
    wanted = list(statements)
    inside = {id(child) for stmt in wanted for child in ast.walk(stmt)}
    lines = {line for stmt in wanted for line in (stmt.lineno, stmt.end_lineno)}
    for node in ast.walk(module.tree):
        for block in blocks(node):
            for stmt in block:
                if id(stmt) not in inside and (stmt.lineno in lines or (stmt.end_lineno in lines and not list(blocks(stmt)))):
                    raise Refused(Diagnostic("S317", module.span(stmt), (("line", str(stmt.lineno)),)))


def merged(parts: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
    """Fragments in order, each line once."""
    found: list[Fragment] = []
    for part in sorted(set(parts)):
        if found and (part.path, True) == (found[-1].path, part.first <= found[-1].last):
            found[-1] = Fragment(part.path, found[-1].first, max(found[-1].last, part.last))
        else:
            found.append(part)
    return tuple(found)


def joined(parts: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
    """Fragments of which those are one that follow each other line by line."""
    found: list[Fragment] = []
    for part in parts:
        if found and (found[-1].path, found[-1].last + 1) == (part.path, part.first):
            found[-1] = Fragment(part.path, found[-1].first, part.last)
        else:
            found.append(part)
    return tuple(found)
