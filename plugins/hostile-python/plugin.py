"""What no plug-in should do, for the server's tests: what its configuration tells it to."""

from sequor_plugin import Scheduler, fire


class Plugin(Scheduler):
    def configure(self, config, model):
        self.do, self.amount, self.kept = config["do"], config.get("amount", 0), []
        if self.do == "raise-configure":
            raise ValueError("told to raise")

    def plan(self, round, ready):
        if self.do == "raise":
            return self.kept[len(ready)]
        if self.do == "gather":
            self.kept.append(b"x" * self.amount)
        while self.do == "loop":
            pass
        return fire(ready.batch(range(len(ready)), round))

    def observe(self, event):
        if self.do == "raise-observe":
            raise KeyError(event.kind)

    def save(self):
        return b"x" * self.amount if self.do == "save" else b""

    def restore(self, saved):
        raise ValueError(f"{len(saved)} bytes are of no use")
