"""Run by: PYTHONPATH=sdk python3 -m unittest"""

import unittest

from plugin import Plugin
from sequor_plugin.initializer import Ports, Tensor, default, states
from sequor_plugin.initializer_testing import Bench

PORTS = Ports().add_state("total", "FP32", [1])


class Tenants(unittest.TestCase):
    def test_a_start_gets_the_value_of_its_tenant(self):
        bench = Bench(Plugin(), PORTS, config={"tenants": {"gold": 100}}, keys={"tenant": "gold"})
        self.assertEqual(bench.start(), states({"total": Tensor("FP32", [1], [100])}))
        bench.keys["tenant"] = "unknown"
        self.assertEqual(bench.start(), default())
