"""The size limits of the project: files of at most 400 lines, functions of at most 70.

Tests are exempt. A C++ function is found by its braces, not by a compiler: comments, strings and
preprocessor lines are blanked, and each opening brace outside a function is classified by the text
before it.
"""

import ast
import re

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70

_CODE = (".bzl", ".bazel", ".c", ".cc", ".h", ".py", ".sh")
_CPP = (".c", ".cc", ".h")
_TEST_FOLDERS = ("tests/", "conformance/")

_BLANKED = re.compile(
    r"""
      //[^\n]*
    | /\*.*?\*/
    | R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"   # raw string
    | "(?:\\.|[^"\\\n])*"
    | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'           # character, not a digit separator
    | ^[ \t]*\#(?:\\\n|[^\n])*                      # preprocessor line, with its continuations
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# What may stand between the parameters of a function and its body, beside what ends with ")".
_QUALIFIERS = re.compile(
    r"(?:\b(?:const|volatile|noexcept|override|final|mutable|try)\b|&&?|->[\w\s:<>,*&]+|\s)+$"
)
_ACCESS = re.compile(r"\b(?:public|protected|private)\s*:(?!:)")
_SCOPE = re.compile(r"\b(?:namespace|extern|class|struct|union|enum)\b")
_GROUP = re.compile(r"\([^()]*\)|<[^<>]*>")
_CONSTRUCTOR_MEMBER = re.compile(r"\)[^:()]*(?<!:):(?!:)[^;]*[\w>]$", re.DOTALL)


def is_test(path):
    """Says whether the limits leave this file alone."""
    name = path.rpartition("/")[2]
    stem = name.partition(".")[0]
    in_tests = any(("/" + path).find("/" + folder) >= 0 for folder in _TEST_FOLDERS)
    return in_tests or stem.startswith("test_") or stem.endswith("_test")


def blank(source):
    """Returns the source with comments, literals and directives as spaces; lines stay in place."""
    return _BLANKED.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def _classify(head):
    """Returns what a brace after this text opens.

    "function", "scope" (functions may be inside) or "value" (an initialiser).
    """
    text = head.strip()
    if _QUALIFIERS.sub("", text + " ").endswith(")"):
        return "function"
    plain, groups = text, 1
    while groups:
        plain, groups = _GROUP.subn(" ", plain)
    if not text or _SCOPE.search(plain):
        return "scope"
    # Foo() : a_{1}, b_{2} {...}: the head goes on after each member's initialiser.
    return "member" if _CONSTRUCTOR_MEMBER.search(text) else "value"


def cpp_functions(source):
    """Yields (first line, number of lines) of each function of a C or C++ source.

    Lambdas and local classes belong to the function that they are in.
    """
    text = blank(source)
    stack = []  # (kind, offset of the head, head) of each open brace
    head, head_start, seen = "", None, 0
    for match in re.finditer(r"[{};]", text):
        piece = _ACCESS.sub(lambda found: " " * len(found.group()), text[seen : match.start()])
        if head_start is None and piece.strip():
            head_start = match.start() - len(piece.lstrip())
        head += piece
        seen = match.end()
        outer = stack[-1][0] if stack else "scope"
        if match.group() == "{":
            kind = _classify(head) if outer == "scope" else "inside"
            stack.append((kind, head_start if head_start is not None else match.start(), head))
            head, head_start = "", None
        elif match.group() == "}" and stack:
            kind, first, opened_by = stack.pop()
            head, head_start = "", None
            if kind == "function":
                first_line = text.count("\n", 0, first) + 1
                yield first_line, text.count("\n", 0, match.start()) + 2 - first_line
            elif kind == "member":
                head, head_start = opened_by + "()", first
        elif match.group() == ";":
            head, head_start = "", None


def python_functions(source):
    """Yields (first line, number of lines) of each function of a Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def problems(path, source):
    """Returns one line for each limit that this file exceeds."""
    if is_test(path) or not path.endswith(_CODE):
        return []
    found = []
    lines = source.count("\n") + (not source.endswith("\n"))
    if lines > MAX_FILE_LINES:
        found.append(f"{path}: {lines} lines; at most {MAX_FILE_LINES}")
    functions = ()
    if path.endswith(_CPP):
        functions = cpp_functions(source)
    elif path.endswith(".py"):
        functions = python_functions(source)
    for first_line, length in functions:
        if length > MAX_FUNCTION_LINES:
            found.append(
                f"{path}:{first_line}: function of {length} lines; at most {MAX_FUNCTION_LINES}"
            )
    return found
