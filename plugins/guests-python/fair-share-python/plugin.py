"""Fair shares by tenant, as guests/fair-share has them: the tenant that has had the least for its weight goes first, and gets the next free slot. Turns are
rows over weight."""

from sequor_plugin import Scheduler, defer, fire, in_order, key_of


class Plugin(Scheduler):
    def configure(self, config, model):
        self.burst, self.clock, self.had = config.get("burst", 4), 0.0, {}
        self.weights = {key_of(tenant): weight for tenant, weight in config.get("weights", {}).items()}
        for tenant, weight in config.get("weights", {}).items():
            if not weight > 0:
                raise ValueError(f"weights.{tenant} must be above 0")

    def plan(self, round, ready):
        order = self.order(ready)
        self.clock = max(self.clock, order[0][0])
        return fire(ready.batch((i for _, i in order), round))

    def admit(self, round, waiting, room, victims):
        said = [defer()] * len(waiting)
        for (_, i), slot in zip(self.order(waiting), in_order(len(waiting), room)):
            said[i] = slot
        return said

    def observe(self, event):
        if event.kind == "done":
            tenant = event.key("tenant")
            self.had[tenant] = self.turn(tenant) + event.amount / self.weight(tenant)
            if len(self.had) > 4096:
                least = self.clock - self.burst
                self.had = {tenant: turn for tenant, turn in self.had.items() if turn > least}

    def order(self, ready):
        """Candidates with their turns, the next one first. Each has its turn as if those of its tenant before it had run."""
        following, order = {}, []
        arrival, rows = ready.arrival_us, ready.rows
        for i in sorted(range(len(ready)), key=arrival.__getitem__):
            tenant = ready.key("tenant", i)
            turn = following[tenant] if tenant in following else self.turn(tenant)
            order.append((turn, i))
            following[tenant] = turn + rows[i] / self.weight(tenant)
        order.sort(key=lambda one: one[0])
        return order

    def turn(self, tenant):
        return max(self.had.get(tenant, self.clock), self.clock - self.burst / self.weight(tenant))

    def weight(self, tenant):
        return self.weights.get(tenant, 1.0)
