import unittest

from plugin import Plugin
from sequor_plugin import defer, take
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

    def test_a_quiet_tenant_does_not_wait_for_a_slot_behind_a_loud_ones(self):
        bench = Bench(Plugin(), max_batch=4, keys=["tenant"])
        waiting = [of("loud")] * 3 + [of("quiet")] * 2
        bench.plan(waiting)
        bench.done(waiting[:3])
        self.assertEqual(bench.admit(waiting, [1, 1], []), [defer(), defer(), defer(), take(0), take(1)])
        # Where there is room for more, the loud one has it.
        self.assertEqual(bench.admit(waiting, [3], []), [take(0), defer(), defer(), take(0), take(0)])

    def test_weights_are_shares(self):
        bench = Bench(Plugin(), config='{"weights": {"gold": 3}}', max_batch=4, keys=["tenant"])
        self.assertEqual(bench.plan([of("gold"), of("free")] * 4).fire, [0, 1, 2, 4])
        with self.assertRaisesRegex(ValueError, "weights.gold must be above 0"):
            Bench(Plugin(), config='{"weights": {"gold": 0}}')


if __name__ == "__main__":
    unittest.main()
