"""A hook that returns something else raises an error that names what is expected."""

import inspect
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sdk-python"))

from sequor_plugin import Scheduler, default, fire, host, testing
from sequor_plugin.processor import Processor, Signature, Tensor, reply
from sequor_plugin.processor_testing import Bench

MODEL = Signature().add_input("x", "FP32", [1]).add_output("y", "FP32", [1])
X = {"x": Tensor("FP32", [1], [1.0])}


def run_model(inputs):
    return {"y": inputs["x"]}


class Answers(unittest.TestCase):
    def wrong(self, call, told):
        with self.assertRaises(TypeError) as raised:
            call()
        self.assertIn(told, str(raised.exception))

    def test_plan_and_admit_refuse_answers_of_the_wrong_type(self):
        class Plugin(Scheduler):
            answer = [0, 1]

            def plan(self, round, ready):
                return self.answer

            def admit(self, round, waiting, room, victims):
                return self.answer

        plugin = Plugin()
        bench = testing.Bench(plugin, manifest="")
        self.wrong(lambda: bench.plan([testing.candidate()]), "plan returned list; expected fire(...), wait()")
        self.wrong(lambda: bench.admit([testing.candidate()], [1], []), "admit returned int; expected a list of take(...)")
        plugin.answer = None
        self.wrong(lambda: bench.admit([testing.candidate()], [1], []), "admit returned nothing; expected a list")
        for answer in None, default(), fire([0]):
            plugin.answer = answer
            bench.plan([testing.candidate()])

    def test_the_error_for_an_unknown_column_lists_the_existing_columns(self):
        class Plugin(Scheduler):
            def plan(self, round, ready):
                return fire(ready.deadlines)

        with self.assertRaises(AttributeError) as raised:
            testing.Bench(Plugin(), manifest="").plan([testing.candidate()])
        self.assertIn('there is no column "deadlines"; there are sequence, step,', str(raised.exception))

    def test_a_processor_returns_a_signature_an_action_and_a_dict(self):
        class Plugin(Processor):
            signature, action, outputs = None, None, None

            def configure(self, config, model, inner, files):
                return self.signature

            def pre(self, call, inputs):
                return self.action or super().pre(call, inputs)

            def post(self, call, runs):
                return self.outputs

        plugin = Plugin()
        bench = lambda: Bench(plugin, MODEL, run_model)
        self.wrong(bench, "configure returned nothing; expected a Signature")
        plugin.signature, plugin.action = MODEL, [X]
        self.wrong(lambda: bench().start(1, X), "pre returned list; expected run(...), run_each(...) or reply(...)")
        plugin.action = None
        self.wrong(lambda: bench().start(1, X), "post returned nothing; expected a dict of tensors by their names")
        plugin.action = reply({"y": X["x"]})
        self.assertEqual(list(bench().start(1, X)), ["y"])

    def test_an_error_names_the_innermost_line_of_the_author(self):
        class Plugin(Processor):
            action, outputs = None, None

            def pre(self, call, inputs):
                return self.action()

        def raised_by(action):
            plugin.action = action
            del host.lines[:]
            with self.assertRaises(Exception):
                Bench(plugin, MODEL, run_model).start(1, X)
            (_, line), = host.lines
            return line

        plugin, at = Plugin(), lambda line: f" at test_answers.py:{line}"
        hook, line = at(Plugin.pre.__code__.co_firstlineno), lambda: at(inspect.currentframe().f_back.f_lineno)
        self.assert_ends(raised_by(lambda: json.loads("{")), line())  # raised in Python's library
        self.assert_ends(raised_by(lambda: Tensor("FP33", [1], [1.0])), line())  # raised in this kit
        self.assert_ends(raised_by(lambda: [X]), "reply(...)" + hook)
        self.assert_ends(raised_by(lambda: reply({"z": X["x"]})), 'clients do not see an output "z"; there are y' + hook)

    def assert_ends(self, line, end):
        self.assertTrue(line.endswith(end), f"{line!r} does not end with {end!r}")


if __name__ == "__main__":
    unittest.main()
