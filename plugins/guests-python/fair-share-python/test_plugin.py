import unittest

from plugin import Plugin
from sequor_plugin import Scheduler, defer, fire, host, restored, saved, take, wait_us
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

    def test_a_quiet_tenant_gets_a_free_slot_before_a_loud_tenant(self):
        bench = Bench(Plugin(), max_batch=4, keys=["tenant"])
        waiting = [of("loud")] * 3 + [of("quiet")] * 2
        bench.plan(waiting)
        bench.done(waiting[:3])
        self.assertEqual(bench.admit(waiting, [1, 1], []), [defer(), defer(), defer(), take(0), take(1)])
        # Where there is room for more, the loud one has it.
        self.assertEqual(bench.admit(waiting, [3], []), [take(0), defer(), defer(), take(0), take(0)])

    def test_weights_set_each_tenants_share_of_a_batch(self):
        bench = Bench(Plugin(), config='{"weights": {"gold": 3}}', max_batch=4, keys=["tenant"])
        self.assertEqual(bench.plan([of("gold"), of("free")] * 4).fire, [0, 1, 2, 4])
        with self.assertRaisesRegex(ValueError, "weights.gold must be above 0"):
            Bench(Plugin(), config='{"weights": {"gold": 0}}')


class Counts(Scheduler):
    """Counts events, and fires by deadline once 5 µs have passed."""

    def configure(self, config, model):
        self.burst, self.seen = config["burst"], []

    def plan(self, round, ready):
        if round.now_us < 5:
            return wait_us(self.burst)
        return fire(ready.sorted(ready.deadline_us.__getitem__)[:1]).shed(1, 7)

    def observe(self, event):
        self.seen.append((event.kind, event.amount, event.why, event.key("tenant") != 0))


MANIFEST = """wants = ["plan", "observe"]
columns = ["deadline-us"]
[config.burst]
type = "integer"
default = 4
"""


class TheBench(unittest.TestCase):
    def test_clock_defaults_and_every_event_can_be_driven(self):
        plugin = Counts()
        bench = Bench(plugin, keys=["tenant"], manifest=MANIFEST)
        two = [candidate(keys={"tenant": "gold"}, deadline_us=1), candidate()]
        self.assertEqual(bench.plan(two).wake_us(0), 4)
        bench.wait_us(5)
        plan = bench.plan(two)
        self.assertEqual((plan.fire, plan.rejected), ([0], [(1, 7, False)]))
        one = two[:1]
        bench.began(one), bench.slotted(one, 8), bench.done(one), bench.failed(one), bench.batch_ran(900), bench.ended(one, "idle")
        self.assertEqual(plugin.seen, [
            ("began", 0, None, True), ("slotted", 8, None, False), ("done", 1, None, True), ("failed", 1, None, True),
            ("batch_ran", 900, None, False), ("ended", 2, "idle", True)])

    def test_the_bench_refuses_columns_hooks_and_defaults_that_the_manifest_lacks(self):
        bench = Bench(Counts(), manifest=MANIFEST.replace("deadline-us", "rows"))
        bench.wait_us(5)
        with self.assertRaisesRegex(LookupError, 'add "deadline-us" to `columns`'):
            bench.plan([candidate(), candidate()])
        with self.assertRaisesRegex(LookupError, 'add "admit" to `wants`'):
            bench.admit([candidate()], [1], [])
        with self.assertRaisesRegex(KeyError, "burst"):
            Bench(Counts(), manifest='wants = ["plan"]')

    def test_states_are_restored_and_counters_add_up(self):
        self.assertEqual(restored(saved({"a": [1.5, None]})), {"a": [1.5, None]})
        host.metric_add("shed", 2, {"tenant": "gold"})
        self.assertEqual(host.counters['shed{tenant="gold"}'], 2)


if __name__ == "__main__":
    unittest.main()
