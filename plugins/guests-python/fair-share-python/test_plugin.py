import unittest

from plugin import Plugin
from sequor_plugin.testing import Bench, candidate


def of(tenant):
    return candidate(keys={"tenant": tenant})


class FairShare(unittest.TestCase):
    def test_a_loud_tenant_does_not_starve_a_quiet_one(self):
        bench = Bench(Plugin(), max_batch=4, keys=["tenant"])
        loud = [of("loud")] * 5 + [of("quiet")]
        self.assertEqual(bench.plan(loud).fire, [0, 5, 1, 2])
        bench.done(loud[:4])
        self.assertEqual(bench.plan(loud).fire, [5, 0, 1, 2])

    def test_weights_are_shares(self):
        bench = Bench(Plugin(), config='{"weights": {"gold": 3}}', max_batch=4, keys=["tenant"])
        self.assertEqual(bench.plan([of("gold"), of("free")] * 4).fire, [0, 1, 2, 4])
        with self.assertRaisesRegex(ValueError, "weights.gold must be above 0"):
            Bench(Plugin(), config='{"weights": {"gold": 0}}')


if __name__ == "__main__":
    unittest.main()
