"""A small scanner of C++ text: blanks out comments and literals, finds function definitions.

It knows no grammar, only tokens and braces; that is enough for sizes, and it needs no compiler.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)
_DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\[^\n]|\\\n)*', re.MULTILINE)
_SCOPE_WORD = re.compile(r'\b(namespace|class|struct|union|enum|extern)\b')
# A name, perhaps qualified, perhaps an operator, before an opening parenthesis.
_CALLED = re.compile(
    r'((?:[\w~]+(?:<[^()]*>)?::)*(?:operator\s*(?:\(\s*\)|[^\s(]+)|~?\w+))\s*\(')
_NOT_A_NAME = {"alignas", "decltype", "noexcept", "requires", "explicit", "__attribute__",
               "sizeof", "typeof", "static_assert"}


def blank(text: str) -> str:
    """The text with comments, literals and preprocessor lines as spaces; lines stay in place."""
    def spaces(match: re.Match) -> str:
        token = match.group(0)
        inner = re.sub(r'[^\n]', ' ', token)
        # A literal stays an operand, so that `f("a", 'b')` keeps its two parameters.
        return '0' + inner[1:] if token[0] in '"\'R' else inner
    text = _TOKEN.sub(spaces, text)
    return _DIRECTIVE.sub(lambda match: re.sub(r'[^\n]', ' ', match.group(0)), text)


@dataclass
class Function:
    name: str
    line: int         # of the first line of its head
    lines: int        # from there to its closing brace
    parameters: int


def functions(text: str) -> list[Function]:
    """The function definitions at namespace or class scope, in order."""
    code = blank(text)
    found = []
    # Of "outer" (namespace, class), Function (open), "initializer" (the head goes on after it)
    # and "inner" (any other brace).
    scopes = []
    head_start = 0       # where the text since the last ; { or } begins
    parens = 0
    for position, char in enumerate(code):
        if char == '(':
            parens += 1
        elif char == ')':
            parens -= 1
        elif char == ';' and parens == 0:
            head_start = position + 1
        elif char == '{':
            scope = _open(code, head_start, position, scopes, parens)
            scopes.append(scope)
            if scope != "initializer":
                head_start = position + 1
        elif char == '}' and scopes:
            scope = scopes.pop()
            if isinstance(scope, Function):
                scope.lines = code.count('\n', 0, position) + 2 - scope.line
                found.append(scope)
            if scope != "initializer":
                head_start = position + 1
        elif char == ':' and _is_label(code, head_start, position):
            head_start = position + 1
    return sorted(found, key=lambda function: function.line)


def _is_label(code: str, start: int, position: int) -> bool:
    return code[start:position].strip() in ("public", "private", "protected")


def _open(code: str, start: int, position: int, scopes: list, parens: int):
    if parens > 0:
        return "initializer"
    if any(scope != "outer" for scope in scopes):
        return "inner"
    head = code[start:position]
    bare = _without_groups(head)
    if _SCOPE_WORD.search(bare) and '(' not in bare.split('=')[0].replace("alignas(", ""):
        return "outer"
    if '(' not in head:
        lambda_like = re.search(r'=\s*\[[^\]]*\]\s*$', head)
        return _function(code, start, head, bare) if lambda_like else "inner"
    plain = re.sub(r'\boperator\s*[^\s(\w]+', 'operator', bare)
    if '=' in plain and not re.search(r'=\s*\[', plain):
        return "inner"
    if re.search(r'\)\s*(noexcept\s*)?:(?!:)', plain) and re.search(r'[:,]\s*[\w:]+\s*$', plain):
        return "initializer"
    return _function(code, start, head, bare)


def _without_groups(head: str) -> str:
    """The head with the insides of (), <> after template, and [] of attributes taken out."""
    head = re.sub(r'\[\[.*?\]\]', ' ', head, flags=re.DOTALL)
    head = _cut_template(head)
    out, depth = [], 0
    for char in head:
        if char == ')':
            depth -= 1
        if depth == 0:
            out.append(char)
        if char == '(':
            depth += 1
    return ''.join(out)


def _cut_template(head: str) -> str:
    while match := re.search(r'\btemplate\s*<', head):
        depth, position = 1, match.end()
        while position < len(head) and depth > 0:
            depth += {'<': 1, '>': -1}.get(head[position], 0)
            position += 1
        head = head[:match.start()] + ' ' * (position - match.start()) + head[position:]
    return head


def _function(code: str, start: int, head: str, bare: str) -> Function:
    first = start + len(head) - len(head.lstrip())
    name, parameters = _signature(_cut_template(re.sub(
        r'\[\[.*?\]\]', lambda match: ' ' * len(match.group(0)), head, flags=re.DOTALL)))
    if not name:
        words = re.findall(r'\w+', bare)
        name = words[-1] if words else "?"
    return Function(name, code.count('\n', 0, first) + 1, 0, parameters)


def _signature(head: str) -> tuple[str, int]:
    """The name before the parameter list, and how many parameters the list has."""
    for match in _CALLED.finditer(head):
        if match.group(1) in _NOT_A_NAME:
            continue
        depth, commas, text = 1, 0, ''
        angles = 0
        for char in head[match.end():]:
            depth += {'(': 1, '{': 1, '[': 1, ')': -1, '}': -1, ']': -1}.get(char, 0)
            if depth == 0:
                break
            angles += {'<': 1, '>': -1}.get(char, 0)
            commas += char == ',' and depth == 1 and angles == 0
            text += char
        empty = text.strip() in ('', 'void')
        return match.group(1), 0 if empty else commas + 1
    return '', 0
