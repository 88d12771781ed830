"""Whose deadline is next goes first. Requests without one come last, in the order in which they became ready."""

from sequor_plugin import NEVER, Scheduler, fire, host


class Plugin(Scheduler):
    def configure(self, config, model):
        self.margin_us = config.get("margin_us", 0)
        host.info(f"deciding for {model.name} {model.version}")

    def plan(self, round, ready):
        # Deadlines that cannot be kept any more count as none.
        soonest = round.now_us + self.margin_us
        due = [at if at >= soonest else NEVER for at in ready.deadline_us]
        return fire(ready.batch(sorted(range(len(ready)), key=due.__getitem__), round))
