"""Runs programs for the stress test: one request in JSON on a line of standard input, one answer on a line of output.

A small process of its own: what a program took at most is counted from the process that started it.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time


def run(request):
    """Runs a program to its end; what became of it."""

    def limited():
        for what, value in request["rlimits"]:
            resource.setrlimit(what, (value, value))

    with open(request["out"], "wb") as out, open(request["err"], "wb") as err:
        began = time.monotonic()
        child = subprocess.Popen([os.fsencode(arg) for arg in request["args"]], stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=err, env={**os.environ, **request["env"]}, preexec_fn=limited)
    timers = [threading.Timer(request["limit"], child.terminate), threading.Timer(request["limit"] + 10, child.kill)]
    for timer in timers:
        timer.start()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    for timer in timers:
        timer.cancel()
    return {"code": child.returncode, "peak": usage.ru_maxrss << 10, "took": time.monotonic() - began,
            "work": usage.ru_utime + usage.ru_stime}


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
