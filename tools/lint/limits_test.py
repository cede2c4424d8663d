"""The function finder on the shapes of C++ and Python that this project uses."""

import pytest

from tools.lint import limits


def lines_of(source):
    return sorted(limits.cpp_functions(source))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int f() {\n  return 1;\n}\n", [(1, 3)]),
        ("namespace a {\nint f(int x,\n      int y) {\n}\n}\n", [(2, 3)]),
        ('extern "C" {\nint f(void) {\n}\n}\n', [(2, 2)]),
        (
            "class A final : public B<int> {\n public:\n  A() : x_(1), y_{2}, z_{} {\n  }\n};\n",
            [(3, 2)],
        ),
        ("struct alignas(8) A : B {\n  int f() const noexcept override {\n  }\n};\n", [(2, 2)]),
        ('class LOCK("mutex") A {\n  void f() REQUIRES(mu_) {\n  }\n};\n', [(2, 2)]),
        ("template <class T>\nauto f(T x) -> std::pair<T, int> {\n}\n", [(1, 3)]),
        ("template <class T>\nA<T>::A(struct B* b) : a_{b} {\n}\n", [(1, 3)]),
        ("PYBIND11_MODULE(_C, m) {\n}\n", [(1, 2)]),
        ("bool operator()(int a) const {\n}\n", [(1, 2)]),
        # A lambda, a local class and a block belong to their function.
        (
            "void f() {\n  auto g = [](int x) {\n  };\n  struct A {\n    void h() {}\n  };\n}\n",
            [(1, 7)],
        ),
        # Values are no functions.
        ("constexpr int k[] = {\n  1,\n};\nint f() {\n}\n", [(4, 2)]),
        ("enum class E : int {\n  kA,\n};\nA a{1};\n", []),
        ("int f();\nint g() { return f(); }\n", [(2, 1)]),
    ],
)
def test_functions_are_found_with_their_lengths(source, expected):
    assert lines_of(source) == expected


@pytest.mark.parametrize(
    "noise",
    [
        "// a brace {\n",
        "/* two\n {{ */\n",
        'const char* s = "{";\n',
        "const char c = '{';\n",
        'auto s = R"x({")")x";\n',
        "#define BEGIN \\\n  {\n",
        "int big = 1'000'000;\n",
    ],
)
def test_braces_in_comments_literals_and_macros_do_not_count(noise):
    start = noise.count("\n") + 1
    assert lines_of(noise + "int f() {\n}\n") == [(start, 2)]


def test_a_long_function_is_a_problem_in_cpp_and_python():
    body = "  x();\n" * 69
    assert limits.problems("a/b.cc", "void f() {\n" + body + "}\n") == [
        "a/b.cc:1: function of 71 lines; at most 70"
    ]
    assert limits.problems("a/b.py", "def f():\n" + body + "  x()\n") == [
        "a/b.py:1: function of 71 lines; at most 70"
    ]
    shorter = "  x();\n" * 68
    assert limits.problems("a/b.cc", "void f() {\n" + shorter + "}\n") == []


def test_a_long_file_is_a_problem():
    assert limits.problems("a/b.h", "\n" * 401) == ["a/b.h: 401 lines; at most 400"]
    assert limits.problems("a/b.h", "\n" * 400) == []


@pytest.mark.parametrize(
    "path", ["a/b_test.cc", "a/test_b.py", "tests/a/b.h", "a/conformance/b.cc"]
)
def test_tests_are_exempt(path):
    assert limits.problems(path, "\n" * 1000) == []
