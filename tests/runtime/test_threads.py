import os
import threading
import weakref

import pytest

from dispatch.runtime.threads import WorkerPool, run_apart


def test_an_idle_thread_is_used_again() -> None:
    """Work done one after another needs one thread."""
    pool = WorkerPool("test-reuse")
    names = []
    for _ in range(20):
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            names.append(threading.current_thread().name)
            done.set()

        pool.submit(work)
        assert done.wait(5)
        while not pool._idle:  # the thread says it is idle a moment after the work
            pass
    assert {"test-reuse-1"} == set(names)


def test_an_idle_thread_keeps_nothing_of_its_work() -> None:
    """Neither the first work of a thread nor a later one lives on while it waits for more."""
    pool = WorkerPool("test-forgets")
    for _ in range(3):
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            done.set()

        left = weakref.ref(work)
        pool.submit(work)
        del work
        assert done.wait(5)
        while not pool._idle:  # the thread says it is idle a moment after the work
            pass
        assert left() is None


def test_work_that_blocks_does_not_keep_other_work_waiting() -> None:
    """A thread is made for each piece of work that finds none idle; all are daemons."""
    pool = WorkerPool("test-many")
    barrier = threading.Barrier(11)
    for _ in range(10):
        pool.submit(lambda: barrier.wait(5))
    barrier.wait(5)
    named = [t for t in threading.enumerate() if t.name.startswith("test-many")]
    assert all(thread.daemon for thread in named)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_has_threads_of_its_own() -> None:
    """A fork copies the count of idle threads and not the threads: work in the child runs."""
    pool = WorkerPool("test-fork")
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(5)
    while not pool._idle:  # the thread says it is idle a moment after the work
        pass
    child = os.fork()
    if child == 0:
        ran = threading.Event()
        pool.submit(ran.set)
        os._exit(0 if ran.wait(5) else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_closing_lets_idle_threads_go() -> None:
    """Nothing of the pool is left once its work is done."""
    pool = WorkerPool("test-close")
    done = threading.Barrier(4)
    for _ in range(3):
        pool.submit(lambda: done.wait(5))
    threads = [t for t in threading.enumerate() if t.name.startswith("test-close")]
    done.wait(5)
    while pool._idle < 3:
        pass
    pool.close()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


async def test_what_must_end_the_program_comes_out_of_a_thread_apart() -> None:
    """H8: SystemExit of a function that runs beside the loop is raised; nobody waits for ever."""

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        await run_apart(WorkerPool(), leave)
