"""A sequence of a known tenant begins with that tenant's value in the state `total`. Any other sequence begins as config.pbtxt says."""

from sequor_plugin.initializer import Initializer, Tensor, default, states


class Plugin(Initializer):
    def configure(self, config, model, ports, files):
        ports.state("total")
        self.tenants = config["tenants"]

    def initialize(self, call, inputs):
        """Called with each START."""
        value = self.tenants.get(call.text("tenant"))
        return default() if value is None else states({"total": Tensor("FP32", [1], [value])})
