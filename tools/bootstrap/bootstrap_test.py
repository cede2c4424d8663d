"""tools/bazel from outside, on a Debian that is fake: which Bazel it runs, and how it gets one."""

import os
import pathlib
import platform
import select
import signal
import subprocess

import pytest

from tools.bootstrap import archive, host
from tools.bootstrap.fake_debian import DEADLINE_S, FakeDebian

TOOLS = pathlib.Path("tools").absolute()

on_debian = pytest.mark.skipif(
    host.os_release().get("ID") != "debian"
    or platform.machine() != "x86_64"
    or not os.path.isfile(archive.KEYRING),
    reason="the bootstrap refuses to run elsewhere, which units_test covers",
)


@pytest.fixture(name="debian")
def debian_fixture(tmp_path):
    """A fake Debian whose cache is empty."""
    return FakeDebian(tmp_path, TOOLS)


def start(debian, *arguments, **environment):
    """Starts tools/bazel on `debian`."""
    return subprocess.Popen(
        [debian.bazel, *arguments],
        env=debian.environment(**environment),
        cwd=debian.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(debian, *arguments, **environment):
    """Runs tools/bazel on `debian`; (exit code, output, error output)."""
    with start(debian, *arguments, **environment) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, out, err


def prefix_of(debian):
    """Where the fake install goes."""
    (folder,) = [
        path
        for path in (debian.home / ".cache/torch_openreg/bazel").glob("recipe-*")
        if path.name.removeprefix("recipe-").isdigit()
    ]
    return folder


def sentence_of(result):
    """The one sentence of a failed run."""
    code, out, err = result
    assert code == 1 and not out, result
    last = err.strip().splitlines()[-1]
    assert last.startswith("tools/bazel: ") and last.endswith("."), err
    return last


def test_bazel_real_is_run_with_the_same_arguments(debian):
    debian.program("real", 'printf "%s\\n" "$@"\n')
    result = run(debian, "build", "a b", "", BAZEL_REAL=str(debian.bin / "real"))
    assert result == (0, "build\na b\n\n", "")


def test_the_exit_code_is_bazels(debian):
    debian.program("real", "exit 37\n")
    assert run(debian, "build", BAZEL_REAL=str(debian.bin / "real"))[0] == 37


def test_bazelisk_on_path_comes_first(debian):
    debian.program("bazel", 'echo "bazel 7.7.1"\n')
    debian.program("bazelisk", 'echo "isk $*"\n')
    assert run(debian, "info") == (0, "isk info\n", "")


def test_bazelisk_may_call_back_with_the_bazel_it_chose(debian):
    debian.program("real", 'echo "real $*"\n')
    debian.program("bazelisk", f'BAZEL_REAL={debian.bin}/real exec {debian.bazel} "$@"\n')
    assert run(debian, "info") == (0, "real info\n", "")


def test_a_bazel_of_a_fitting_version_on_path_is_run(debian):
    debian.program("bazel", '[[ $1 == --version ]] && echo "bazel 7.4.0" || echo "mine $*"\n')
    assert run(debian, "info") == (0, "mine info\n", "")


@on_debian
@pytest.mark.parametrize(
    "answer",
    ["echo bazel 6.5.0", "echo bazel 8.0.0", "echo bazel 7.3.9", "echo no version", "exit 1"],
)
def test_another_bazel_on_path_is_passed_over(debian, answer):
    debian.program("bazel", f"{answer}\n")
    code, out, err = run(debian, "info")
    assert code == 0 and out.endswith("\ninfo\n"), err
    assert ("could not say its version" in err) == (answer == "exit 1")


@on_debian
def test_links_and_wrappers_that_lead_back_do_not_loop(debian):
    (debian.bin / "bazelisk").symlink_to(debian.bazel)
    debian.program("bazel", f'note wrapper\nexec {debian.bazel} "$@"\n')
    code, out, err = run(debian, "info")
    assert code == 0 and out.endswith("\ninfo\n"), err
    assert debian.calls().count("wrapper") == 1


@on_debian
def test_a_first_run_installs_and_later_ones_do_not(debian):
    code, out, err = run(debian, "build", "//x")
    folder = prefix_of(debian)
    assert code == 0, err
    options = ["--nosystem_rc", f"--bazelrc={folder}/bazelrc"]
    options.append(f"--host_jvm_args=-Duser.home={debian.root}/home")
    assert out.splitlines() == [*options, "build", "//x"]
    assert "downloading Bazel" in err and "unpacking 100 %" in err
    assert not (folder / "usr/share/doc").exists()
    assert not (folder / "probe").exists()
    assert os.readlink(folder / "usr/lib/settings") == "../share/bazel"
    before = debian.calls()
    assert run(debian, "info")[0::2] == (0, "")
    assert debian.calls()[len(before) :] == [" ".join(["bazel", *options, "info"])]


@on_debian
def test_the_machines_proxy_is_used_and_its_sources_are_not(debian):
    debian.hold("apt-get install")
    with start(debian, "info") as process:
        debian.wait_until_held()
        (folder,) = (debian.home / ".cache/torch_openreg/bazel").glob("*.downloads")
        configuration = (folder / "apt.conf").read_text()
        source = (folder / "sources.list").read_text()
        debian.resume()
        process.communicate(timeout=DEADLINE_S)
    assert 'Acquire::http::Proxy "http://proxy.invalid:1";' in configuration
    assert 'Dir::Etc::parts "/dev/null";' in configuration
    assert f"signed-by={archive.KEYRING}" in source and "valid-until" not in source


@on_debian
@pytest.mark.parametrize(
    "step", ["apt-get update", "apt-get install", "dpkg-deb", "bazel --nosystem_rc"]
)
def test_a_run_that_is_killed_leaves_nothing_that_passes_for_whole(debian, step):
    if step.startswith("bazel"):
        step = _verify_call(debian)
    debian.hold(step)
    with start(debian, "info") as process:
        held = os.pidfd_open(debian.wait_until_held())
        bootstrap = _child_of(process.pid)
        os.kill(bootstrap, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)
    _wait_for_end(held)
    assert not list((debian.home / ".cache/torch_openreg/bazel").glob("recipe-*/complete"))
    (debian.root / "hold").unlink()
    code, out, err = run(debian, "info")
    assert code == 0 and out.endswith("\ninfo\n"), err


def _verify_call(debian):
    folder = debian.home / ".cache/torch_openreg/bazel"
    recipe = [line for line in debian.bazel.read_text().splitlines() if "recipe=" in line][0]
    folder = folder / f"recipe-{recipe.split('=')[1]}"
    return (
        f"bazel --nosystem_rc --nohome_rc --batch --bazelrc={folder}/bazelrc "
        f"--output_user_root={folder}/probe/root build "
        "--color=no --curses=no --noshow_progress //..."
    )


def _child_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


def _wait_for_end(pidfd):
    """Waits until a process that is no child of ours has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = poll.poll(DEADLINE_S * 1000)
    os.close(pidfd)
    assert ended, "a program that the bootstrap started outlived it"


@on_debian
def test_ctrl_c_ends_in_one_line(debian):
    debian.hold("apt-get install")
    with start(debian, "info") as process:
        debian.wait_until_held()
        os.kill(_child_of(process.pid), signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1].startswith("tools/bazel: interrupted")
    assert "Traceback" not in err


@on_debian
def test_two_at_once_install_once(debian):
    debian.hold("dpkg-deb")
    with start(debian, "first") as first:
        debian.wait_until_held()
        with start(debian, "second") as second:
            assert "another run is installing" in second.stderr.readline()
            debian.resume()
            out_1, err_1 = first.communicate(timeout=DEADLINE_S)
            out_2, err_2 = second.communicate(timeout=DEADLINE_S)
    assert (first.returncode, second.returncode) == (0, 0), err_1 + err_2
    assert out_1.endswith("\nfirst\n") and out_2.endswith("\nsecond\n")
    assert debian.calls().count("dpkg-deb") == 1


@on_debian
def test_an_index_whose_time_is_up_is_used_and_said(debian):
    debian.mode("expired")
    code, _, err = run(debian, "info")
    assert code == 0 and "index of testing is out of date" in err


@on_debian
def test_the_suite_that_has_a_fitting_version_is_taken(debian):
    (debian.root / "version.testing").write_text("8.1.0-1")
    (debian.root / "version.forky").write_text("7.7.1+ds-8")
    code, _, err = run(debian, "info")
    assert code == 0 and "Bazel 7.7.1+ds-8 from Debian forky" in err


@on_debian
def test_no_fitting_version_anywhere_is_said_with_what_there_is(debian):
    (debian.root / "version.testing").write_text("8.1.0-1")
    sentence = sentence_of(run(debian, "info"))
    assert "testing has 8.1.0-1" in sentence and "unstable has none" in sentence
    assert "put it on PATH" in sentence


@on_debian
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("offline", "cannot be reached (Failed to fetch x  Temporary failure resolving"),
        ("full", "is full: free at least"),
        ("unsigned", "is not signed by a key in Debian's keyring"),
    ],
)
def test_each_failure_of_apt_is_one_sentence_and_passes(debian, mode, words):
    debian.mode(mode)
    assert words in sentence_of(run(debian, "info"))
    debian.mode("good")
    assert run(debian, "info")[0] == 0


@on_debian
def test_an_unreachable_mirror_is_asked_once(debian):
    debian.mode("offline")
    run(debian, "info")
    assert debian.calls() == ["apt-get update"]


@on_debian
@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("g++", "as root run 'apt-get install g++'"),
        ("gcc", "as root run 'apt-get install g++'"),
        ("apt-get", "there is no apt-get on PATH"),
        ("python3", "there is no python3 on PATH"),
    ],
)
def test_a_missing_program_is_named(debian, missing, words):
    (debian.bin / missing).unlink()
    assert words in sentence_of(run(debian, "info"))


@on_debian
def test_sources_without_a_debian_mirror_are_said(debian):
    (debian.root / "sources.list").write_text("deb http://vendor.invalid/tool nodistro main\n")
    assert "name no Debian mirror" in sentence_of(run(debian, "info"))


@on_debian
def test_a_cache_that_is_a_file_is_said(debian):
    (debian.root / "file").write_text("")
    result = run(debian, "info", XDG_CACHE_HOME=str(debian.root / "file"))
    assert "cannot write below" in sentence_of(result)


@on_debian
def test_a_damaged_package_is_said_and_fetched_anew(debian):
    whole = (debian.root / "bazel.deb").read_bytes()
    (debian.root / "bazel.deb").write_text("no archive")
    assert "bazel.deb could not be unpacked" in sentence_of(run(debian, "info"))
    (debian.root / "bazel.deb").write_bytes(whole)
    assert run(debian, "info")[0] == 0


@on_debian
def test_a_bazel_that_does_not_work_is_not_taken_for_whole(debian):
    (debian.root / "broken").write_text("")
    assert "does not work here (ERROR: no such toolchain)" in sentence_of(run(debian, "info"))
    (debian.root / "broken").unlink()
    assert run(debian, "info")[0] == 0


def test_without_a_home_it_says_so(debian):
    environment = debian.environment()
    del environment["HOME"]
    result = subprocess.run(
        [debian.bazel, "info"], env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert result.returncode == 1 and "neither HOME nor XDG_CACHE_HOME" in result.stderr
