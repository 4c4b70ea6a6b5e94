"""The other library's side of a comparison: answers requests as our program does, in a process of its own."""

import importlib
import json
import os
import sys
import time
import traceback


class Report:
    """What a run took and found."""

    def __init__(self):
        self.seconds = {}
        self.values = {}

    def time(self, name, function):
        begun = time.perf_counter()
        result = function()
        self.seconds[name] = time.perf_counter() - begun
        return result

    def mean(self, name, calls, function):
        """The mean time of so many calls."""

        def repeat():
            for _ in range(calls):
                function()

        self.time(name, repeat)
        self.seconds[name] /= calls


def main():
    # Whatever libraries print goes to the error stream: the other one is for answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(f"sides.{sys.argv[1]}")
    program = None
    for line in sys.stdin:
        request = json.loads(line)
        answer = {}
        try:
            match request["command"]:
                case "begin":
                    answer["versions"] = module.begin(int(os.environ["PEERS_THREADS"]))
                case "prepare":
                    program = module.Program(request["settings"], request["inputs"])
                case "compare":
                    answer["differences"] = program.compare(request["outputs"])
                case "run":
                    report = Report()
                    program.run(report)
                    answer = {"seconds": report.seconds, "values": report.values}
        except Exception as error:  # whatever it is, the other end is told
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
