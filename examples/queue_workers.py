"""Share jobs among worker processes; one is killed in the middle, and every job is done.

`python queue_workers.py STORE`
"""

import multiprocessing
import os
import signal
import sys
import time

import falaj

JOBS, WORKERS = 200, 3


def work(path: str, number: int) -> None:
    with falaj.open(path) as store:
        queue = store.queue("thumbnails", max_attempts=5)
        results = store.topic("results", codec="json")
        while True:
            # A job belongs to this process for a minute, or until it is acked, or the process dies.
            with queue.take(10, lease=60, timeout=1) as jobs:
                if not jobs:
                    return
                for job in jobs:
                    # The block acks the job at its end, and gives it back if an exception leaves
                    # it.
                    with job:
                        if number == 0 and job.offset > 20 and job.attempt == 1:
                            os.kill(os.getpid(), signal.SIGKILL)
                        time.sleep(0.001)  # the work
                        results.append({"job": job.offset, "picture": job.value})


def main(path: str) -> None:
    with falaj.open(path) as store:
        pictures = store.topic("thumbnails", codec="str")
        pictures.extend([f"{i}.png" for i in range(JOBS)])
        queue = store.queue("thumbnails", pictures)
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=work, args=(path, i)) for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        killed = [worker.exitcode for worker in workers].count(-signal.SIGKILL)
        done = {result.value["job"] for result in store.topic("results", codec="json")}
        print(f"{killed} worker killed, {len(done)} of {JOBS} jobs done")
        print(f"{queue.info()['done']} acked, {queue.info()['in_flight']} in flight")


if __name__ == "__main__":
    main(sys.argv[1])
