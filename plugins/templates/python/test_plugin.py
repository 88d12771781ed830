"""Run by: PYTHONPATH=sdk python3 -m unittest"""

import unittest

from plugin import Plugin
from sequor_plugin.testing import Bench, candidate


class Deadlines(unittest.TestCase):
    def test_the_next_deadline_goes_first(self):
        bench = Bench(Plugin(), max_batch=2)
        plan = bench.plan([candidate(deadline_us=900), candidate(), candidate(deadline_us=500)])
        self.assertEqual(plan.fire, [2, 0])
