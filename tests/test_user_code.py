"""Python files that a scenario names by path."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import cloudpickle
import pytest

from edgefl.errors import UserError
from edgefl.user_code import UserCode

pytestmark = pytest.mark.usefixtures("any_python_file")

ROOT = Path(__file__).resolve().parents[1]
NET = """
import dataclasses, os

@dataclasses.dataclass
class Net:
    width: int = 3

    class Inner:
        pass

def build(width=1):
    return Net(width)

NUMBER = 3
"""


@pytest.fixture
def net(tmp_path):
    """A function that writes a file and returns a reference to an object in it."""

    def write(text=NET, name="Net", *, folder="of. mine äé", file="json.py"):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / file
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return f"{path}:{name}"

    return write


def test_classes_functions_and_inner_classes_are_loaded(net):
    reference = net()
    assert UserCode.of(reference).load()(4).width == 4
    assert UserCode.of(net(name="build")).load()(5) == UserCode.of(reference).load()(5)
    assert UserCode.of(net(name="Net.Inner")).load().__name__ == "Inner"


def test_a_file_is_imported_once_and_again_when_it_changed(net):
    first = UserCode.of(net()).load()
    assert UserCode.of(net()).load() is first
    changed = UserCode.of(net(NET.replace("3", "4"))).load()
    assert (first().width, changed().width) == (3, 4)


def test_no_other_module_is_replaced_and_nothing_is_written_next_to_the_file(net):
    import json

    reference = net()
    before = set(sys.modules)
    UserCode.of(reference).load()
    assert sys.modules["json"] is json
    assert all(name.startswith("edgefl.user_code.") for name in set(sys.modules) - before)
    assert [path.name for path in UserCode.of(reference).file.parent.iterdir()] == ["json.py"]


def test_another_process_imports_the_file_that_an_object_comes_from(net, tmp_path):
    code = UserCode.of(net())
    (tmp_path / "objects").write_bytes(cloudpickle.dumps([code.load()(7), code._replace(name="build").load()]))
    program = "import pickle, sys; value, build = pickle.load(open(sys.argv[1], 'rb')); print(build(value.width))"

    def read():
        command = [sys.executable, "-c", program, str(tmp_path / "objects")]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    done = read()
    assert (done.stdout.strip(), done.stderr) == ("Net(width=7)", "")
    net(NET + "# changed\n")
    assert "has changed since it was first imported" in read().stderr


def test_a_digest_is_required_if_it_is_given(net):
    code = UserCode.of(net())
    assert code.digest() == sha256(NET.encode()).hexdigest()
    assert code.load(code.digest()).__name__ == "Net"
    with pytest.raises(UserError, match=f"expected the content with the SHA-256 0000, found {code.digest()}"):
        code.load("0000")


def test_what_a_file_prints_while_it_is_imported_goes_to_standard_error(net, capsys):
    UserCode.of(net("print('hello')\n" + NET)).load()
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("reference", ["net.py", "net:Net", ":Net", "net.py:Net()", ""])
def test_a_reference_of_another_form_is_refused(reference):
    with pytest.raises(UserError, match=r"^expected FILE\.py:NAME, such as net\.py:Net, found '"):
        UserCode.of(reference)


WRONG = {
    "syntax": ("class Net:\n  def\n", "Net", "line 2: not valid Python: invalid syntax"),
    "not utf-8": (b"# \xff\nclass Net: pass\n", "Net", "encoding"),
    "raises": (
        "\n\nraise ValueError('no\\nnet')\n",
        "Net",
        "line 3: this file raised an error .*: ValueError: no net$",
    ),
    "missing module": ("import no_such_module\n", "Net", "line 1: .*ModuleNotFoundError: .*'no_such_module'$"),
    "neighbour": ("import mine\n", "Net", "cannot import 'mine' from its own folder: use one file, or install"),
    "no such name": (NET, "Nett", "no object 'Nett'; did you mean 'Net'"),
    "not callable": (NET, "NUMBER", "expected 'NUMBER' to be a function or a class, found 3"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_one_error_that_names_it(net, kind):
    text, name, message = WRONG[kind]
    net("", file="mine.py")
    reference = net(text, name)
    with pytest.raises(UserError, match=message) as refused:
        UserCode.of(reference).load()
    assert f"{refused.value.file}:{name}" == reference
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        UserCode.of(f"{tmp_path}/net.py:Net").load()
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(UserError, match="expected a Python file, found a folder"):
        UserCode.of(f"{tmp_path}/folder.py:Net").load()
