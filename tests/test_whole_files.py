"""Files that are replaced as a whole: permissions, links, kills, full disks."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localma.storage.whole_files import replacing, write_whole

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions and locks of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# --- permissions and links ---------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o666, 0o755])
def test_a_file_that_is_written_again_keeps_its_permissions(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "rent.localma"
    write_whole(path, b"old")
    path.chmod(kept)
    write_whole(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", kept)


def test_a_private_file_is_private_at_every_moment(tmp_path: Path) -> None:
    path = tmp_path / "rent.localma"
    path.touch(0o600)
    with replacing(path) as temporary:
        assert mode(temporary) == 0o600


def test_threads_leave_the_mask_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        # To ask for the mask is to change it for a moment, in all threads.
        monkeypatch.delattr(os, "umask")
        with ThreadPoolExecutor(8) as threads:
            paths = [tmp_path / f"{k}" for k in range(64)]
            list(threads.map(lambda path: write_whole(path, b"new"), paths))
        monkeypatch.undo()
        assert {mode(path) for path in paths} == {0o640}
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link = tmp_path / "rent.localma"
    link.symlink_to(Path("store") / "v2")
    for content in (b"first", b"second"):  # the first time, the file is not there yet
        write_whole(link, content)
        assert link.is_symlink()
        assert (tmp_path / "store" / "v2").read_bytes() == content
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["rent.localma", "store", "v2"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "rent.localma"
    link.symlink_to(link)
    with pytest.raises(OSError, match=r"link leads to itself: '.*rent\.localma'"):
        write_whole(link, b"new")


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="Only a regular file can be replaced"):
            write_whole(path, b"new")


def test_errors_name_the_file_that_the_user_knows(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*none'; make it first.*out'"):
        write_whole(tmp_path / "none" / "out", b"new")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "out"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


# --- kills and full disks ----------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from localma.storage.whole_files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
AT_WORK = """
import sys
from pathlib import Path
from localma.storage.whole_files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"by the slow one")
    print("ready", flush=True)
    input()
"""
WRITES = """
import sys
from pathlib import Path
from localma.storage.whole_files import write_whole
write_whole(Path(sys.argv[1]), b"new")
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    assert run(KILLED, tmp_path / "a").returncode == -signal.SIGKILL
    assert run(KILLED, tmp_path / "b").returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1  # the second removed what the first had left
    (tmp_path / ".localma-notes.part").touch()  # not ours
    assert run(WRITES, tmp_path / "c").returncode == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == [".localma-notes.part", "c"]


def test_a_process_at_work_keeps_its_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_WORK, str(tmp_path / "slow")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == "ready\n"
        assert run(WRITES, tmp_path / "quick").returncode == 0
        slow.communicate("\n", timeout=60)
    assert slow.returncode == 0
    assert (tmp_path / "slow").read_bytes() == b"by the slow one"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["quick", "slow"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from localma.storage.whole_files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_whole(Path(sys.argv[1]), b"x" * 5000)
"""


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "rent.localma"
    path.write_bytes(b"old")
    done = run(FULL_DISK, path)
    assert done.returncode == 1
    assert f"File too large: '{path}'" in done.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_folder_are_synced_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    sync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("reads the names of open files from /proc")
    monkeypatch.setattr(os, "fsync", recorded)
    write_whole(tmp_path / "rent.localma", b"new")
    file, folder = synced
    assert Path(file).name.startswith(".localma-")
    assert Path(folder) == tmp_path.resolve()


def test_many_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "rent.localma"
    contents = [bytes([k]) * 100_000 for k in range(16)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: write_whole(path, content), contents * 4))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
