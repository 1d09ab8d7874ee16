import os
import subprocess
import sys

from objectaware.stages.memory import PeakMemory, tree_memory_mib


def test_a_childs_memory_counts() -> None:
    script = "import sys; block = bytearray(200 * 2**20); print('ready', flush=True); sys.stdin.read()"
    before = tree_memory_mib(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    with PeakMemory() as memory:
        during = tree_memory_mib(os.getpid())
    child.communicate(timeout=30)
    assert during - before > 150
    assert memory.peak_mib > before + 150
    assert tree_memory_mib(os.getpid()) < during - 150
